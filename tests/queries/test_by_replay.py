"""The figures of single replays behind the studies, against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from queries import run_query
from tests.queries.test_definitions import attempt
from tests.queries.test_figures import Rows, call, execution, recovering, replica, write_run

S = 1_000_000_000


def left(i: int, **more: Any) -> dict[str, Any]:
    """A call whose user leaves while it is answered."""
    return call(i, 1.0, 2.0, "cancelled", user_cancel_s=1.0, output_tokens=100, **more)


def stopped(i: int, waste_s: float, marginal_s: float, outputs: int, **more: Any) -> dict[str, Any]:
    """What ran for it: GPU seconds spent after its user had left, and by how much it lengthened steps."""
    charges = {"orphan_decode_ns": int(waste_s * S), "marginal_ns": int(marginal_s * S)}
    ended = "finished" if outputs == 100 else "aborted"
    return execution(i, "user_cancelled_stream", ended, computed_output_tokens=outputs, **charges, **more)


@pytest.fixture
def handled(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Two calls whose users leave and one that stays, under three policies."""
    calls = [left(0), left(1), call(2, 1.0, 5.0)]
    none = [stopped(0, 6, 6, 100), stopped(1, 2, 2, 100), execution(2, "delivered")]
    push = [stopped(0, 0, 1, 50), stopped(1, 0, 1, 95), execution(2, "delivered")]
    poll = [
        stopped(0, 0.5, 1.25, 54, poll_ns=S // 10),
        stopped(1, 0.25, 1.25, 99),
        execution(2, "delivered", poll_ns=S // 10),
    ]
    cells: dict[tuple[str, int], dict[str, Rows]] = {
        (policy, 0): {"calls": calls, "executions": executions, "replicas": replica(20)}
        for policy, executions in (("no_cancel_handling", none), ("push_cancel", push), ("poll_every_4", poll))
    }
    run = write_run(tmp_path / "run", cells)
    return {row["policy"]: row for row in run_query(run, "cancellation_by_replay").to_pylist()}


def test_waste_saved_is_what_is_no_longer_computed_for_nobody(handled: dict[str, dict[str, Any]]) -> None:
    assert [handled[p]["post_cancel_gpu_ms"] for p in handled] == [8000, 0, 750]
    assert [handled[p]["waste_saved_gpu_ms"] for p in handled] == [0, 8000, 7250]
    assert [handled[p]["gap_to_push_gpu_ms"] for p in handled] == [8000, 0, 750]


def test_the_recovery_score_is_marginal_and_net_of_polls(handled: dict[str, dict[str, Any]]) -> None:
    assert [handled[p]["recovery_score_ms"] for p in handled] == pytest.approx([0, 6000, 5500 - 200])


def test_the_gap_while_decoding_leaves_out_calls_that_were_almost_done(handled: dict[str, dict[str, Any]]) -> None:
    assert [handled[p]["decoding_cancels"] for p in handled] == [1, 1, 1]
    assert handled["poll_every_4"]["decoding_gap_gpu_ms"] == 500


def test_survivors_are_those_who_stay(handled: dict[str, dict[str, Any]]) -> None:
    assert {row["survivor_mean_s"] for row in handled.values()} == {4.0}
    assert {row["cancelled"] for row in handled.values()} == {2}


def test_without_the_baseline_nothing_is_saved_of_it(tmp_path: Path) -> None:
    tables = {"calls": [left(0)], "executions": [stopped(0, 0, 1, 50)], "replicas": replica(1)}
    (row,) = run_query(write_run(tmp_path / "run", {("p", 0): tables}), "cancellation_by_replay").to_pylist()
    assert (row["waste_saved_gpu_ms"], row["recovery_score_ms"], row["gap_to_push_gpu_ms"]) == (None, None, None)


def test_a_replay_recovers_as_the_query_of_all_seeds_has_it(tmp_path: Path) -> None:
    cells = {("p", seed): {"calls": recovering(60.0), "replicas": replica(9)} for seed in (0, 1)}
    run = write_run(tmp_path / "run", cells)
    (together,) = run_query(run, "recovery", {"share": 1.0}).to_pylist()
    for row in run_query(run, "overload_by_replay", {"share": 1.0}).to_pylist():
        assert (row["recovered"], row["recovery_s"]) == (True, together["recovery_time_s"])
        assert row["delivered_since"] == together["delivered_call_rate"]


def test_the_backlog_is_who_has_come_and_not_ended_at_the_overloads_end(tmp_path: Path) -> None:
    calls = [call(0, 1.0, 2.0), call(1, 12.0, 19.0), call(2, 13.0, 21.5), call(3, 19.0, 26.0), call(4, 22.0, 40.0)]
    run = write_run(tmp_path / "run", {("p", 0): {"calls": calls, "replicas": replica(9)}})
    (row,) = run_query(run, "overload_by_replay").to_pylist()
    assert (row["backlog_calls"], row["drain_s"]) == (2, 6.0)
    assert row["recovered"] is None


def test_the_cancel_window_of_a_replay_is_of_retries_alone(tmp_path: Path) -> None:
    tables = {
        "calls": [call(0, 1.0, None, "failed"), call(1, 1.0, None, "failed")],
        "executions": [execution(i, "lost", "aborted", admitted_s=1.0 + i) for i in range(2)],
        "attempts": [attempt(0, 0, 0, 0, 9.0, "timeout"), attempt(1, 1, 1, 1, 2.5, "timeout")],
        "replicas": replica(9),
    }
    (row,) = run_query(write_run(tmp_path / "run", {("p", 0): tables}), "overload_by_replay").to_pylist()
    assert row["cancel_window_s"] == 0.5
