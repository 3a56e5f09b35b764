"""Engines by name, as settings: what makes each other than vLLM as it is now. Read from their sources.

Each says what it does not model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from replay.profiles.profile import EngineSettings
from replay.profiles.versions import Version, scheduler_rules
from trace_schema.errors import UnknownName


class Preset(Struct, frozen=True):
    """Settings of `EngineSettings` that an engine has, what they are in a sentence, and what is left out."""

    summary: str
    settings: Mapping[str, Any]
    left_out: str


VLLM_LACKS = (
    "speculative decoding, LoRA limits, KV connectors, sliding-window and hybrid caches, prefills held for a number of "
    "steps (prefill_schedule_interval); its own cap on requests (max_num_queued_reqs) is a policy here (admission)"
)


def vllm(version: Version, summary: str) -> Preset:
    """vLLM as it was in a version."""
    return Preset(summary, scheduler_rules(version), VLLM_LACKS)


PRESETS: Mapping[str, Preset] = {
    "vllm": vllm((0, 32), "vLLM 0.31 and 0.32: a disconnect aborts at the end of the running step"),
    "vllm-0.33": vllm(
        (0, 33), "vLLM 0.33: by priority, a request that preempts itself does not hold up those behind it in the batch"
    ),
    "vllm-0.30": vllm(
        (0, 30), "vLLM 0.28 to 0.30: the threshold of long prefills holds for a request that is alone, too"
    ),
    "vllm-0.27": vllm((0, 27), "vLLM 0.23 to 0.27: as 0.30, and by priority an eviction may skip a request's turn"),
    "vllm-0.22": vllm((0, 22), "vLLM 0.19 to 0.22: as 0.27, and freed blocks all go to the back"),
    "vllm-0.18": vllm((0, 18), "vLLM 0.13 to 0.18: as 0.22, and admission asks for the blocks of a chunk alone"),
    "vllm-0.12": vllm((0, 12), "vLLM up to 0.12: as 0.18, and aborts take effect after a step's outputs are read"),
    "sglang": Preset(
        "SGLang 0.5.10: prefill first, looks for disconnects every 4 s and every 2 s of a stream, computes the prefill "
        "of an aborted request to its end, and retracts the request with the fewest outputs",
        {
            "batching": "prefill_first",
            "preempts": "fewest_outputs",
            "reserve_share": 0.35,
            "disconnect": "timer",
            "disconnect_timer_s": 4.0,
            "disconnect_timer_streaming_s": 2.0,
            "prefill_runs_on": True,
        },
        "the estimate of outputs that admission makes room for adapts in SGLang, and is half of its start here; the "
        "radix cache evicts leaves, here blocks; scheduling policies by prefix; since 0.5.23 a prefill stops after its "
        "chunk (prefill_runs_on: false); mixed chunking (batching: mixed)",
    ),
    "tgi": Preset(
        "TGI 3: admission promises room for the whole output limit and never preempts; a disconnect is noticed at the "
        "next token, or when the request leaves the queue",
        {"reserve_share": 1.0, "disconnect": "next_token", "prefill_runs_on": True},
        "its own rules of when waiting requests interrupt decoding (waiting_served_ratio, max_waiting_tokens)",
    ),
    "tensorrt-llm": Preset(
        "TensorRT-LLM: looks for disconnects every second",
        {"disconnect": "timer", "disconnect_timer_s": 1.0, "disconnect_timer_streaming_s": 1.0},
        "its capacity schedulers (here admission as in vLLM), in-flight batching of encoder models",
    ),
}


def as_in_vllm() -> dict[str, Any]:
    """Every setting that a preset may change, as it is in vLLM."""
    defaults = msgspec.to_builtins(EngineSettings())
    changed = {key for known in PRESETS.values() for key in known.settings}
    return {key: defaults[key] for key in sorted(changed)}


def preset(name: str) -> Preset:
    """The engine called `name`. Raises UnknownName."""
    if name not in PRESETS:
        raise UnknownName.of("engine", name, PRESETS)
    return PRESETS[name]
