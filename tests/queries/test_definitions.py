"""The words of the figures' definitions, one by one, each against a run worked out by hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from queries import load, names, run_query
from tests.queries.test_figures import call, execution, recovering, replica, write_run

Rows = list[dict[str, Any]]
Query = Callable[..., Rows]
S = 1_000_000_000


@pytest.fixture
def query(tmp_path: Path) -> Query:
    def ask(name: str, tables: dict[str, Rows], run: Any = None, **parameters: Any) -> Rows:
        root = write_run(tmp_path / f"run{len(list(tmp_path.iterdir()))}", {("p", 0): tables}, **(run or {}))
        rows: Rows = run_query(root, name, parameters).to_pylist()
        return rows

    return ask


def attempt(i: int, call_id: int, number: int, execution_id: int, end: float, outcome: str) -> dict[str, Any]:
    return {"attempt_id": i, "call_id": call_id, "attempt": number, "execution_id": execution_id, "joined": number > 0,
            "start_s": 0.0, "end_s": end, "outcome": outcome}  # fmt: skip


def sample(at: float, waiting: int = 0, running: int = 1, used_blocks: int = 50) -> dict[str, Any]:
    return {"sample_s": at, "replica": 0, "running": running, "waiting": waiting, "used_blocks": used_blocks,
            "busy_ns": 0, "computed_prompt_tokens": 0, "computed_output_tokens": 0, "counter_prompt_tokens": 0,
            "preemptions": 0}  # fmt: skip


def test_on_time_is_the_slo_where_there_is_one_else_the_clients_timeout(query: Query) -> None:
    calls = [call(0, 1.0, 4.0), call(1, 2.0, 3.0, client_timeout_s=None), call(2, 3.0, 9.0, client_timeout_s=None)]
    (before,) = query("delivered_by_phase", {"calls": calls})
    assert before["on_time_rate"] == pytest.approx(2 / 3)
    (before,) = query("delivered_by_phase", {"calls": calls}, {"slo_s": 3.0})
    assert before["on_time_rate"] == pytest.approx(2 / 3)
    (before,) = query("delivered_by_phase", {"calls": calls}, {"slo_s": 0.5})
    assert before["on_time_rate"] == 0.0


def test_a_phase_without_eligible_calls_has_no_rate(query: Query) -> None:
    (before,) = query("delivered_by_phase", {"calls": [call(0, 1.0, 1.1, "cancelled", eligible=False)]})
    assert (before["calls"], before["delivered_call_rate"]) == (0, None)


def test_survivors_are_those_whose_user_never_leaves_whoever_was_served(query: Query) -> None:
    calls = [call(i, float(i), i + 1.0) for i in range(5)]
    calls += [call(5, 5.0, 5.1, "cancelled", user_cancel_s=0.1), call(6, 6.0, 96.0, user_cancel_s=99.0)]
    (row,) = query("summary", {"calls": calls, "replicas": replica(1)})
    assert (row["survivor_p50_s"], row["survivor_p99_s"], row["undelivered"]) == (1.0, 1.0, 0)
    calls[4] |= {"outcome": "failed", "end_s": None}
    (row,) = query("summary", {"calls": calls, "replicas": replica(1)})
    assert (row["survivor_p50_s"], row["survivor_p99_s"], row["undelivered"]) == (1.0, float("inf"), 1)


def test_calls_that_a_cut_left_unresolved_are_counted(query: Query) -> None:
    calls = [call(0, 1.0, 2.0), call(1, 2.0, None, "unresolved"), call(2, 29.5, None, "unresolved")]
    (row,) = query("summary", {"calls": calls, "replicas": replica(1)}, {"until_s": 30.0})
    assert (row["unresolved"], row["delivered_call_rate"]) == (1, 0.5)


@pytest.mark.parametrize(
    ("fate", "useful", "abandoned", "post_cancel", "duplicate", "unresolved"),
    [
        ("delivered", 10, 0, 0, 0, 0),
        ("user_cancelled_stream", 3, 0, 7, 0, 0),
        ("duplicate", 0, 0, 0, 10, 0),
        ("running_at_end", 0, 0, 0, 0, 10),
        ("lost", 0, 3, 7, 0, 0),
    ],
)
def test_each_fate_has_its_use_and_its_waste(
    fate: str, useful: int, abandoned: int, post_cancel: int, duplicate: int, unresolved: int, query: Query
) -> None:
    parts = {"attended_prefill_ns": 1, "attended_decode_ns": 2, "orphan_prefill_ns": 3, "orphan_decode_ns": 4,
             "recompute_ns": 5, "poll_ns": 6, "held_slot_ns": 7}  # fmt: skip
    charges = {name: seconds * S for name, seconds in parts.items()}
    (row,) = query("wasted_compute", {"executions": [execution(0, fate, **charges)], "replicas": replica(28)})
    shown = {k: row[f"{k}_gpu_s"] for k in ("useful", "abandoned", "post_cancel", "duplicate", "unresolved")}
    assert shown == {"useful": useful, "abandoned": abandoned, "post_cancel": post_cancel, "duplicate": duplicate,
                     "unresolved": unresolved}  # fmt: skip
    assert (row["recompute_gpu_s"], row["poll_gpu_s"], row["held_slot_gpu_s"]) == (5, 6, 7)
    assert row["wasted_compute_frac"] == pytest.approx((abandoned + post_cancel + duplicate + 18) / 28)
    assert row["busy_gpu_s"] == sum(shown.values()) + 18


def test_abandoned_is_shown_gross_and_net_of_what_was_salvaged(query: Query) -> None:
    executions = [
        execution(0, "lost", "aborted", attended_prefill_ns=6 * S, salvaged_ns=2 * S),
        execution(1, "lost", "aborted", orphan_prefill_ns=S, salvaged_ns=S),
        execution(2, "delivered", attended_prefill_ns=S, salvaged_ns=S),
    ]
    (row,) = query("wasted_compute", {"executions": executions, "replicas": replica(8)})
    assert (row["abandoned_gpu_s"], row["salvaged_gpu_s"], row["abandoned_net_gpu_s"]) == (6, 2, 4)
    assert row["wasted_compute_frac"] == pytest.approx(7 / 8)


def test_progress_at_abort_is_of_admitted_ones_and_at_most_all(query: Query) -> None:
    executions = [
        execution(0, "lost", "aborted", computed_prompt_tokens=180),
        execution(1, "lost", "aborted", cached_prompt_tokens=30, computed_prompt_tokens=30, first_output_s=None),
        execution(2, "lost", "never_admitted", computed_prompt_tokens=0, admitted_s=None, first_output_s=None),
        execution(3, "lost", "finished"),
    ]
    (row,) = query("counter_gap", {"executions": executions})
    assert row["prefill_progress_at_abort"] == pytest.approx(0.8)
    assert row["prefill_progress_before_first_token"] == pytest.approx(0.6)


def test_the_cancel_window_ends_when_the_last_client_gives_up(query: Query) -> None:
    executions = [
        execution(0, "lost", "aborted", admitted_s=9.0),
        execution(1, "lost", "never_admitted", admitted_s=None, first_output_s=None),
        execution(2, "lost", "aborted", admitted_s=1.0),
    ]
    attempts = [
        attempt(0, 0, 0, 0, 10.0, "timeout"),
        attempt(1, 0, 1, 0, 12.0, "timeout"),
        attempt(2, 1, 0, 1, 10.0, "timeout"),
        attempt(3, 2, 0, 2, 3.0, "cancelled"),
    ]
    rows = query("cancel_window", {"executions": executions, "attempts": attempts, "replicas": replica(1)})
    assert [(r["attempts"], r["executions"], r["p50_s"]) for r in rows] == [("all", 1, 3.0), ("retries", 1, 3.0)]


def test_a_service_that_never_lapsed_recovers_at_the_overloads_end(query: Query) -> None:
    calls = [{**c, "arrival_s": c["arrival_s"] + 0.4, "end_s": c["end_s"] + 0.4} for c in recovering(0.0)]
    (row,) = query("recovery", {"calls": calls})
    assert (row["recovered_share"], row["recovery_time_s"]) == (1.0, 0.0)


def test_recovery_needs_calls_and_seconds_after_it(query: Query) -> None:
    calls = recovering(60.0)
    (row,) = query("recovery", {"calls": calls}, share=1.0)
    assert (row["recovered_share"], row["recovery_time_s"]) == (1.0, 40.0)
    (row,) = query("recovery", {"calls": calls}, share=1.0, calls_least=61.0)
    assert (row["recovered_share"], row["recovery_time_s"]) == (0.0, None)
    (row,) = query("recovery", {"calls": calls}, share=1.0, seconds_least=60.0)
    assert (row["recovered_share"], row["recovery_time_s"]) == (0.0, None)


@pytest.mark.parametrize("kept", [lambda c: c["arrival_s"] >= 10, lambda c: c["arrival_s"] < 40])
def test_recovery_without_calls_before_or_enough_after_cannot_be_told(kept: Any, query: Query) -> None:
    (row,) = query("recovery", {"calls": [c for c in recovering(0.0) if kept(c)]})
    assert (row["recovered_share"], row["recovery_time_s"]) == (None, None)


@pytest.mark.parametrize(("late", "median"), [((22, 24, 200), 4.0), ((22, 200, 200), None), ((22, 24, 26, 200), 4.0)])
def test_the_median_over_seeds_counts_those_that_did_not_recover(
    late: tuple[int, ...], median: float | None, tmp_path: Path
) -> None:
    cells = {("p", seed): {"calls": recovering(float(until))} for seed, until in enumerate(late)}
    (row,) = run_query(write_run(tmp_path / "run", cells), "recovery", {"share": 1.0}).to_pylist()
    assert row["recovery_time_s"] == median
    assert row["recovered_share"] == sum(until < 200 for until in late) / len(late)


@pytest.mark.parametrize("name", names())
def test_profiles_and_fleets_in_one_run_are_kept_apart(name: str, tmp_path: Path) -> None:
    tables = {
        "calls": recovering(30.0),
        "executions": [execution(0, "lost", "aborted", admitted_s=1.0)],
        "attempts": [attempt(0, 0, 0, 0, 2.0, "timeout")],
        "replicas": replica(1),
        "timeline": [sample(1.0)],
    }
    root = Path(write_run(tmp_path / "run", {("p", 0): tables}, as_logged="p"))
    alone = run_query(str(root), name).num_rows
    for table in ("calls", "executions", "attempts", "replicas", "timeline"):
        cell = root / table / "policy=p/profile=p/fleet=1x/seed=0/part-0.parquet"
        other = root / table / "policy=p/profile=q/fleet=2x/seed=0/part-0.parquet"
        other.parent.mkdir(parents=True)
        other.write_bytes(cell.read_bytes())
    rows = run_query(str(root), name).to_pylist()
    assert len(rows) == 2 * alone > 0
    assert {(r["profile"], r["fleet"]) for r in rows} == {("p", "1x"), ("q", "2x")}


def test_every_query_runs_in_a_plain_duckdb_inside_the_run(run_directory: Path) -> None:
    here = os.getcwd()
    os.chdir(run_directory)
    try:
        with duckdb.connect() as shell:
            shell.execute(Path("views.sql").read_text())
            for query in map(load, names()):
                if not query.parameters:
                    assert shell.sql(query.sql).columns == run_query(str(run_directory), query.name).column_names
    finally:
        os.chdir(here)
