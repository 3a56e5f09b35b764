"""The engines of the studies: what they are, and how many calls a second each of them can serve."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from replay.engine import simulate
from replay.ingest import made_trace
from replay.policies.knobs import Client, Policy
from replay.profiles.loader import save_profile
from replay.profiles.profile import EngineSettings, Profile, StepTime

SMALL = "h100-sxm/llama-3.1-8b/tp1/bf16/vllm"
MEDIUM = "h100-sxm/qwen3-32b/tp2/bf16/vllm"
LARGE = "h100-sxm/llama-3.1-70b/tp4/bf16/vllm"
ENGINES: Mapping[str, str] = {"small": SMALL, "medium": MEDIUM, "large": LARGE}
"""A small, a medium and a large model, on as many GPUs as leave room for their KV."""

SATURATING_CALLS = 1_500
"""Calls that arrive at once where a capacity is measured: several times what runs at once."""
SATURATING_RATE_PER_S = 1e5
PACED_CALLS = 400
"""Calls from which the pace of responses is measured."""
FULL = (0.2, 0.8)
"""Shares of their completions between which the engine is full: before it fills, after it drains."""
STEP_S, ROW_S = 0.005, 0.002
POOL_BLOCKS = 5_000
"""Room for 32 calls of 2,500 tokens."""


def linear() -> Profile:
    """The cancellation benchmark's engine: a step takes `STEP_S + ROW_S * rows`, whatever is in it.

    The benchmark says that steps are linear in the batch and that nothing is preempted, and publishes no numbers. Those
    here are of a 7B on a GPU that decodes 143 tokens a second alone and 432 in a batch of 16. Admission asks for room
    for the whole response.
    """
    return Profile(
        name="linear",
        engine=EngineSettings(num_blocks=POOL_BLOCKS, reserve_share=1.0, prefix_caching=False),
        step_time=StepTime(knots_tokens=(1,), knots_s=(0.0,), overhead_s=STEP_S, sequence_s=ROW_S),
        source="steps linear in the batch, as the cancellation benchmark has them",
        weakness="prompt tokens and context cost nothing",
    )


def engine_file(directory: Path, profile: Profile) -> str:
    """The profile as a file of the study, to be run on again; its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = str(directory / f"{profile.name}.json")
    save_profile(profile, path)
    return path


def capacity(profile: Profile, lengths: Mapping[str, str]) -> float:
    """Calls a second that the engine completes while it is full, with calls of these lengths; found by simulation.

    `lengths` are the options `prompt_tokens` and `output_tokens` of synthetic traffic. Users do not leave and clients
    wait: what is left is the engine alone.
    """
    return measured_capacity(msgspec.json.encode(profile), tuple(sorted(lengths.items())))


@cache
def measured_capacity(profile: bytes, lengths: tuple[tuple[str, str], ...]) -> float:
    """The same, once for each engine and law of lengths."""
    options = {**dict(lengths), "calls": SATURATING_CALLS, "rate_per_s": SATURATING_RATE_PER_S}
    calls = made_trace("synthetic:poisson", options).calls
    patient = Policy(name="patient", client=Client(max_attempts=1))
    results = simulate(calls, patient, msgspec.json.decode(profile, type=Profile), timeline_interval_s=0.0)
    ends = np.sort(np.asarray(results.calls["end_s"]))
    first, last = (int(share * len(ends)) for share in FULL)
    return float((last - first) / (ends[last] - ends[first]))


class Pace(msgspec.Struct, frozen=True):
    """How an engine answers a workload's calls, were no user to leave."""

    first_token_s: float
    """Median from arrival to the first token."""
    token_s: float
    """Median of each later one."""
    blocks_most: int
    """KV blocks held at once, at most."""


def pace(profile: Profile, workload: str, traffic: Mapping[str, Any]) -> Pace:
    """The pace of an engine with a workload whose options are `traffic`; found by simulation."""
    return measured_pace(msgspec.json.encode(profile), workload, msgspec.json.encode(traffic))


@cache
def measured_pace(profile: bytes, workload: str, traffic: bytes) -> Pace:
    """The same, once for each engine and traffic."""
    options = {**msgspec.json.decode(traffic), "user_cancel_rate": 0.0, "calls": PACED_CALLS}
    calls = made_trace(f"synthetic:{workload}", options).calls.drop_columns(["user_cancel_s"])
    patient = Policy(name="patient", client=Client(max_attempts=1))
    results = simulate(calls, patient, msgspec.json.decode(profile, type=Profile))
    found = results.calls
    arrival, first, end = (np.asarray(found[name]) for name in ("arrival_s", "first_token_s", "end_s"))
    later = np.asarray(found["output_tokens"]) - 1
    token_s = (end - first)[later > 0] / later[later > 0]
    blocks = int(np.asarray(results.timeline["used_blocks"]).max())
    return Pace(float(np.median(first - arrival)), float(np.median(token_s)), blocks)
