"""What holds on every run, whatever the knobs. The numbers are those of ARCHITECTURE.md."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from replay.engine import Results, simulate
from replay.errors import RunFailed
from replay.policies.catalogue import CATALOGUE, resolve
from replay.policies.knobs import Admission, Client, Network, Policy, RetryBudget, Throttle
from tests.engine.scenarios import Scenario, scenarios

RUNS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
TABLES = ("calls", "attempts", "executions", "timeline", "replicas")
CHARGES = (
    "attended_prefill_ns",
    "attended_decode_ns",
    "orphan_prefill_ns",
    "orphan_decode_ns",
    "recompute_ns",
    "poll_ns",
    "held_slot_ns",
)


def replayed(scenario: Scenario, **changes: Any) -> Results:
    arguments = {"policy": scenario.policy, "fleet": scenario.fleet, "seed": scenario.seed, **changes}
    return simulate(scenario.table, profile=scenario.profile, **arguments)


@RUNS
@given(scenarios())
def test_1_every_call_has_one_outcome(scenario: Scenario) -> None:
    calls = replayed(scenario).calls.to_pylist()
    assert len(calls) == len(scenario.calls)
    for call in calls:
        assert call["outcome"] in ("delivered", "cancelled", "failed")
        assert (call["reason"] is not None) == (call["outcome"] == "failed")
        assert call["end_s"] >= call["arrival_s"]


@RUNS
@given(scenarios())
def test_2_every_attempt_ends_once_and_is_numbered(scenario: Scenario) -> None:
    results = replayed(scenario)
    counts: Counter[int] = Counter()
    for attempt in results.attempts.to_pylist():
        assert attempt["outcome"] in ("ok", "timeout", "cancelled", "rejected", "superseded")
        assert attempt["attempt"] == counts[attempt["call_id"]]
        counts[attempt["call_id"]] += 1
        assert attempt["attempt"] < scenario.policy.client.max_attempts
    assert [counts[c["call_id"]] for c in results.calls.to_pylist()] == results.calls["attempts"].to_pylist()


@RUNS
@given(scenarios())
def test_3_charges_add_up_to_busy_time(scenario: Scenario) -> None:
    results = replayed(scenario)
    charged = sum(int(np.asarray(results.executions[name]).sum()) for name in CHARGES)
    busy = int(np.asarray(results.replicas["busy_ns"]).sum())
    assert abs(charged - busy) <= 1e-9 * busy + len(CHARGES) * results.executions.num_rows + scenario.fleet.replicas


@RUNS
@given(scenarios())
def test_4_after_a_drain_every_block_is_back(scenario: Scenario) -> None:
    replicas = replayed(scenario).replicas
    assert replicas["allocated_blocks"].to_pylist() == replicas["released_blocks"].to_pylist()
    assert set(replicas["unfinished"].to_pylist()) == {0}


@RUNS
@given(scenarios())
def test_5_time_never_goes_back(scenario: Scenario) -> None:
    results = replayed(scenario, steps=True)
    for attempt in results.attempts.to_pylist():
        instants = [attempt[name] for name in ("start_s", "first_token_s", "end_s") if attempt[name] is not None]
        assert instants == sorted(instants)
    for execution in results.executions.to_pylist():
        names = ("queued_s", "admitted_s", "first_output_s", "end_s")
        instants = [execution[name] for name in names if execution[name] is not None]
        assert instants == sorted(instants)
    free_at: dict[int, float] = {}
    assert results.steps is not None
    for step in results.steps.to_pylist():
        assert step["start_s"] >= free_at.get(step["replica"], 0.0) - 1e-12
        free_at[step["replica"]] = step["start_s"] + step["duration_s"]


@RUNS
@given(scenarios())
def test_6_equal_inputs_give_equal_tables(scenario: Scenario) -> None:
    one, other = replayed(scenario), replayed(scenario)
    for name in TABLES:
        assert getattr(one, name).equals(getattr(other, name)), name


@RUNS
@given(scenarios())
def test_7_with_neutral_knobs_all_policies_are_one(scenario: Scenario) -> None:
    base = Policy(name="base", client=Client(timeout_s=None), network=scenario.policy.network)
    patience = {"user_cancel_s": None, "user_cancel_tokens": None, "idempotency_key": None}
    calls = [{**call, **patience, "content_id": i} for i, call in enumerate(scenario.calls)]
    patient = Scenario(calls, base, scenario.profile, scenario.fleet, scenario.seed)
    first, *others = [replayed(patient, policy=neutral(resolve(name, base))) for name in CATALOGUE]
    for other in others:
        for name in TABLES:
            assert getattr(first, name).equals(getattr(other, name)), name


def neutral(policy: Policy) -> Policy:
    """The policy with neutral values of the knobs that act without impatience: admission, and looks that cost time."""
    cancellation = msgspec.structs.replace(policy.cancellation, poll_cost_s=0.0)
    return msgspec.structs.replace(policy, cancellation=cancellation, admission=Admission(), throttle=None)


@RUNS
@given(scenarios())
def test_8_no_policy_shifts_the_draws_of_another(scenario: Scenario) -> None:
    waits: dict[tuple[int, int], float] = {}
    client = msgspec.structs.replace(scenario.policy.client, timeout_s=0.05, max_attempts=4, hedge_after_s=None)
    base = msgspec.structs.replace(scenario.policy, client=client)
    for name in ("cancel", "no_cancel", "coalesce"):
        ends: dict[int, float] = {}
        for attempt in replayed(scenario, policy=resolve(name, base)).attempts.to_pylist():
            call, number = attempt["call_id"], attempt["attempt"]
            if number > 0:
                wait = attempt["start_s"] - ends[call]
                assert waits.setdefault((call, number), wait) == pytest.approx(wait, abs=1e-9)
            ends[call] = attempt["end_s"]


@RUNS
@given(scenarios())
def test_9_a_delivered_call_has_one_execution_that_delivered_it(scenario: Scenario) -> None:
    results = replayed(scenario)
    fates = results.executions["fate"].to_pylist()
    for call in results.calls.to_pylist():
        assert (call["delivered_execution_id"] is not None) == (call["outcome"] == "delivered")
        if call["delivered_execution_id"] is not None:
            assert fates[call["delivered_execution_id"]] == "delivered"


EXTREMES = {
    "zero_timeout": {"timeout_s": 0.0, "max_attempts": 50, "backoff_base_s": 0.0},
    "no_backoff": {"timeout_s": 0.01, "max_attempts": 200, "backoff_base_s": 0.0, "backoff_jitter": 1.0},
    "no_waiting": {"timeout_s": 1e-9, "max_attempts": 3, "backoff_base_s": 1e-9},
}


@pytest.mark.parametrize("name", list(CATALOGUE))
@pytest.mark.parametrize("knobs", EXTREMES.values(), ids=list(EXTREMES))
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios())
def test_extreme_clients_end_and_lose_no_call(name: str, knobs: dict[str, Any], scenario: Scenario) -> None:
    policy = resolve(name, Policy(name="base", client=Client(**knobs), budget=scenario.policy.budget))
    results = replayed(scenario, policy=policy)
    assert set(results.calls["outcome"].to_pylist()) <= {"delivered", "cancelled", "failed"}
    assert all(attempts >= 1 for attempts in results.calls["attempts"].to_pylist())


HOSTILE = {
    "a budget of nothing": {"budget": RetryBudget(initial=0.0, cap=0.0), "throttle": Throttle()},
    "a queue of nothing": {"admission": Admission(max_queued_requests=0)},
    "a queue of nothing at the gateway": {"admission": Admission(max_queued_requests=0, hold_beyond_steps=0.0)},
    "cancels that never arrive in time": {"network": Network(cancel_s=1e6)},
    "hedges without patience": {"client": Client(timeout_s=0.05, hedge_after_s=0.0, max_attempts=9)},
    "a deadline of nothing": {"client": Client(deadline_s=0.0)},
}


@pytest.mark.parametrize("knobs", HOSTILE.values(), ids=list(HOSTILE))
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios())
def test_extreme_operators_end_and_lose_no_call(knobs: dict[str, Any], scenario: Scenario) -> None:
    results = replayed(scenario, policy=msgspec.structs.replace(scenario.policy, **knobs))
    assert len(results.calls) == len(scenario.calls)
    assert set(results.calls["outcome"].to_pylist()) <= {"delivered", "cancelled", "failed"}


@RUNS
@given(scenarios())
def test_when_every_user_leaves_at_once_nothing_is_delivered_and_all_is_counted(scenario: Scenario) -> None:
    calls = [{**call, "user_cancel_s": 0.0} for call in scenario.calls]
    gateway = msgspec.structs.replace(scenario.policy.gateway, coalesce=False)  # a kept result answers at once
    policy = msgspec.structs.replace(scenario.policy, gateway=gateway)
    leavers = Scenario(calls, policy, scenario.profile, scenario.fleet, scenario.seed)
    outcomes = replayed(leavers).calls["outcome"].to_pylist()
    assert len(outcomes) == len(calls)
    assert set(outcomes) <= {"cancelled", "failed"}


@pytest.mark.slow
@settings(max_examples=1, deadline=None)
@given(scenario=scenarios())
def test_clients_that_retry_without_end_are_stopped(scenario: Scenario) -> None:
    client = Client(timeout_s=0.0, max_attempts=10**9, backoff_base_s=0.0)
    calls = [{**scenario.calls[0], "user_cancel_s": None, "prompt_tokens": 1, "output_tokens": 1}]
    endless = Scenario(calls, Policy(name="endless", client=client), scenario.profile, scenario.fleet, 0)
    with pytest.raises(RunFailed, match="clients retry without end"):
        replayed(endless)
