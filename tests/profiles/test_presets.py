"""Engines beside vLLM: what each does otherwise, seen in a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from replay.config import layered, profiles_of
from replay.engine import Results, simulate
from replay.errors import BadConfig
from replay.policies.catalogue import resolve
from replay.profiles.loader import with_settings
from replay.profiles.presets import PRESETS
from replay.profiles.profile import EngineSettings, Profile, StepTime

BASE = Profile(
    name="base",
    engine=EngineSettings(max_num_seqs=8, max_num_batched_tokens=128, num_blocks=200, prefix_caching=False),
    step_time=StepTime(knots_tokens=(1, 128), knots_s=(0.01, 0.1)),
)


def calls(n: int, leaves_s: float | None = None, prompt: int = 512, output: int = 100, gap_s: float = 0.0) -> pa.Table:
    return pa.table(
        {
            "call_id": np.arange(n),
            "content_id": np.arange(n),
            "arrival_s": np.arange(n) * gap_s,
            "prompt_tokens": np.full(n, prompt),
            "output_tokens": np.full(n, output),
            "stream": np.ones(n, bool),
            "user_cancel_s": pa.array([leaves_s] + [None] * (n - 1), pa.float64()),
        }
    )


def run(name: str, trace: pa.Table, steps: bool = False, **settings: Any) -> Results:
    return simulate(trace, resolve("cancel"), with_settings(BASE, {"preset": name, **settings}), steps=steps)


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_engine_serves_and_says_what_it_leaves_out(name: str) -> None:
    assert set(run(name, calls(20, gap_s=0.05)).calls["outcome"].to_pylist()) == {"delivered"}
    assert PRESETS[name].left_out


def test_a_preset_stands_below_other_settings() -> None:
    experiment, _ = layered(
        [("x", {"profile": "h100-sxm/llama-3.1-8b/tp1/bf16/vllm", "engine": {"preset": "sglang", "batching": "mixed"}})]
    )
    engine = profiles_of(experiment)[0].engine
    assert (engine.batching, engine.disconnect, engine.preempts) == ("mixed", "timer", "fewest_outputs")
    with pytest.raises(BadConfig, match=r"unknown engine 'sglan'; did you mean sglang"):
        with_settings(BASE, {"preset": "sglan"})


def test_sglang_prefills_first_and_looks_every_four_seconds() -> None:
    steps = run("sglang", calls(6, gap_s=0.3), steps=True).steps
    assert steps is not None
    rows = zip(steps["prefill_tokens"].to_pylist(), steps["decode_tokens"].to_pylist(), strict=True)
    assert all(prefill == 0 or decode == 0 for prefill, decode in rows)
    mixed = run("vllm", calls(6, gap_s=0.3), steps=True).steps
    assert mixed is not None
    rows = zip(mixed["prefill_tokens"].to_pylist(), mixed["decode_tokens"].to_pylist(), strict=True)
    assert any(prefill and decode for prefill, decode in rows)
    left = run("sglang", calls(1, leaves_s=0.05, output=1000)).executions
    assert left["end_s"][0].as_py() >= 2.0


def test_sglang_computes_the_prefill_of_an_aborted_request_to_its_end() -> None:
    waits = {"disconnect": "push"}
    aborted = run("sglang", calls(1, leaves_s=0.05), **waits).executions
    assert aborted["ended"][0].as_py() == "aborted"
    assert aborted["computed_prompt_tokens"][0].as_py() == 512
    assert run("vllm", calls(1, leaves_s=0.05)).executions["computed_prompt_tokens"][0].as_py() < 512


def test_tgi_never_preempts_where_vllm_does() -> None:
    tight = calls(8, prompt=200, output=400)
    assert sum(run("vllm", tight).executions["preemptions"].to_pylist()) > 0
    assert sum(run("tgi", tight).executions["preemptions"].to_pylist()) == 0


def test_tensorrt_llm_notices_within_a_second() -> None:
    end = run("tensorrt-llm", calls(1, leaves_s=0.3, output=1000)).executions["end_s"][0].as_py()
    assert 1.0 <= end <= 1.1
