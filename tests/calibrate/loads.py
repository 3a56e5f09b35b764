"""Benchmarks of an engine whose step times are known: simulated, made noisy, and written as each tool writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from replay.calibrate.serving import ONCE
from replay.engine import simulate
from replay.profiles.loader import find_profile, with_settings
from replay.profiles.profile import Profile

BASE = "h100-sxm/llama-3.1-8b/tp1/bf16/vllm"
SETTINGS = {"mode": "sync", "max_num_batched_tokens": 2048, "max_num_seqs": 256}
WALL_S = 1_796_005_369.25
MONOTONIC_S = 123_456.5

Request = dict[str, Any]


def base() -> Profile:
    """The profile that calibrations start from here."""
    return with_settings(find_profile(BASE), SETTINGS)


def truth(f: float = 1.25, overhead_s: float = 2.5e-3, api_server_s: float = 9e-3) -> Profile:
    """An engine that is slower than `base`."""
    time = base().timed
    slower = msgspec.structs.replace(time, knots_s=tuple(s * f for s in time.knots_s), overhead_s=overhead_s)
    return msgspec.structs.replace(base(), step_time=slower, overheads={}, api_server_s=api_server_s)


def requests(profile: Profile, seed: int, count: int = 240, noise: float = 0.03) -> list[Request]:
    """What a client of `profile` measures when load rises from 1 to 20 requests a second; seconds and tokens."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(np.concatenate([rng.exponential(1.0 / rate, count // 4) for rate in (1, 4, 10, 20)]))
    arrivals -= arrivals[0]
    prompts = np.exp(rng.uniform(np.log(100), np.log(4000), len(arrivals))).astype(int)
    outputs = np.exp(rng.uniform(np.log(30), np.log(400), len(arrivals))).astype(int)
    return served(profile, arrivals, prompts, outputs, noise, rng)


def served(
    profile: Profile, arrivals: Any, prompts: Any, outputs: Any, noise: float, rng: np.random.Generator
) -> list[Request]:
    """The requests with the times that they took."""
    calls = pa.table(
        {"arrival_s": arrivals, "prompt_tokens": prompts, "output_tokens": outputs, "content_id": range(len(arrivals))}
    )
    plain = msgspec.structs.replace(profile, api_server_s=0.0)
    out = simulate(calls, ONCE, plain, timeline_interval_s=0).calls
    first, end = np.asarray(out["first_token_s"]), np.asarray(out["end_s"])
    factors = np.exp(noise * rng.standard_normal((2, len(arrivals))))
    ttft = (first - arrivals + profile.api_server_s) * factors[0]
    decoding = (end - first) * factors[1]
    return [
        {"start": float(a), "prompt": int(p), "output": int(o), "ttft": float(t), "decoding": float(d)}
        for a, p, o, t, d in zip(arrivals, prompts, outputs, ttft, decoding, strict=True)
    ]


def vllm_bench(found: list[Request], path: Path, **more: Any) -> str:
    """As `vllm bench serve --save-result --save-detailed`, with the stray colon of its own."""
    result = {
        "date": "20261130-083000", "endpoint_type": "vllm", "backend": "vllm", "label": None,
        "model_id": "meta-llama/Llama-3.1-8B-Instruct", "tokenizer_id": "meta-llama/Llama-3.1-8B-Instruct",
        "num_prompts": len(found), "request_rate": "inf", "burstiness": 1.0, "max_concurrency": None,
        "duration": 10.0, "completed": len(found), "request_throughput": 1.0, "request_goodput:": None,
        "input_lens": [r["prompt"] for r in found], "output_lens": [r["output"] for r in found],
        "ttfts": [r["ttft"] for r in found],
        "itls": [[r["decoding"] / (r["output"] - 1)] * (r["output"] - 1) for r in found],
        "start_times": [MONOTONIC_S + r["start"] for r in found],
        "generated_texts": ["x"] * len(found), "errors": [""] * len(found),
    } | more  # fmt: skip
    path.write_text(json.dumps(result))
    return str(path)


def guidellm(found: list[Request], path: Path) -> str:
    """As GuideLLM 0.8."""
    successful = [
        {
            "type_": "generative_request_stats", "request_id": f"r{k}",
            "info": {"status": "completed", "timings": {"request_start": WALL_S + r["start"]}},
            "request_start_time": WALL_S + r["start"],
            "request_end_time": WALL_S + r["start"] + r["ttft"] + r["decoding"],
            "request_latency": r["ttft"] + r["decoding"], "prompt_tokens": r["prompt"], "cached_tokens": 0,
            "output_tokens": r["output"], "time_to_first_token_ms": 1e3 * r["ttft"],
        }
        for k, r in enumerate(found)
    ]  # fmt: skip
    benchmark = {
        "type_": "generative_benchmark",
        "config": {"backend": {"kind": "openai_http", "model": "meta-llama/Llama-3.1-8B-Instruct"}},
        "scheduler_metrics": {"requests_made": {"successful": len(found)}},
        "requests": {"successful": successful, "errored": [], "incomplete": [], "total": None},
    }
    path.write_text(json.dumps({"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": [benchmark]}))
    return str(path)


def aiperf(found: list[Request], path: Path) -> str:
    """As AIPerf 0.13, lines in the order in which requests ended."""
    lines = []
    for r in sorted(found, key=lambda r: float(r["start"] + r["ttft"] + r["decoding"])):
        start, took = round((WALL_S + r["start"]) * 1e9), r["ttft"] + r["decoding"]
        metadata = {"request_start_ns": start, "request_end_ns": start + round(took * 1e9), "was_cancelled": False}
        metrics = {
            "input_sequence_length": {"value": 2 * r["prompt"], "unit": "tokens"},
            "usage_prompt_tokens": {"value": r["prompt"], "unit": "tokens"},
            "usage_completion_tokens": {"value": r["output"], "unit": "tokens"},
            "time_to_first_token": {"value": 1e3 * r["ttft"], "unit": "ms"},
            "request_latency": {"value": 1e3 * took, "unit": "ms"},
        }
        lines.append(json.dumps({"metadata": metadata, "metrics": metrics}) + "\n")
    path.write_text("".join(lines))
    return str(path)


def inference_perf(found: list[Request], path: Path) -> str:
    """As inference-perf with report.request_lifecycle.per_request, whose client counts too few output tokens."""
    rows = [
        {
            "start_time": MONOTONIC_S + r["start"],
            "end_time": MONOTONIC_S + r["start"] + r["ttft"] + r["decoding"],
            "request": json.dumps({"model": "m", "max_tokens": r["output"], "ignore_eos": True}),
            "response": "",
            "info": {
                "input_tokens": r["prompt"],
                "output_tokens": r["output"] // 2,
                "output_token_times": [MONOTONIC_S + r["start"] + r["ttft"]],
            },
            "error": None,
        }
        for r in found
    ]
    path.write_text(json.dumps(rows))
    return str(path)


def llmservingsim(found: list[Request], path: Path) -> str:
    """As LLMServingSim's bench, whose clocks differ."""
    lines = [
        {
            "request_id": f"bench-{k}", "input_toks": r["prompt"], "output_toks": r["output"],
            "arrival_time": WALL_S + r["start"], "queued_ts": MONOTONIC_S + r["start"],
            "first_token_ts": MONOTONIC_S + r["start"] + r["ttft"],
            "last_token_ts": MONOTONIC_S + r["start"] + r["ttft"] + r["decoding"],
        }
        for k, r in enumerate(found)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


WRITERS: dict[str, Callable[[list[Request], Path], str]] = {
    "vllm_bench": vllm_bench, "guidellm": guidellm, "aiperf": aiperf, "inference_perf": inference_perf,
    "llmservingsim": llmservingsim,
}  # fmt: skip
