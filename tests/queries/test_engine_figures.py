"""What the GPUs' time went into, and what it cost: each query against a run worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queries.test_definitions import attempt
from tests.queries.test_figures import Query, Rows, call, execution, query, replica

__all__ = ["query"]
S = 1_000_000_000


def test_a_delivered_call_costs_all_busy_time_the_wasted_too(query: Query) -> None:
    calls = [call(0, 1.0, 2.0), call(1, 2.0, 3.0), call(2, 3.0, None, "failed")]
    executions = [
        execution(0, "delivered", attended_decode_ns=6 * S),
        execution(2, "lost", "aborted", attended_decode_ns=3 * S, recompute_ns=S),
    ]
    tables = {"calls": calls, "executions": executions, "replicas": replica(10)}
    (row,) = query("gpu_cost_per_delivered_call", {("p", 0): tables}, gpu_hour_price=3.6)
    assert (row["delivered"], row["gpu_s_per_delivered_call"]) == (2, 5.0)
    assert (row["useful_gpu_s_per_delivered_call"], row["wasted_gpu_s_per_delivered_call"]) == (3.0, 2.0)
    assert row["price_per_1000_delivered_calls"] == pytest.approx(5.0)


def test_a_run_that_delivers_nothing_has_no_cost_of_a_call(query: Query) -> None:
    (row,) = query("gpu_cost_per_delivered_call", {("p", 0): {"calls": [call(0, 1.0, None, "failed")],
                                                            "replicas": replica(3)}})  # fmt: skip
    assert (row["delivered"], row["gpu_s_per_delivered_call"], row["price_per_1000_delivered_calls"]) == (0, None, None)


def test_the_cost_of_a_call_has_its_range_over_seeds(query: Query) -> None:
    cells = {("p", seed): {"calls": [call(0, 1.0, 2.0)], "replicas": replica(busy)} for seed, busy in enumerate((2, 4))}
    (row,) = query("gpu_cost_per_delivered_call", cells)
    shown = [row[f"gpu_s_per_delivered_call{end}"] for end in ("", "_low", "_high")]
    assert shown == [3.0, 2.0, 4.0]


def test_prefix_cache_counts_hits_of_executions_that_ran_and_what_was_salvaged(query: Query) -> None:
    executions = [
        execution(0, "delivered", cached_prompt_tokens=80),
        execution(1, "lost", "aborted", attended_prefill_ns=4 * S, salvaged_ns=S),
        execution(2, "lost", "never_admitted", admitted_s=None, first_output_s=None),
    ]
    (row,) = query("prefix_cache", {("p", 0): {"executions": executions}})
    assert (row["executions"], row["prompt_tokens"], row["cached_prompt_tokens"]) == (2, 200, 80)
    assert (row["hit_rate"], row["hit_rate_low"], row["hit_rate_high"]) == (0.4, 0.4, 0.4)
    assert (row["abandoned_gpu_s"], row["salvaged_gpu_s"], row["salvaged_frac"]) == (4.0, 1.0, 0.25)


def test_preemptions_are_counted_and_their_cost_is_a_share_of_busy_time(query: Query) -> None:
    executions = [
        execution(0, "delivered", preemptions=3, recomputed_tokens=500, recompute_ns=2 * S),
        execution(1, "delivered"),
        execution(2, "lost", "never_admitted", admitted_s=None, first_output_s=None),
    ]
    calm = {"executions": executions[1:], "replicas": replica(5)}
    cells = {("p", 0): {"executions": executions, "replicas": replica(8)}, ("p", 1): calm}
    (row,) = query("preemptions", cells)
    assert (row["preemptions"], row["preempted_executions"], row["recomputed_tokens"]) == (1.5, 0.5, 250)
    assert (row["preempted_share"], row["preempted_share_low"], row["preempted_share_high"]) == (0.25, 0.0, 0.5)
    assert (row["recompute_gpu_s"], row["recompute_frac"]) == (1.0, 0.125)


def test_duplicates_are_calls_run_again_and_coalescing_spares_them(query: Query) -> None:
    executions = [
        execution(0, "delivered"),
        execution(1, "duplicate", call_id=0, attended_decode_ns=2 * S),
        execution(2, "lost", call_id=1, orphan_decode_ns=S),
        execution(3, "lost", "aborted", call_id=1),
        execution(4, "lost", "never_admitted", call_id=1, admitted_s=None, first_output_s=None),
    ]
    attempts = [
        {**attempt(i, 0, i, 0, 9.0, outcome), "joined": joined}
        for i, (joined, outcome) in enumerate(((False, "timeout"), (True, "timeout"), (True, "ok")))
    ]
    calls = [call(0, 1.0, 9.0), call(1, 2.0, None, "failed"), call(2, 3.0, None, "failed", reason="rejected:too_long")]
    tables = {"calls": [*calls, call(3, 4.0, 5.0)], "executions": executions, "attempts": attempts}
    (row,) = query("duplicates", {("p", 0): tables})
    assert (row["calls"], row["executions"], row["executions_per_call"], row["calls_run_again"]) == (4, 4, 1.0, 2)
    assert (row["finished_for_nobody"], row["finished_for_nobody_gpu_s"]) == (2, 3.0)
    assert (row["joined_attempts"], row["joined_and_delivered"]) == (2, 1)


def test_replica_balance_shows_each_replicas_share(query: Query) -> None:
    executions = [execution(0, "delivered"), execution(1, "delivered", replica=1), execution(2, "lost", replica=1)]
    replicas = [{**replica(10)[0]}, {**replica(30)[0], "replica": 1}]
    first, second = query("replica_balance", {("p", 0): {"executions": executions, "replicas": replicas}})
    assert (first["replica"], first["executions"], first["busy_gpu_s"]) == (0, 1, 10.0)
    assert (first["utilisation"], first["busy_share"]) == (0.2, 0.25)
    assert (second["replica"], second["executions"], second["busy_share"]) == (1, 2, 0.75)


def sample(at: float, running: int, waiting: int, blocks: int) -> dict[str, Any]:
    zero = dict.fromkeys(
        ("busy_ns", "computed_prompt_tokens", "computed_output_tokens", "counter_prompt_tokens", "preemptions"), 0
    )
    return {"sample_s": at, "replica": 0, "running": running, "waiting": waiting, "used_blocks": blocks, **zero}


def test_occupancy_is_the_mean_and_the_most_of_each_phase(query: Query) -> None:
    timeline = [sample(1.0, 2, 0, 10), sample(2.0, 4, 6, 30), sample(10.0, 8, 50, 90)]
    before, during = query("occupancy", {("p", 0): {"timeline": timeline}})
    assert (before["phase"], before["running_mean"], before["running_max"]) == ("before", 3.0, 4)
    assert (before["waiting_mean"], before["waiting_max"]) == (3.0, 6)
    assert (before["used_blocks_mean"], before["used_blocks_max"]) == (20.0, 30)
    assert (during["phase"], during["waiting_max"]) == ("during", 50)


def test_wasted_by_prompt_length_sorts_calls_by_powers_of_two(query: Query) -> None:
    calls = [
        call(0, 1.0, 2.0, prompt_tokens=1024),
        call(1, 2.0, None, "failed", prompt_tokens=2047),
        call(2, 3.0, 4.0, prompt_tokens=2048),
        call(3, 4.0, None, "failed", reason="rejected:too_long", prompt_tokens=1500, eligible=False),
    ]
    executions = [
        execution(0, "delivered", attended_decode_ns=3 * S, poll_ns=S),
        execution(1, "lost", "aborted", attended_decode_ns=4 * S),
        execution(2, "delivered", attended_decode_ns=2 * S),
    ]
    short, long = query("wasted_by_prompt_length", {("p", 0): {"calls": calls, "executions": executions}})
    assert (short["prompt_tokens_from"], short["prompt_tokens_below"], short["calls"]) == (1024, 2048, 3)
    assert short["delivered_call_rate"] == 0.5
    assert (short["gpu_s"], short["wasted_gpu_s"], short["wasted_frac"]) == (8.0, 5.0, 0.625)
    assert (long["prompt_tokens_from"], long["calls"], long["gpu_s"], long["wasted_gpu_s"]) == (2048, 1, 2.0, 0.0)


def cancelled_run(marginal_s: float, poll_s: float = 0.0) -> dict[str, Rows]:
    """Call 0 is delivered, the user of call 1 leaves."""
    executions = [
        execution(0, "delivered", marginal_ns=50 * S, poll_ns=int(poll_s * S)),
        execution(1, "lost", "aborted", marginal_ns=int(marginal_s * S)),
    ]
    return {"calls": [call(0, 1.0, 2.0), call(1, 1.0, 1.5, "cancelled")], "executions": executions}


def test_the_recovery_score_is_what_noticing_saves_less_its_polls(query: Query) -> None:
    cells = {
        ("no_cancel_handling", 0): cancelled_run(10.0),
        ("no_cancel_handling", 1): cancelled_run(12.0),
        ("poll_every_4", 0): cancelled_run(2.0, poll_s=0.5),
        ("poll_every_4", 1): cancelled_run(2.0, poll_s=0.5),
    }
    unhandled, polled = query("recovery_score", cells)
    assert (unhandled["recovery_score_ms"], unhandled["cancelled"]) == (0.0, 1)
    assert (polled["marginal_gpu_ms"], polled["poll_gpu_ms"]) == (2000.0, 500.0)
    shown = [polled[f"recovery_score_ms{end}"] for end in ("", "_low", "_high")]
    assert shown == [8500.0, 7500.0, 9500.0]


def test_without_no_cancel_handling_there_is_no_recovery_score(query: Query) -> None:
    (row,) = query("recovery_score", {("push_cancel", 0): cancelled_run(2.0)})
    assert (row["cancelled"], row["recovery_score_ms"], row["recovery_score_ms_low"]) == (1, None, None)
