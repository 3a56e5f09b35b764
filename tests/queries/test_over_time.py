"""The figures that are drawn over time, and the latency of those who stayed, against runs worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queries.test_definitions import attempt, sample
from tests.queries.test_figures import Query, Rows, call, query, replica

__all__ = ["query"]


def test_delivered_over_time_counts_calls_where_they_arrive(query: Query) -> None:
    calls = [call(0, 1.0, 2.0), call(1, 2.0, 9.0), call(2, 3.0, None, "failed"), call(3, 25.0, 26.0)]
    calls.append(call(4, 26.0, None, "cancelled", eligible=False))
    better = [c if c["call_id"] != 2 else call(2, 3.0, 4.0) for c in calls]
    first, last = query("delivered_over_time", {("p", 0): {"calls": calls}, ("p", 1): {"calls": better}}, bin_s=10)
    assert (first["start_s"], first["end_s"], first["arrivals"]) == (0, 10, 3)
    assert (first["delivered"], first["on_time"]) == (2.5, 1.5)
    assert (first["delivered_rate_low"], first["delivered_rate_high"]) == (pytest.approx(2 / 3), 1)
    assert (last["start_s"], last["arrivals"], last["delivered_rate"]) == (20, 1, 1)


@pytest.mark.parametrize(("calls", "seconds", "width_s"), [(2000, 59.0, 1), (2000, 61.0, 2), (80, 60.0, 10)])
def test_bins_are_round_few_and_not_nearly_empty(query: Query, calls: int, seconds: float, width_s: float) -> None:
    rows = [call(i, seconds * i / (calls - 1), None, "failed") for i in range(calls)]
    bins = query("delivered_over_time", {("p", 0): {"calls": rows}})
    assert {r["end_s"] - r["start_s"] for r in bins} == {width_s}
    assert sum(r["arrivals"] for r in bins) == calls


def two_replicas(at: float, waiting: tuple[int, int], used: int) -> Rows:
    return [{**sample(at, waiting=w, running=1, used_blocks=used), "replica": k} for k, w in enumerate(waiting)]


def test_queue_over_time_adds_the_replicas_up(query: Query) -> None:
    long = [*two_replicas(1.0, (3, 5), 100), *two_replicas(2.0, (5, 7), 100), *two_replicas(11.0, (1, 1), 50)]
    short = two_replicas(1.0, (0, 0), 0)
    tables: Any = {"calls": [call(0, 1.0, 2.0)], "replicas": replica(1)}
    cells = {("p", 0): {**tables, "timeline": long}, ("p", 1): {**tables, "timeline": short}}
    first, later = query("queue_over_time", cells, bin_s=10)
    assert (first["waiting"], first["waiting_low"], first["waiting_high"]) == (5, 0, 10)
    assert (first["running"], first["used_kv_share"]) == (2, 0.5)
    assert (later["start_s"], later["waiting"], later["waiting_low"], later["used_kv_share"]) == (10, 1, 0, 0.25)


def test_retries_over_time_tells_first_tries_from_later_ones(query: Query) -> None:
    attempts = [attempt(0, 0, 0, 0, 2.0, "timeout"), {**attempt(1, 0, 1, 0, 14.0, "timeout"), "start_s": 3.0},
                {**attempt(2, 0, 2, 0, 16.0, "ok"), "start_s": 15.0}]  # fmt: skip
    cells = {("p", 0): {"calls": [call(0, 0.0, 16.0)], "attempts": attempts, "replicas": replica(1)}}
    first, later = query("retries_over_time", cells, bin_s=10)
    assert (first["first"], first["retries"], first["timeouts"]) == (1, 1, 1)
    assert (later["first"], later["retries"], later["timeouts"]) == (0, 1, 1)


STAYED = [call(0, 0.0, 1.0), call(1, 1.0, 4.0), call(2, 2.0, 42.0), call(3, 3.0, None, "failed"),
          call(4, 4.0, 4.1, user_cancel_s=9.0)]  # fmt: skip


def test_survivor_latency_counts_the_undelivered_as_infinite(query: Query) -> None:
    (row,) = query("survivor_latency", {("p", 0): {"calls": STAYED}, ("p", 1): {"calls": STAYED}})
    assert (row["calls"], row["undelivered"], row["undelivered_share"]) == (4, 1, 0.25)
    assert (row["p50_s"], row["p95_s"]) == (3.0, float("inf"))


def test_the_curve_of_survivors_ends_below_one_where_some_were_not_served(query: Query) -> None:
    rows = query("survivor_latency_curve", {("p", 0): {"calls": STAYED}})
    assert [(r["within_s"], r["delivered_share"]) for r in rows] == [
        (1, 0.25), (2, 0.25), (5, 0.5), (10, 0.5), (20, 0.5), (30, 0.5), (60, 0.75),
    ]  # fmt: skip


def test_there_is_no_curve_where_nothing_was_delivered(query: Query) -> None:
    assert query("survivor_latency_curve", {("p", 0): {"calls": [call(0, 0.0, None, "failed")]}}) == []
