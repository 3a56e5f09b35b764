"""What each way of handling cancels costs, on engines whose every step is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from replay.engine import Results, simulate
from replay.policies.catalogue import CATALOGUE, KV_RELEASE_DELAY_S, POLL_COST_S, resolve
from replay.policies.knobs import Admission, Client, Policy
from replay.profiles.profile import EngineSettings, Profile, StepTime

BASE_S, ROW_S = 0.010, 0.001
PROFILE = Profile(
    name="linear",
    engine=EngineSettings(max_num_seqs=8, max_num_batched_tokens=512, num_blocks=1000, prefix_caching=False),
    step_time=StepTime(knots_tokens=(1,), knots_s=(0.0,), overhead_s=BASE_S, sequence_s=ROW_S),
)
"""A step takes 10 ms and 1 ms for each row, whatever is in it."""
LEAVES_S = 0.5


def calls(n: int, leavers: int, output: int = 400) -> pa.Table:
    """`n` equal calls at once, of which the first `leavers` leave while they decode."""
    return pa.table(
        {
            "call_id": np.arange(n),
            "content_id": np.arange(n),
            "arrival_s": np.zeros(n),
            "prompt_tokens": np.full(n, 16),
            "output_tokens": np.full(n, output),
            "stream": np.ones(n, bool),
            "user_cancel_s": pa.array([LEAVES_S if i < leavers else None for i in range(n)], pa.float64()),
        }
    )


def replayed(policy: str | Policy, n: int = 4, leavers: int = 1, profile: Profile = PROFILE, **knobs: Any) -> Results:
    policy = resolve(policy) if isinstance(policy, str) else policy
    policy = replace(policy, cancellation=replace(policy.cancellation, **knobs))
    return simulate(calls(n, leavers), policy, profile)


def marginal_s(results: Results) -> float:
    """GPU seconds that the call which left cost."""
    return float(results.executions["marginal_ns"][0].as_py()) / 1e9


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_a_poll_of_k_tokens_costs_k_rows_more_than_push(k: int) -> None:
    free = replayed(f"poll_every_{k}", poll_cost_s=0.0)
    assert marginal_s(free) - marginal_s(replayed("push_cancel")) == pytest.approx(k * ROW_S, rel=1e-6)


def test_looks_cost_the_same_for_each_token_and_half_at_twice_the_interval() -> None:
    costs = [int(np.asarray(replayed(f"poll_every_{k}").executions["poll_ns"]).sum()) for k in (1, 2, 4, 8)]
    tokens = 3 * 400 + 44
    assert costs[0] == pytest.approx(tokens * POLL_COST_S * 1e9, rel=0.03)
    assert np.diff(np.log2(costs)) == pytest.approx([-1, -1, -1], abs=0.05)


def test_a_look_in_phase_comes_within_the_interval_and_on_average_in_its_middle() -> None:
    push = marginal_s(replayed("push_cancel"))
    lags = []
    for start in range(8):
        trace = calls(1, 1)
        trace = trace.set_column(3, "prompt_tokens", pa.array([16 + 512 * start]))
        policy = resolve("poll_every_8")
        phase = replace(policy.cancellation, poll_lag="phase", poll_cost_s=0.0)
        last = int(
            simulate(trace, replace(policy, cancellation=phase), PROFILE)
            .executions["computed_output_tokens"][0]
            .as_py()
        )
        aborted = simulate(trace, resolve("push_cancel"), PROFILE).executions["computed_output_tokens"][0].as_py()
        lags.append(last - int(aborted))
    assert push > 0
    assert all(1 <= lag <= 8 for lag in lags)


def test_oracle_stops_in_mid_step_and_shortens_it() -> None:
    push, oracle = replayed("push_cancel", n=1), replayed("perfect_immediate_cancel", n=1)
    assert oracle.executions["end_s"][0].as_py() == LEAVES_S
    assert LEAVES_S < push.executions["end_s"][0].as_py() <= LEAVES_S + BASE_S + ROW_S
    busy = [int(r.replicas["busy_ns"][0].as_py()) for r in (oracle, push)]
    assert busy == [
        pytest.approx(LEAVES_S * 1e9, abs=2),
        pytest.approx(push.executions["end_s"][0].as_py() * 1e9, abs=2),
    ]
    assert marginal_s(replayed("perfect_immediate_cancel")) < marginal_s(replayed("push_cancel"))


def test_never_runs_to_the_end_and_better_handling_costs_less() -> None:
    never = replayed("no_cancel_handling")
    assert never.executions["ended"][0].as_py() == "finished"
    order = [
        "perfect_immediate_cancel",
        "push_cancel",
        *(f"poll_every_{k}" for k in (1, 2, 4, 8)),
        "no_cancel_handling",
    ]
    costs = [marginal_s(replayed(name)) for name in order]
    assert costs == sorted(costs)


@pytest.mark.parametrize("caching", [False, True])
def test_lazy_release_strands_the_blocks_for_its_delay(caching: bool) -> None:
    profile = replace(PROFILE, engine=replace(PROFILE.engine, prefix_caching=caching))
    prompt, lazy = (replayed(name, profile=profile) for name in ("push_cancel", "push_cancel_lazy_kv"))
    blocks = -(-(16 + prompt.executions["computed_output_tokens"][0].as_py()) // 16)
    more = {
        name: lazy.executions[name][0].as_py() - prompt.executions[name][0].as_py()
        for name in ("stranded_kv_ns", "stranded_kv_block_ns", "kv_block_ns")
    }
    delay = KV_RELEASE_DELAY_S * 1e9
    assert more["stranded_kv_ns"] == pytest.approx(delay, abs=2)
    assert more["stranded_kv_block_ns"] == pytest.approx(blocks * delay, abs=2 * blocks)
    assert more["kv_block_ns"] == pytest.approx(blocks * delay, abs=2 * blocks)


def test_a_small_pool_makes_others_wait_for_blocks_that_linger() -> None:
    small = replace(PROFILE, engine=replace(PROFILE.engine, num_blocks=30))

    def second_starts(policy: str, **knobs: Any) -> float:
        results = replayed(policy, n=2, profile=small, **knobs)
        return float(results.executions["admitted_s"][1].as_py())

    assert second_starts("push_cancel") == 0.0
    tight = replace(PROFILE, engine=replace(PROFILE.engine, num_blocks=28, max_num_seqs=1))
    prompt = replayed("push_cancel", n=2, profile=tight).executions["admitted_s"][1].as_py()
    lazy = replayed("push_cancel_lazy_kv", n=2, profile=tight, kv_release_delay_s=3.0).executions
    assert lazy["admitted_s"][1].as_py() == pytest.approx(prompt, abs=1e-9)
    assert lazy["preemptions"][1].as_py() == 0 or lazy["end_s"][1].as_py() > prompt


def test_without_repacking_the_slot_stays_a_row_for_the_outputs_that_were_left() -> None:
    push, held = replayed("push_cancel"), replayed("push_cancel_no_repack")
    left = 400 - held.executions["computed_output_tokens"][0].as_py()
    left -= 1  # the others are a token ahead of the one that was not read, and with the last of them the batch ends
    assert held.executions["held_slot_ns"][0].as_py() == pytest.approx(left * (BASE_S / 4 + ROW_S) * 1e9, rel=1e-6)
    slower = held.calls["end_s"][3].as_py() - push.calls["end_s"][3].as_py()
    assert slower == pytest.approx(left * ROW_S, rel=1e-6)


def test_a_held_slot_keeps_others_out() -> None:
    few = replace(PROFILE, engine=replace(PROFILE.engine, max_num_seqs=2))
    push, held = (replayed(name, n=3, profile=few) for name in ("push_cancel", "push_cancel_no_repack"))
    assert push.executions["admitted_s"][2].as_py() == pytest.approx(LEAVES_S, abs=2 * (BASE_S + 2 * ROW_S))
    assert held.executions["admitted_s"][2].as_py() == pytest.approx(400 * (BASE_S + 2 * ROW_S), rel=0.02)


def test_a_request_that_is_cancelled_in_the_queue_never_runs() -> None:
    one = replace(PROFILE, engine=replace(PROFILE.engine, max_num_seqs=1))
    for name, entry in CATALOGUE.items():
        if entry.family == "cancellation" and name != "no_cancel_handling":
            results = simulate(calls(3, 3, output=100).slice(0, 3), resolve(name), one)
            assert results.executions["ended"].to_pylist()[1:] == ["never_admitted"] * 2, name


def test_an_abort_makes_room_at_the_gateway_at_once_while_others_decode() -> None:
    """The second call keeps the gateway from sending the third; its user leaves before it is in the batch."""
    policy = Policy(
        name="held",
        client=Client(max_attempts=1),
        admission=Admission(hold_beyond_steps=0.0),
    )
    trace = calls(3, 2).set_column(2, "arrival_s", pa.array([0.0, 0.1, 0.101]))
    trace = trace.set_column(6, "user_cancel_s", pa.array([None, 0.0, None], pa.float64()))
    held = simulate(trace, policy, PROFILE).executions.to_pylist()[2]
    assert 0.1 < held["queued_s"] < 0.1 + BASE_S + ROW_S


@pytest.mark.timeout(60)
@pytest.mark.parametrize("detection", ["oracle", "push"])
def test_a_reader_leaves_an_engine_whose_steps_take_no_time(detection: str) -> None:
    trace = calls(1, 0).append_column("user_cancel_tokens", pa.array([5], pa.int32()))
    engine = replace(PROFILE.engine, mode="async")
    profile = replace(PROFILE, engine=engine, step_time=StepTime(knots_tokens=(1, 2), knots_s=(0.0, 0.001)))
    policy = replace(resolve("push_cancel"), client=Client(max_attempts=1))
    policy = replace(policy, cancellation=replace(policy.cancellation, detection=detection))
    ended = simulate(trace, policy, profile).calls.to_pylist()[0]
    assert (ended["outcome"], ended["user_cancel_tokens"]) == ("cancelled", 5)


def test_a_user_who_joins_a_stream_and_wants_no_more_than_it_has_leaves_at_once() -> None:
    """The first user would read 300 tokens; the second wants 2 of the same stream, and it has put out some 90."""
    trace = calls(2, 0).set_column(1, "content_id", pa.array([0, 0])).set_column(2, "arrival_s", pa.array([0.0, 1.0]))
    trace = trace.append_column("user_cancel_tokens", pa.array([300, 2], pa.int32()))
    policy = replace(resolve("coalesce"), client=Client(max_attempts=1))
    first, second = simulate(trace, policy, PROFILE).calls.to_pylist()
    assert first["end_s"] > 300 * (BASE_S + ROW_S)
    assert (second["outcome"], second["end_s"]) == ("cancelled", 1.0)
