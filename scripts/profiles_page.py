"""docs/profiles.md, from the profiles that are shipped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from replay.profiles.guess import GPU_ERROR, MODEL_ERROR, RATIO_MAX
from replay.profiles.hardware import DTYPES, ENGINES, GPUS
from replay.profiles.models import MODELS
from replay.profiles.named import API_SERVER_S, BROAD, SYNC, Measured, measured, shipped

HEAD = f"""# Engine profiles

Generated from `replay/profiles/` by `make docs`. `replay profiles` lists all of them, `replay profiles show NAME`
shows one with its source, its fit error and where it is known to be weak.

A name is `GPU/MODEL/tpN/DTYPE/ENGINE`, such as `h100-sxm/llama-3.1-8b/tp1/bf16/vllm`. Each part may be written as
people write it: `H100-SXM5-80GB`, `meta-llama/Llama-3.1-8B-Instruct`, `fp16` (taken as bf16), `trtllm`.

## What a profile holds

- **Step times on the GPU**: f(tokens), piecewise linear, and terms for decoding requests, their context, and
  prefill attention (see `StepTime` in `replay/profiles/profile.py`). The context of decoding requests costs
  `mixed_kv_factor` times as much in a step that also computes prefill, on GPUs whose kernels run both together.
- **What scheduling adds**, by mode: {SYNC.step_s * 1e3:g} ms + {SYNC.sequence_s * 1e3:g} ms a sequence for
  synchronous vLLM (< 0.13, or `--set engine.mode=sync`), nothing for asynchronous.
- **What the API server adds** to a request of vLLM: {API_SERVER_S * 1e3:g} ms.
- **The KV pool**: `floor((gpu_memory_utilization * memory - weights - 1.2 GiB) / block)`, with the memory that CUDA
  reports. `--set engine.gpu_memory_utilization=0.8` sizes it anew; `--set engine.num_blocks=20000` wins over
  everything.
- **Limits** by default of vLLM's API server: 8,192 tokens and 1,024 sequences a step on GPUs of 70 GiB and more
  other than A100 (16,384 tokens from 160 GiB on), 2,048 and 256 on the rest.

In a profile of your own, `step_time` may also hold `compact: {{floor_s, token_s, p}}`, a soft roofline `(floor_s^p
+ (token_s * T)^p)^(1/p)`, in the place of knots; or `table`, rows of (prefill tokens, decoding requests, sum of
their contexts, seconds) alone. A table whose steps are not a sum of these three parts, within 10%, is refused.

## What was not measured

A model or GPU of the lists below that has no row is guessed from the nearest one with as many GPUs and the same
number format: weights over bandwidth, parameters over compute, KV bytes, width of attention. Its name ends in
`/guess`, and run and report say what it was guessed from. Rows that were measured, guessed alike from other models
on the GPU: {MODEL_ERROR}; from other GPUs: {GPU_ERROR}.
Beyond {RATIO_MAX:g} times the size or speed nothing is guessed.

## How close whole runs come

`replay validate --points FILE` holds profiles against serving results. Against published ones (fp16 taken as bf16),
median absolute errors are as below. Nothing is fitted to a single point, but two constants to whole groups of them:
the API server's time to the open-loop runs, so that their TTFT is in sample (12% with 2.6 ms), and the synchronous
overhead to the Qwen3 runs.

| runs | points | TPOT | TTFT | E2E | |
|---|---|---|---|---|---|
| H100, open loop (Llama-2 7B and 70B, CodeLlama 34B), vLLM | 15 | 1.5% | 4% | 2.3% | |
| H100, closed loop, Llama-3.1 70B in fp8, vLLM | 20 | 2.9% | 7% | | |
| H200, closed loop, Llama-3.1 70B in fp8, vLLM | 23 | 4.1% | 7% | | |
| H100, closed loop, Qwen3 32B, vLLM 0.12 | 50 | 2.7% | 38% | | prompts of 1,024 tokens: twice too long |
| B200, closed loop, Llama-3.1 70B in fp8, vLLM | 36 | 20% | 18% | | TPOT is predicted too long |
| RTX 4090, recorded run, Llama-3.1 8B, vLLM 0.19 | 1 | 1.8% | 0.1% | 0.4% | makespan 0.8% |
| RTX PRO 6000, recorded run, Llama-3.1 8B, vLLM 0.19 | 1 | 4.7% | 11% | 6.4% | makespan 5.2% |

The Qwen3 runs do not say how many tokens a step had: with 2,048 instead of the server's default their first tokens
are met within 10% where prompts have 1,024 tokens. KV pools of four logs of vLLM on H100 are met within 1.5%; where
little memory is left for them the 1.2 GiB of the rest decide: within 0.7 GiB on A100 at a utilisation of 0.25."""


def profiles_page() -> str:
    """The page."""
    return "\n\n".join([HEAD, *weaknesses(), *lists(), "## What was measured", table(measured().values())]) + "\n"


def weaknesses() -> list[str]:
    """Each known weakness, and of which rows."""
    rows: dict[str, list[Measured]] = defaultdict(list)
    for row in measured().values():
        for key in row.weaknesses:
            rows[key].append(row)
    lines = ["| | profiles | of |", "|---|---|---|"]
    for key, text in shipped().weaknesses.items():
        if key not in rows:
            continue
        gpus = sorted({row.gpu for row in rows[key]})
        engines = sorted({row.engine for row in rows[key]})
        heads = {str(MODELS[row.model].heads) for row in rows[key]} if key == "heads" else {""}
        said = text.format(heads=" or ".join(sorted(heads)))
        where = "" if key in BROAD else f" (`{key}` in lists)"
        lines.append(f"| {said}{where} | {len(rows[key])} | {', '.join(engines)} on {', '.join(gpus)} |")
    return ["## Known weaknesses", "\n".join(lines)]


def lists() -> list[str]:
    """What people may call the parts of a name."""
    gpus = [f"| `{g.name}` | {', '.join(g.aliases)} | {g.memory_gib:g} |" for g in GPUS.values()]
    models = [f"`{m.name}`" + (f" (also {', '.join(m.alike)})" if m.alike else "") for m in MODELS.values()]
    formats = [f"`{key}` ({', '.join(names)})" for key, names in DTYPES.items()]
    engines = [f"`{key}`" + (f" ({', '.join(names)})" if names else "") for key, names in ENGINES.items()]
    return [
        "## Names",
        "\n".join(["| GPU | also called | memory, GiB |", "|---|---|---|", *gpus]),
        f"Models, also by their names on Hugging Face: {', '.join(models)}.",
        f"Number formats: {', '.join(formats)}. Engines: {', '.join(engines)}.",
    ]


def table(rows: Iterable[Measured]) -> str:
    """A line for each GPU, engine and model."""
    groups: dict[tuple[str, str, str, str], list[Measured]] = defaultdict(list)
    for row in rows:
        groups[row.gpu, row.engine, row.version, row.model].append(row)
    lines = ["| GPU | engine | model | GPUs and formats | fit error | weak |", "|---|---|---|---|---|---|"]
    for (gpu, engine, version, model), found in sorted(groups.items()):
        formats = "; ".join(
            f"{dtype}: {', '.join(f'tp{row.tp}' for row in found if row.dtype == dtype)}"
            for dtype in DTYPES
            if any(row.dtype == dtype for row in found)
        )
        errors = sorted(row.mape_percent for row in found)
        spread = f"{errors[0]:.1f}%" if len(errors) == 1 else f"{errors[0]:.1f} to {errors[-1]:.1f}%"
        weak = ", ".join(dict.fromkeys(key for row in found for key in row.weaknesses if key not in BROAD))
        lines.append(f"| {gpu} | {engine} {version} | {model} | {formats} | {spread} | {weak} |")
    return "\n".join(lines)
