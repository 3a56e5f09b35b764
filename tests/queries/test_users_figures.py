"""What became of the users' calls, and of their attempts: each query against a run worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from queries import run_query
from tests.queries.test_definitions import attempt
from tests.queries.test_figures import Query, Rows, call, execution, query, replica
from trace_schema.errors import BadConfig

__all__ = ["query"]
S = 1_000_000_000


def test_outcomes_count_a_seed_in_which_none_ended_so_as_zero(query: Query) -> None:
    failed = call(1, 2.0, None, "failed", reason="retries_exhausted")
    cells = {
        ("p", 0): {"calls": [call(0, 1.0, 2.0), failed, call(2, 3.0, 3.5, "cancelled"), call(3, 4.0, 5.0)]},
        ("p", 1): {"calls": [call(0, 1.0, 2.0), call(1, 2.0, 3.0), call(2, 3.0, 4.0), call(3, 4.0, 5.0)]},
    }
    rows = query("outcomes", cells)
    shown = [(r["outcome"], r["reason"], r["calls"], r["share"], r["share_low"], r["share_high"]) for r in rows]
    assert shown == [
        ("delivered", None, 3, 0.75, 0.5, 1.0),
        ("cancelled", None, 0.5, 0.125, 0.0, 0.25),
        ("failed", "retries_exhausted", 0.5, 0.125, 0.0, 0.25),
    ]


def test_outcomes_keep_the_reasons_of_failures_apart(query: Query) -> None:
    calls = [call(i, 1.0, None, "failed", reason=r) for i, r in enumerate(("rejected:too_long", "budget_exhausted"))]
    rows = query("outcomes", {("p", 0): {"calls": calls}})
    assert [(r["reason"], r["calls"]) for r in rows] == [("budget_exhausted", 1), ("rejected:too_long", 1)]


def test_latency_is_of_delivered_calls_by_phase_with_the_undelivered_beside_it(query: Query) -> None:
    calls = [
        call(0, 1.0, 2.0, first_token_s=1.5),
        call(1, 2.0, 5.0, first_token_s=4.5),
        call(2, 3.0, None, "failed", reason="retries_exhausted"),
        call(3, 12.0, 20.0, first_token_s=14.0),
    ]
    before, during = query("latency", {("p", 0): {"calls": calls}, ("p", 1): {"calls": calls}})
    assert (before["phase"], before["delivered"], before["undelivered"]) == ("before", 2, 1)
    assert (before["ttft_p50_s"], before["e2e_p50_s"]) == (1.5, 2.0)
    assert before["e2e_p95_s"] == 3.0
    assert (during["delivered"], during["undelivered"], during["ttft_p99_s"], during["e2e_p99_s"]) == (1, 0, 2.0, 8.0)


def test_goodput_counts_on_time_calls_and_their_tokens_over_the_whole_run(query: Query) -> None:
    calls = [call(0, 1.0, 2.0), call(1, 2.0, 9.0, output_tokens=30), call(2, 3.0, None, "failed")]
    two = [*replica(1), {**replica(1)[0], "replica": 1}]
    (row,) = query("goodput", {("p", 0): {"calls": calls, "replicas": two}})
    assert row["duration_s"] == 50.0
    assert (row["delivered_calls_per_s"], row["on_time_calls_per_s"]) == (2 / 50, 1 / 50)
    assert (row["delivered_output_tokens_per_s"], row["on_time_output_tokens_per_s"]) == (40 / 50, 10 / 50)
    assert row["on_time_calls_per_gpu_hour"] == pytest.approx(1 / 100 * 3600)


def test_goodput_has_its_range_over_seeds(query: Query) -> None:
    late = [call(0, 1.0, 9.0), call(1, 2.0, 3.0)]
    cells = {("p", seed): {"calls": calls, "replicas": replica(1)}
             for seed, calls in enumerate((late, [call(0, 1.0, 2.0), call(1, 2.0, 3.0)]))}  # fmt: skip
    (row,) = query("goodput", cells)
    assert (row["on_time_calls_per_s_low"], row["on_time_calls_per_s_high"]) == (1 / 50, 2 / 50)
    assert row["on_time_calls_per_s"] == pytest.approx(1.5 / 50)


@pytest.fixture
def costly() -> dict[str, Rows]:
    """Call 1 wastes most, call 2 tries most; 0 does neither."""
    calls = [call(0, 1.0, 2.0), call(1, 2.0, None, "failed", attempts=2), call(2, 3.0, 4.0, attempts=5)]
    executions = [
        execution(0, "delivered", attended_decode_ns=9 * S),
        execution(1, "lost", "aborted", attended_prefill_ns=3 * S, orphan_decode_ns=S),
        execution(2, "delivered", attended_decode_ns=S, poll_ns=S // 2),
        execution(3, "lost", "never_admitted", call_id=1, admitted_s=None, first_output_s=None),
    ]
    return {"calls": calls, "executions": executions}


def test_the_worst_calls_wasted_most(query: Query, costly: dict[str, Rows]) -> None:
    rows = query("worst_calls", {("p", 0): costly, ("p", 1): costly}, limit=2)
    assert [(r["place"], r["call_id"], r["wasted_gpu_s"]) for r in rows] == [(1, 1, 4.0), (2, 2, 0.5)]
    assert (rows[0]["attempts"], rows[0]["executions"], rows[0]["delivered_share"]) == (2, 1, 0.0)


def test_the_worst_calls_may_be_those_with_most_attempts(query: Query, costly: dict[str, Rows]) -> None:
    rows = query("worst_calls", {("p", 0): costly}, by="attempts")
    assert [r["call_id"] for r in rows] == [2, 1, 0]


def test_the_worst_calls_cannot_be_ordered_by_anything_else(query: Query, costly: dict[str, Rows]) -> None:
    with pytest.raises(BadConfig, match="worst_calls: by: size is neither waste nor attempts"):
        query("worst_calls", {("p", 0): costly}, by="size")


def test_a_parameter_that_is_no_number_is_named(run_directory: Path) -> None:
    with pytest.raises(BadConfig, match="parameter limit=many: is not a number"):
        run_query(str(run_directory), "worst_calls", {"limit": "many"})


def waiting(i: int, execution_id: int | None, end: float, outcome: str = "timeout") -> dict[str, Any]:
    return {**attempt(i, i, 0, 0, end, outcome), "execution_id": execution_id}


def test_timeouts_say_where_the_request_was(query: Query) -> None:
    times = {"queued_s": 1.0, "admitted_s": 4.0, "first_output_s": 6.0, "end_s": 9.0}
    executions = [execution(i, "lost", "aborted", **times) for i in range(3)]
    executions.append(execution(3, "lost", "finished", **times))
    executions.append(execution(4, "lost", "never_admitted", queued_s=1.0, admitted_s=None, first_output_s=None))
    attempts = [
        waiting(0, 0, 3.0),
        waiting(1, 1, 5.0),
        waiting(2, 2, 9.0),
        waiting(3, 3, 9.5),
        waiting(4, 4, 2.0),
        waiting(5, None, 2.0),
        waiting(6, 3, 9.0, "ok"),
    ]
    tables = {"executions": executions, "attempts": attempts, "replicas": replica(1)}
    rows = query("timeouts", {("p", 0): tables, ("p", 1): {"replicas": replica(1)}})
    shown = [(r["state"], r["timeouts"], r["share"], r["state_for_p50_s"]) for r in rows]
    assert shown == [
        ("no_execution", 0.5, 1 / 6, None),
        ("queued", 1.0, 2 / 6, 1.5),
        ("prefilling", 0.5, 1 / 6, 1.0),
        ("decoding", 0.5, 1 / 6, 3.0),
        ("answered", 0.5, 1 / 6, 0.5),
    ]


def test_timeouts_count_a_seed_without_any_of_a_state_as_zero(query: Query) -> None:
    queued = {"executions": [execution(0, "lost", "aborted", admitted_s=4.0, first_output_s=6.0)]}
    cells = {
        ("p", seed): {**queued, "attempts": [waiting(0, 0, end)], "replicas": replica(1)}
        for seed, end in enumerate((3.0, 5.0))
    }
    rows = query("timeouts", cells)
    assert [(r["state"], r["share"], r["share_low"], r["share_high"]) for r in rows] == [
        ("queued", 0.5, 0.0, 1.0),
        ("prefilling", 0.5, 0.0, 1.0),
    ]


def test_retry_success_is_told_for_each_number_of_the_attempt(query: Query) -> None:
    attempts = [
        attempt(0, 0, 0, 0, 1.0, "ok"),
        attempt(1, 1, 0, 1, 2.0, "timeout"),
        attempt(2, 1, 1, 2, 4.0, "timeout"),
        attempt(3, 2, 0, 3, 2.0, "cancelled"),
        attempt(4, 3, 0, 4, 2.0, "rejected"),
        attempt(5, 3, 1, 5, 3.0, "ok"),
    ]
    first, second = query("retry_success", {("p", 0): {"attempts": attempts, "replicas": replica(1)}})
    assert (first["attempt"], first["sent"], first["ok"], first["ok_rate"]) == (0, 4, 1, 0.25)
    assert (first["timed_out"], first["cancelled"], first["rejected"]) == (1, 1, 1)
    assert (second["attempt"], second["sent"], second["ok_rate"], second["timed_out"]) == (1, 2, 0.5, 1)


def test_tenants_are_told_apart_with_those_that_the_log_does_not_name(query: Query) -> None:
    calls = [call(0, 1.0, 2.0, attempts=3), call(1, 2.0, None, "failed")]
    executions = [
        execution(0, "delivered", attended_decode_ns=2 * S, poll_ns=S),
        execution(1, "lost", "aborted", attended_decode_ns=3 * S),
    ]
    acme, unnamed = query("tenants", {("p", 0): {"calls": calls, "executions": executions}})
    assert (acme["tenant"], acme["calls"], acme["delivered_call_rate"], acme["on_time_rate"]) == ("acme", 1, 1.0, 1.0)
    assert (acme["attempts_per_call"], acme["gpu_s"], acme["wasted_gpu_s"], acme["wasted_share"]) == (3, 3.0, 1.0, 0.25)
    assert (unnamed["tenant"], unnamed["delivered_call_rate"]) == (None, 0.0)
    assert (unnamed["gpu_s"], unnamed["wasted_share"]) == (3.0, 0.75)
