"""What scripts/vllm_step_log.py costs: microseconds of CPU per step, under vLLM's own scheduler.

`python scripts/bench_step_log.py [--rows N]... [--json]`, where vLLM is installed; no GPU and no model is needed.
A row for each batch size, of requests that decode: `schedule` and `update_from_output` on the engine's thread without
the log and with it (medians), and what the log's other thread takes for the same step.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 131072,
    "vocab_size": 32000, "torch_dtype": "bfloat16",
}  # fmt: skip
"""A model that is never loaded."""
ROWS = (1, 64, 256)
STEPS, WARM_UP = 600, 100
PAUSE_S = 0.002
"""Between a step's two halves, as while the GPU works: that is when the other thread writes."""
PROMPT = 64


def plug_in() -> Any:
    """The module scripts/vllm_step_log.py. Raises ImportError without vLLM."""
    if "vllm_step_log" not in sys.modules:
        path = Path(__file__).with_name("vllm_step_log.py")
        spec = importlib.util.spec_from_file_location("vllm_step_log", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules["vllm_step_log"] = module
    return sys.modules["vllm_step_log"]


def fitting(make: Callable[..., Any], **arguments: Any) -> Any:
    """`make` with those arguments that this version of vLLM takes."""
    known = inspect.signature(make).parameters
    return make(**{name: value for name, value in arguments.items() if name in known})


def scheduler(engine: Mapping[str, Any], kind: Callable[..., Any]) -> Any:
    """A scheduler of vLLM with the settings of a golden scenario's `engine`, without a model. `kind`: its class."""
    import torch
    import vllm.config as config
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(CONFIG))
        model = fitting(
            config.ModelConfig, model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="bfloat16", seed=0,
            max_model_len=engine["max_model_len"],
        )  # fmt: skip
        settings = fitting(
            config.SchedulerConfig, max_num_seqs=engine["max_num_seqs"], is_encoder_decoder=False,
            max_num_batched_tokens=engine["max_num_batched_tokens"], max_model_len=engine["max_model_len"],
            enable_chunked_prefill=True, async_scheduling=engine["mode"] == "async", policy=engine["policy"],
            long_prefill_token_threshold=engine["long_prefill_token_threshold"], watermark=engine["watermark"],
            long_prefill_token_threshold_adaptive=engine.get("long_prefill_token_threshold_adaptive", False),
        )  # fmt: skip
        cache = fitting(
            config.CacheConfig, block_size=engine["block_size"], gpu_memory_utilization=0.9, swap_space=0,
            cache_dtype="auto", enable_prefix_caching=engine["prefix_caching"],
        )  # fmt: skip
        whole = config.VllmConfig(
            model_config=model, scheduler_config=settings, cache_config=cache, device_config=config.DeviceConfig("cpu")
        )
    cache.num_gpu_blocks = engine["num_blocks"]
    spec = fitting(
        FullAttentionSpec, block_size=engine["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32,
        use_mla=False,
    )  # fmt: skip
    blocks = KVCacheConfig(
        num_blocks=engine["num_blocks"], kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    arguments = {"vllm_config": whole, "kv_cache_config": blocks, "block_size": engine["block_size"]}
    arguments["structured_output_manager"] = StructuredOutputManager(whole)
    known = inspect.signature(Scheduler.__init__).parameters
    return kind(**{name: value for name, value in arguments.items() if name in known})


def request(
    name: str, prompt: list[int], output: int, priority: int = 0, arrival: float = 0.0, *,
    stop: list[str] | None = None, block_hasher: Callable[..., Any] | None = None,
) -> Any:  # fmt: skip
    """A request of vLLM with the tokens of `prompt` that writes `output` tokens."""
    from vllm import SamplingParams
    from vllm.v1.request import Request

    sampling = SamplingParams(max_tokens=output, ignore_eos=True, stop=stop, detokenize=stop is not None)
    return fitting(
        Request, request_id=name, prompt_token_ids=list(prompt), sampling_params=sampling, pooling_params=None,
        eos_token_id=None, multi_modal_inputs=None, multi_modal_hashes=None, multi_modal_placeholders=None,
        multi_modal_kwargs=None, mm_features=None, priority=priority, arrival_time=arrival, block_hasher=block_hasher,
    )  # fmt: skip


def outputs(scheduler: Any, scheduled: Any, token: Callable[[Any], int] = lambda request: 7) -> Any:
    """What a model runner would give for a step, read right after it is scheduled: a `token` where one is due."""
    from vllm.v1.outputs import ModelRunnerOutput

    names = list(scheduled.num_scheduled_tokens)
    requests = [scheduler.requests[name] for name in names]
    tokens = [[] if is_chunk(request) else [token(request)] for request in requests]
    return fitting(
        ModelRunnerOutput, req_ids=names, req_id_to_index={name: k for k, name in enumerate(names)},
        sampled_token_ids=tokens, spec_token_ids=None, logprobs=None, prompt_logprobs_dict={}, pooler_output=[],
    )  # fmt: skip


def is_chunk(request: Any) -> bool:
    """Whether a request, just scheduled, has prompt left to compute."""
    if hasattr(request, "is_prefill_chunk"):
        return bool(request.is_prefill_chunk)
    return bool(request.num_computed_tokens < request.num_tokens)


def seconds(rows: int) -> list[list[float]]:
    """CPU seconds of the engine's thread in each step of `rows` decoding requests: without the log, and with it.

    Both schedulers take their steps in turn, so that the machine is the same to both.
    """
    from vllm.v1.core.sched.scheduler import Scheduler

    engine = {
        "mode": "sync", "policy": "fcfs", "max_model_len": 8192, "max_num_seqs": rows, "max_num_batched_tokens": 8192,
        "block_size": 16, "num_blocks": 27_000, "prefix_caching": False, "long_prefill_token_threshold": 0,
        "watermark": 0.0,
    }  # fmt: skip
    made = [scheduler(engine, kind) for kind in (Scheduler, plug_in().StepLogScheduler)]
    for number in range(rows):
        for each in made:
            each.add_request(request(f"cmpl-{number:032x}-0", [7] * PROMPT, 2 * (STEPS + WARM_UP)))
    spent: list[list[float]] = [[], []]
    for _ in range(STEPS + WARM_UP):
        for each, times in zip(made, spent, strict=True):
            began = time.thread_time()
            step = each.schedule()
            scheduled = time.thread_time()
            ready = outputs(each, step)
            time.sleep(PAUSE_S)
            resumed = time.thread_time()
            each.update_from_output(step, ready)
            times.append(time.thread_time() - resumed + scheduled - began)
    for each in made:
        each.shutdown()
    return [times[WARM_UP:] for times in spent]


def writer_seconds(rows: int, steps: int = 200) -> float:
    """CPU seconds of the other thread for each step of `rows` rows."""
    module = plug_in()
    ids = [f"cmpl-{number:032x}-0" for number in range(rows)]
    known = [(ids, list(range(1_000, 1_000 + rows)))]
    step = ("step", 1, (1.8e9, 1.8e9, 1.8e9), (rows, 0, 1_000), ids, list(range(rows)), [1] * rows, known)
    with tempfile.TemporaryDirectory() as folder:
        log = module.Log(os.path.join(folder, "engine.steps.jsonl.gz"), {"kind": "header"}, 0.0)
        log.buffer.extend([(rows + 1, step)] * steps)
        began = time.thread_time()
        log.drain(0.0)
        spent = time.thread_time() - began
        log.close()
    return spent / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, action="append", help="requests in a step; may be given several times")
    parser.add_argument("--json", action="store_true", help="a list of objects")
    arguments = parser.parse_args()
    try:
        plug_in()
    except ImportError as error:
        sys.exit(f"vLLM cannot be imported here ({error}); pip install vllm")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["VLLM_STEP_LOG"] = os.path.join(folder, "engine.steps.jsonl.gz")
        for rows in arguments.rows or ROWS:
            without, with_log = (1e6 * float(np.median(times)) for times in seconds(rows))
            row = {"scheduler_us": without, "with_log_us": with_log, "cost_us": with_log - without}
            row["writer_us"] = 1e6 * writer_seconds(rows)
            found.append({"rows": rows, **{name: round(value, 1) for name, value in row.items()}})
    if arguments.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{'rows':>6}{'scheduler us':>14}{'with log us':>13}{'cost us':>10}{'writer us':>11}")
    for row in found:
        print("{rows:>6}{scheduler_us:>14}{with_log_us:>13}{cost_us:>10}{writer_us:>11}".format(**row))


if __name__ == "__main__":
    main()
