"""Policies beside each other, seed by seed: worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queries.test_figures import Query, Rows, call, execution, query, replica
from trace_schema.errors import BadConfig

__all__ = ["query"]
S = 1_000_000_000


def replayed(delivered: int, wasted_s: int, attempts: int = 1, latency_s: float = 1.0) -> dict[str, Rows]:
    """Four calls of which so many are delivered, on a replica that is busy for ten seconds."""
    calls = [
        call(i, 1.0, 1.0 + latency_s, attempts=attempts) if i < delivered else call(i, 1.0, None, "failed")
        for i in range(4)
    ]
    waste = [execution(0, "lost", "aborted", attended_decode_ns=wasted_s * S)]
    return {"calls": calls, "executions": waste, "replicas": replica(10)}


def cells() -> dict[tuple[str, int], dict[str, Rows]]:
    return {
        ("first", 0): replayed(1, 8),
        ("first", 1): replayed(2, 6),
        ("other", 0): replayed(4, 1, attempts=2),
        ("other", 1): replayed(4, 1, attempts=2, latency_s=3.0),
    }


def shown(row: dict[str, Any], figure: str) -> tuple[float, float, float]:
    return row[f"{figure}_difference"], row[f"{figure}_difference_low"], row[f"{figure}_difference_high"]


def test_seeds_show_each_replay(query: Query) -> None:
    rows = query("seeds", cells())
    assert [(r["policy"], r["seed"]) for r in rows] == [("first", 0), ("first", 1), ("other", 0), ("other", 1)]
    assert [r["delivered_call_rate"] for r in rows] == [0.25, 0.5, 1.0, 1.0]
    assert [r["on_time_rate"] for r in rows] == [0.25, 0.5, 1.0, 0.0]
    assert [r["wasted_compute_frac"] for r in rows] == [0.8, 0.6, 0.1, 0.1]
    assert [r["survivor_p95_s"] for r in rows] == [float("inf"), float("inf"), 1.0, 3.0]
    assert [r["attempts"] for r in rows] == [4, 4, 8, 8]
    assert (rows[0]["wasted_gpu_s"], rows[0]["busy_gpu_s"]) == (8.0, 10.0)


def test_policies_are_subtracted_seed_by_seed(query: Query) -> None:
    first, other = query("policy_differences", cells())
    assert (first["baseline"], other["baseline"], other["seeds"]) == ("first", "first", 2)
    assert shown(first, "delivered") == (0.0, 0.0, 0.0)
    assert shown(other, "delivered") == (0.625, 0.5, 0.75)
    assert shown(other, "wasted_gpu_s") == (-6.0, -7.0, -5.0)
    assert shown(other, "wasted_frac") == pytest.approx((-0.6, -0.7, -0.5))
    assert shown(other, "attempts") == (4.0, 4, 4)
    assert shown(other, "p95_s") == (None, None, None)


def test_the_log_s_own_policy_is_the_baseline_where_it_is_known(query: Query) -> None:
    rows = query("policy_differences", cells(), {"as_logged": "other"})
    assert {r["baseline"] for r in rows} == {"other"}
    assert shown(rows[1], "p95_s") == (0.0, 0.0, 0.0)


def test_any_policy_can_be_the_baseline_if_the_run_has_it(query: Query) -> None:
    rows = query("policy_differences", cells(), {"as_logged": "first"}, baseline="other")
    assert {r["baseline"] for r in rows} == {"other"}
    with pytest.raises(BadConfig, match="no policy of this run is called third"):
        query("policy_differences", cells(), baseline="third")


def test_seeds_that_only_one_of_the_two_has_are_left_out(query: Query) -> None:
    some = {key: tables for key, tables in cells().items() if key != ("first", 1)}
    _, other = query("policy_differences", some)
    assert (other["seeds"], other["delivered_difference"]) == (1, 0.75)
