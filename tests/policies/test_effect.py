"""Policies that a trace cannot tell apart: found without a replay, and equal to the byte in one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from replay.engine import simulate
from replay.policies.catalogue import CATALOGUE, resolve
from replay.policies.effect import Traffic, told_apart
from replay.policies.knobs import Admission, Client, Policy
from tests.engine.scenarios import Scenario, scenarios

TABLES = ("calls", "attempts", "executions", "timeline", "replicas")


def families(base: Policy) -> list[list[Policy]]:
    kinds = dict.fromkeys(entry.family for entry in CATALOGUE.values())
    return [[resolve(name, base) for name, entry in CATALOGUE.items() if entry.family == kind] for kind in kinds]


def names(traffic: Traffic, client: Client | None = None) -> list[str]:
    kept, _ = told_apart(families(Policy(name="base", client=client or Client())), traffic)
    return [policy.name for policy in kept]


def test_without_timeouts_and_leavers_one_policy_stands_for_all_that_hold_no_queue() -> None:
    left = names(Traffic(timeouts=False, leavers=False, repeats=False))
    assert len([name for name in left if resolve(name).admission == Admission()]) == 1


def test_a_timeout_that_the_client_sets_counts_as_one_of_the_trace() -> None:
    quiet = Traffic(timeouts=False, leavers=False, repeats=False)
    assert names(quiet, Client(timeout_s=3.0)) == list(CATALOGUE)


def test_what_refusals_tell_is_nothing_to_clients_that_do_not_listen_or_are_not_refused() -> None:
    busy = Traffic(timeouts=True, leavers=False, repeats=False)

    def apart(max_queued_requests: int | None, **client: Any) -> int:
        told = [Admission(max_queued_requests=max_queued_requests, retry_after_s=s) for s in (None, 5.0)]
        found = [Policy(name=str(k), client=Client(**client), admission=a) for k, a in enumerate(told)]
        return len(told_apart([found], busy)[0])

    assert apart(3) == 2
    assert apart(None) == 1
    assert apart(3, heeds_retry_after=False) == 1
    assert apart(3, max_attempts=1) == 1
    assert apart(3, retries_rejections=False) == 1


def test_with_leavers_alone_retries_make_no_difference() -> None:
    found = names(Traffic(timeouts=False, leavers=True, repeats=False))
    assert "no_cancel" in found
    assert "retry_budget" not in found
    assert "coalesce_cancel" not in found
    assert {name for name, entry in CATALOGUE.items() if entry.family == "cancellation"} <= set(found)


def test_without_cancels_no_policy_of_their_handling_is_left() -> None:
    found = names(Traffic(timeouts=False, leavers=False, repeats=True))
    assert not [name for name in found if CATALOGUE[name].family == "cancellation"]


def test_what_stands_for_what_is_told_and_the_logs_own_is_kept() -> None:
    policies = [[resolve(name) for name in ("no_retry", "cancel", "retry_budget")]]
    quiet = Traffic(timeouts=False, leavers=False, repeats=False)
    assert told_apart(policies, quiet)[1] == [("no_retry", ["cancel", "retry_budget"])]
    assert [p.name for p in told_apart(policies, quiet, own="cancel")[0]] == ["no_retry", "cancel"]


def without_cost(policy: Policy) -> Policy:
    """The policy whose looks for cancels cost nothing, which is all that they do where there are none."""
    return replace(policy, cancellation=replace(policy.cancellation, poll_cost_s=0.0))


@pytest.mark.parametrize("kind", ["timeouts", "leavers", "neither"])
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios())
def test_policies_that_are_not_told_apart_give_equal_results(kind: str, scenario: Scenario) -> None:
    calls = [{**call, "client_timeout_s": 0.2 if kind == "timeouts" else None} for call in scenario.calls]
    if kind != "leavers":
        calls = [{**call, "user_cancel_s": None} for call in calls]
    trace = Scenario(calls, scenario.policy, scenario.profile, scenario.fleet, scenario.seed).table
    empty = {"idempotency_key": pa.string(), "client_timeout_s": pa.float64(), "user_cancel_s": pa.float64()}
    for name, type_ in empty.items():
        values = trace[name].cast(type_) if name in trace.column_names else pa.nulls(trace.num_rows, type_)
        place = trace.column_names.index(name) if name in trace.column_names else trace.num_columns
        trace = (
            trace.append_column(name, values) if place == trace.num_columns else trace.set_column(place, name, values)
        )
    base = Policy(name="base", network=scenario.policy.network)
    found = families(base)
    policies = {policy.name: without_cost(policy) for family in found for policy in family}
    _, same = told_apart(found, Traffic.of(trace))
    for first, others in same:
        expected = simulate(trace, policies[first], scenario.profile, scenario.fleet, scenario.seed)
        for other in others:
            found = simulate(trace, policies[other], scenario.profile, scenario.fleet, scenario.seed)
            assert all(getattr(found, name).equals(getattr(expected, name)) for name in TABLES), (first, other)
