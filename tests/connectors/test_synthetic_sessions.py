"""Sessions of several turns: prompts that grow, blocks that are shared, thoughts between."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import replay
from connectors import synthetic
from connectors.synthetic.conversations import BLOCK_TOKENS
from replay.policies.catalogue import resolve
from replay.policies.knobs import Policy
from replay.profiles.loader import find_profile
from trace_schema.check import check_calls

H100 = "h100-sxm/llama-3.1-8b/tp1/bf16/vllm"
CHAT = {
    "calls": 5_000,
    "session_turns": "geometric:mean=5",
    "think_time_s": "exponential:20",
    "rate_per_s": 2.0,
    "prefixes": 3,
    "prefix_tokens": 100,
}


@pytest.fixture(scope="module")
def chat() -> pa.Table:
    return synthetic.calls("poisson", **CHAT)


def turns_of(calls: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """The turns of each session, in order of arrival."""
    sessions: dict[str, list[dict[str, Any]]] = {}
    for call in calls.to_pylist():
        sessions.setdefault(call["session_id"], []).append(call)
    return sessions


def test_a_turn_follows_the_one_before_it_and_holds_what_was_said(chat: pa.Table) -> None:
    check_calls(chat)
    for turns in turns_of(chat).values():
        assert [t["turn"] for t in turns] == list(range(len(turns)))
        assert [t["previous_call_id"] for t in turns] == [None, *(t["call_id"] for t in turns[:-1])]
        for before, now in itertools.pairwise(turns):
            assert now["prompt_tokens"] > before["prompt_tokens"] + before["output_tokens"]


def test_prompts_of_a_session_share_their_blocks_and_those_of_others_only_a_prefix(chat: pa.Table) -> None:
    owners: dict[int, set[str]] = {}
    for name, turns in turns_of(chat).items():
        for before, now in itertools.pairwise(turns):
            assert now["block_hashes"][: len(before["block_hashes"])] == before["block_hashes"]
        for turn in turns:
            assert len(turn["block_hashes"]) == turn["prompt_tokens"] // BLOCK_TOKENS
            assert len(set(turn["block_hashes"])) == len(turn["block_hashes"])
        for place, block in enumerate(turns[-1]["block_hashes"]):
            owners.setdefault(block, set()).add(name)
            assert place < 100 // BLOCK_TOKENS or len(owners[block]) == 1
    assert sum(len(sessions) > 1 for sessions in owners.values()) == 3 * (100 // BLOCK_TOKENS)


def test_turns_and_thoughts_follow_their_laws() -> None:
    calls = synthetic.calls(
        "poisson", **(CHAT | {"calls": None, "duration_s": 20_000.0, "prompt_tokens_max": 1_000_000})
    )
    begun_early = {name: turns for name, turns in turns_of(calls).items() if turns[0]["arrival_s"] < 15_000.0}
    counts = np.bincount([min(len(turns), 12) for turns in begun_early.values()], minlength=13)[1:]
    law = stats.geom(0.2)
    expected = len(begun_early) * np.append(law.pmf(np.arange(1, 12)), law.sf(11))
    assert stats.chisquare(counts, expected).pvalue > 0.01
    thoughts = np.asarray([t["think_time_s"] for turns in begun_early.values() for t in turns[1:]])
    assert stats.kstest(thoughts, stats.expon(scale=20.0).cdf).pvalue > 0.01
    assert len(begun_early) == pytest.approx(30_000, abs=5 * 30_000**0.5)


def test_an_open_loop_has_its_times_and_no_thoughts(chat: pa.Table) -> None:
    opened = synthetic.calls("poisson", **(CHAT | {"session_loop": "open"}))
    assert opened["think_time_s"].null_count == opened.num_rows
    assert opened.drop_columns("think_time_s").equals(chat.drop_columns("think_time_s"))
    assert chat["think_time_s"].null_count == chat["previous_call_id"].null_count


def test_arrivals_are_those_of_responses_at_the_pace_that_is_named() -> None:
    calls = synthetic.calls("poisson", **(CHAT | {"first_token_s": 2.0, "token_s": 0.5}))
    for turns in turns_of(calls).values():
        for before, now in itertools.pairwise(turns):
            ended = before["arrival_s"] + 2.0 + 0.5 * before["output_tokens"]
            assert now["arrival_s"] == pytest.approx(ended + now["think_time_s"])


def test_a_session_ends_before_its_prompt_grows_too_long() -> None:
    calls = synthetic.calls("poisson", **(CHAT | {"session_turns": 50, "prompt_tokens_max": 3_000, "prefixes": None}))
    assert calls["prompt_tokens"].to_numpy().max() <= 3_000


def test_an_engine_finds_what_was_said_in_its_cache() -> None:
    calls = synthetic.calls("chat", calls=600, rate_per_s=0.5, prompt_tokens=400, output_tokens=10)
    results = replay.simulate(calls, resolve("cancel", Policy(name="base")), find_profile(H100))
    cached = results.executions.sort_by("call_id")["cached_prompt_tokens"].to_numpy()
    prompt, turn = calls["prompt_tokens"].to_numpy(), calls["turn"].to_numpy()
    previous = calls["previous_call_id"].to_pylist()
    later = np.flatnonzero(turn > 0)
    found = [cached[k] / (prompt[previous[k]] // BLOCK_TOKENS * BLOCK_TOKENS) for k in later]
    assert np.mean(found) > 0.95
    assert cached[turn == 0].max() <= 800


def test_a_turn_of_a_closed_loop_comes_when_its_user_has_thought_about_the_answer() -> None:
    calls = synthetic.calls("chat", calls=300, rate_per_s=1.0)
    for policy in ("cancel", "no_cancel"):
        results = replay.simulate(calls, resolve(policy, Policy(name="base")), find_profile(H100)).calls
        assert results["call_id"].equals(calls["call_id"])
        previous = calls["previous_call_id"].to_numpy(zero_copy_only=False)
        later = np.flatnonzero(~np.isnan(previous))
        ended = results["end_s"].to_numpy()[previous[later].astype(np.int64)]
        thought = calls["think_time_s"].to_numpy(zero_copy_only=False)[later]
        assert results["arrival_s"].to_numpy()[later] == pytest.approx(ended + thought)


def test_users_who_leave_by_tokens_leave_with_so_many() -> None:
    calls = synthetic.calls("poisson", calls=300, user_cancel_rate=0.5, user_cancel_tokens=20, stream_share=0.5)
    results = replay.simulate(calls, resolve("cancel", Policy(name="base")), find_profile(H100))
    leaves = np.asarray(calls["user_cancel_tokens"].is_valid()) & (calls["output_tokens"].to_numpy() > 25)
    outcome = np.asarray(results.calls["outcome"])
    assert set(outcome[leaves]) == {"cancelled"}
    assert set(outcome[np.asarray(calls["user_cancel_tokens"].is_null())]) == {"delivered"}
    written = results.executions.sort_by("call_id")["computed_output_tokens"].to_numpy()
    assert written[leaves].max() <= 25
