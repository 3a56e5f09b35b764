"""The figures of the SQL files, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from queries import load, names, run_query, run_sql
from replay.runner.store import Store
from trace_schema.check import check, conform
from trace_schema.errors import BadConfig, BadInput, UnknownName
from trace_schema.fields import TableSchema
from trace_schema.results import ATTEMPT_OUTCOMES, CALL_OUTCOMES, EXECUTIONS, REPLICAS, TIMELINE

Rows = list[dict[str, Any]]
CALL = {"prompt_tokens": 100, "output_tokens": 10, "client_timeout_s": 2.0, "idle_e2e_s": 0.5, "eligible": True,
        "attempts": 1}  # fmt: skip
EXECUTION = {
    "replica": 0, "attempts": 1, "prompt_tokens": 100, "cached_prompt_tokens": 0, "computed_prompt_tokens": 100,
    "computed_output_tokens": 10, "recomputed_tokens": 0, "preemptions": 0, "attended_prefill_ns": 0,
    "attended_decode_ns": 0, "orphan_prefill_ns": 0, "orphan_decode_ns": 0, "recompute_ns": 0, "poll_ns": 0,
    "held_slot_ns": 0, "marginal_ns": 0, "kv_block_ns": 0, "stranded_kv_block_ns": 0, "stranded_kv_ns": 0,
    "salvaged_ns": 0,
}  # fmt: skip
S = 1_000_000_000


def table(schema: TableSchema, rows: Rows) -> pa.Table:
    if not rows:
        return schema.arrow.empty_table()
    names_ = dict.fromkeys(key for row in rows for key in row)
    return check(conform(pa.table({n: [row.get(n) for row in rows] for n in names_}), schema), schema)


def call(i: int, arrival: float, end: float | None, outcome: str = "delivered", **more: Any) -> dict[str, Any]:
    return {**CALL, "call_id": i, "arrival_s": arrival, "end_s": end, "outcome": outcome, **more}


def execution(i: int, fate: str, ended: str = "finished", **more: Any) -> dict[str, Any]:
    times = {"queued_s": 0.0, "admitted_s": 0.0, "first_output_s": 1.0, "end_s": 2.0}
    return {**EXECUTION, **times, "execution_id": i, "call_id": i, "fate": fate, "ended": ended, **more}


PLACES = (("p", "1x"), ("p", "2x"), ("q", "2x"))
"""Profiles and fleets that tests have."""


def write_run(root: Path, cells: dict[tuple[str, int], dict[str, Rows]], **run: Any) -> str:
    """A run directory by hand: tables by (policy, seed)."""
    store = Store(str(root))
    store.create()
    policies = list(dict.fromkeys(policy for policy, _ in cells))
    store.write_table("policies.parquet", pa.table({"policy": policies, "position": range(len(policies))}))
    phases = {"phase": ["before", "during", "after"], "start_s": [0.0, 10.0, 20.0], "end_s": [10.0, 20.0, None]}
    store.write_table("phases.parquet", pa.table(phases))
    profiles = {"profile": ["p"], "source": ["measured"], "error": ["3%"], "num_blocks": [101], "block_size": [16]}
    store.write_table("profiles.parquet", pa.table(profiles))
    settings = {
        "as_logged": None,
        "slo_s": None,
        "until_s": None,
        "warmup_s": 0.0,
        "seeds": 2,
        "replays": len(cells),
        **run,
    }
    types = {"as_logged": pa.string(), "seeds": pa.int32(), "replays": pa.int32()}
    store.write_table(
        "run.parquet", pa.table({k: pa.array([v], types.get(k, pa.float64())) for k, v in settings.items()})
    )
    seeds = list(dict.fromkeys(seed for _, seed in cells))
    most = {"phase": None, "calls": 5, "delivered": 4, "on_time": 2}
    possible = [{"profile": p, "fleet": f, "seed": s, **most} for p, f in PLACES for s in seeds]
    store.write_table("possible.parquet", pa.Table.from_pylist(possible))
    observed = {"call_id": [0, 1], "arrival_s": [1.0, 11.0], "tenant": ["acme", None], "observed_attempts": [1, 3],
                "observed_status": ["ok", "timeout"], "observed_e2e_s": [0.5, None]}  # fmt: skip
    store.write_table("observed.parquet", pa.table(observed))
    schemas = {"calls": CALL_OUTCOMES, "attempts": ATTEMPT_OUTCOMES, "executions": EXECUTIONS, "replicas": REPLICAS,
               "timeline": TIMELINE}  # fmt: skip
    for (policy, seed), tables in cells.items():
        for name, schema in schemas.items():
            key = f"policy={policy}/profile=p/fleet=1x/seed={seed}"
            store.write_table(f"{name}/{key}/part-0.parquet", table(schema, tables.get(name, [])))
    return str(root)


def replica(busy_s: float) -> Rows:
    return [
        {"replica": 0, "end_s": 50.0, "steps": 1, "busy_ns": int(busy_s * S), "allocated_blocks": 0,
         "released_blocks": 0, "counter_prompt_tokens": 0, "computed_prompt_tokens": 0, "unfinished": 0}
    ]  # fmt: skip


Query = Callable[..., Rows]


@pytest.fixture
def query(tmp_path: Path) -> Query:
    def ask(name: str, cells: dict[tuple[str, int], dict[str, Rows]], run: Any = None, **parameters: Any) -> Rows:
        root = write_run(tmp_path / f"run{len(list(tmp_path.iterdir()))}", cells, **(run or {}))
        rows: Rows = run_query(root, name, parameters).to_pylist()
        return rows

    return ask


def test_delivered_by_phase_counts_eligible_calls_alone(query: Query) -> None:
    one = [
        call(0, 1.0, 2.0),
        call(1, 2.0, 9.0),
        call(2, 12.0, None, "failed", reason="retries_exhausted"),
        call(3, 13.0, 14.0),
        call(4, 14.0, 14.0, "failed", reason="rejected:too_long", eligible=False),
        call(5, 15.0, 15.1, "cancelled", eligible=False),
        call(6, 25.0, 26.0),
    ]
    other = [row if row["call_id"] != 3 else call(3, 13.0, None, "failed", reason="retries_exhausted") for row in one]
    rows = query("delivered_by_phase", {("p", 0): {"calls": one}, ("p", 1): {"calls": other}})
    before, during, after = rows
    assert [r["phase"] for r in rows] == ["before", "during", "after"]
    assert (before["delivered_call_rate"], before["on_time_rate"]) == (1.0, 0.5)
    assert (during["calls"], during["too_long"]) == (2, 1)
    assert during["delivered_call_rate"] == 0.25
    assert (during["delivered_call_rate_low"], during["delivered_call_rate_high"]) == (0.0, 0.5)
    assert after["delivered_call_rate"] == 1.0


def test_calls_before_the_warmup_and_close_to_a_cut_are_left_out(query: Query) -> None:
    calls = [call(0, 1.0, None, "failed"), call(1, 5.0, 6.0), call(2, 29.0, None, "unresolved")]
    cells = {("p", 0): {"calls": calls}}
    (before,) = query("delivered_by_phase", cells, {"warmup_s": 2.0, "until_s": 30.0})
    assert (before["phase"], before["calls"], before["delivered_call_rate"]) == ("before", 1, 1.0)


def test_wasted_compute_has_a_cause_for_each_second(query: Query) -> None:
    charges = {"attended_prefill_ns": 2 * S, "attended_decode_ns": S, "orphan_prefill_ns": S, "orphan_decode_ns": S}
    executions = [
        execution(0, "delivered", **charges, recompute_ns=S),
        execution(1, "lost", "aborted", **charges, salvaged_ns=2 * S),
        execution(2, "duplicate", **charges),
        execution(3, "user_cancelled_stream", "aborted", **charges),
        execution(4, "running_at_end", "running_at_end", **charges, poll_ns=S, held_slot_ns=S),
    ]
    (row,) = query("wasted_compute", {("p", 0): {"executions": executions, "replicas": replica(28)}})
    assert row["useful_gpu_s"] == 5 + 3
    assert row["abandoned_gpu_s"] == 3
    assert row["post_cancel_gpu_s"] == 2 + 2
    assert row["duplicate_gpu_s"] == 5
    assert row["unresolved_gpu_s"] == 5
    assert (row["recompute_gpu_s"], row["poll_gpu_s"], row["held_slot_gpu_s"]) == (1, 1, 1)
    assert row["salvaged_gpu_s"] == 2
    assert row["wasted_compute_frac"] == pytest.approx(15 / 28)
    assert row["busy_gpu_s"] == 28


def test_stranded_kv_is_counted_in_blocks_and_in_requests(query: Query) -> None:
    executions = [
        execution(0, "lost", kv_block_ns=10 * S, stranded_kv_block_ns=4 * S, stranded_kv_ns=S // 2),
        execution(1, "delivered", kv_block_ns=30 * S),
    ]
    (row,) = query("stranded_kv", {("p", 0): {"executions": executions}})
    assert (row["kv_block_s"], row["stranded_kv_block_s"], row["stranded_kv_request_ms"]) == (40, 4, 500)
    assert row["stranded_frac"] == 0.1


def test_counter_gap_follows_its_formula(query: Query) -> None:
    executions = [
        execution(0, "delivered", cached_prompt_tokens=40, computed_prompt_tokens=60),
        execution(1, "lost", "aborted", computed_prompt_tokens=80, first_output_s=None),
        execution(2, "lost", "aborted", computed_prompt_tokens=100),
        execution(3, "lost", "never_admitted", computed_prompt_tokens=0, admitted_s=None, first_output_s=None),
    ]
    (row,) = query("counter_gap", {("p", 0): {"executions": executions}})
    assert (row["computed_prompt_tokens"], row["counter_prompt_tokens"]) == (240, 200)
    assert row["counter_shortfall"] == pytest.approx(1 - 160 / 240)
    assert row["prefill_progress_at_abort"] == pytest.approx(0.9)
    assert row["prefill_progress_before_first_token"] == pytest.approx(0.8)


def test_retry_amplification_counts_attempts_and_admitted_executions(query: Query) -> None:
    calls = [call(0, 1.0, 2.0, attempts=1), call(1, 2.0, 9.0, attempts=4)]
    executions = [execution(0, "delivered"), execution(1, "lost", "never_admitted", admitted_s=None)]
    (row,) = query("retry_amplification", {("p", 0): {"calls": calls, "executions": executions}})
    assert (row["retry_amplification"], row["execution_amplification"]) == (2.5, 0.5)


def test_cancel_window_runs_from_the_first_step_to_the_timeout(query: Query) -> None:
    executions = [execution(i, "lost", "aborted", admitted_s=10.0 - w) for i, w in enumerate((0.2, 0.4, 3.0))]
    executions.append(execution(3, "delivered"))
    attempts = [
        {"attempt_id": i, "call_id": i, "attempt": min(i, 1), "execution_id": i, "joined": False, "start_s": 2.0,
         "end_s": 10.0, "outcome": "timeout" if i < 3 else "ok"}
        for i in range(4)
    ]  # fmt: skip
    cells = {("p", 0): {"executions": executions, "attempts": attempts, "replicas": replica(1)}}
    everyone, retries = query("cancel_window", cells)
    assert (everyone["attempts"], everyone["executions"]) == ("all", 3)
    assert everyone["p50_s"] == pytest.approx(0.4)
    assert (retries["attempts"], retries["executions"]) == ("retries", 2)
    assert retries["p50_s"] == pytest.approx(1.7)


def recovering(late_until: float) -> Rows:
    """On time before; after the overload's end at 20 s late until `late_until`; a call a second."""
    calls = [call(i, float(i), i + 1.0) for i in range(10)]
    calls += [call(i, float(i), i + (9.0 if i < late_until else 1.0)) for i in range(10, 120)]
    return calls


def test_recovery_is_the_earliest_time_from_which_all_is_as_before(query: Query) -> None:
    cells = {("p", 0): {"calls": recovering(32.0)}, ("p", 1): {"calls": recovering(200.0)}}
    (row,) = query("recovery", cells, share=1.0)
    assert row["recovered_share"] == 0.5
    assert row["recovery_time_s"] == 12.0
    assert row["observed_s"] == 99.0
    assert row["delivered_call_rate"] == 1.0


def test_a_service_that_stays_late_does_not_recover(query: Query) -> None:
    (row,) = query("recovery", {("p", 0): {"calls": recovering(200.0)}})
    assert (row["recovered_share"], row["recovery_time_s"]) == (0.0, None)


def test_recovery_cannot_be_told_where_no_call_was_on_time_before(query: Query) -> None:
    calls = [{**row, "outcome": "failed"} for row in recovering(32.0) if row["arrival_s"] < 10.0]
    (row,) = query("recovery", {("p", 0): {"calls": calls + recovering(32.0)[10:]}})
    assert (row["recovered_share"], row["recovery_time_s"]) == (None, None)


def test_summary_counts_the_undelivered_as_infinitely_late(query: Query) -> None:
    calls = [call(0, 1.0, 2.0), call(1, 2.0, 5.0), call(2, 3.0, 9.0, "failed", reason="retries_exhausted")]
    (row,) = query("summary", {("p", 0): {"calls": calls, "replicas": replica(6)}})
    assert row["delivered_call_rate"] == pytest.approx(2 / 3)
    assert row["on_time_rate"] == pytest.approx(1 / 3)
    assert row["survivor_p50_s"] == 3.0
    assert row["survivor_p99_s"] == float("inf")
    assert (row["undelivered"], row["gpu_s_per_delivered_call"]) == (1, 3)


def test_self_replay_sets_the_log_beside_its_own_policy(query: Query) -> None:
    calls = [call(0, 1.0, 1.7), call(1, 11.0, 12.0, attempts=2)]
    cells = {("own", 0): {"calls": calls}, ("other", 0): {"calls": [call(0, 1.0, 9.0)]}}
    rows = {r["figure"]: r for r in query("self_replay", cells, {"as_logged": "own"})}
    assert (rows["delivered before"]["observed"], rows["delivered before"]["predicted"]) == (1.0, 1.0)
    assert (rows["delivered during"]["observed"], rows["delivered during"]["predicted"]) == (0.0, 1.0)
    assert (rows["attempts"]["observed"], rows["attempts"]["predicted"]) == (4, 3)
    assert query("self_replay", cells) == []


@pytest.mark.parametrize("name", names())
def test_every_query_runs_on_an_empty_run(name: str, query: Query) -> None:
    query(name, {("p", 0): {"calls": [call(0, 1.0, None, "unresolved")], "replicas": replica(0)}})


@pytest.mark.parametrize("name", names())
def test_every_query_says_what_it_answers(name: str, run_directory: Path) -> None:
    query = load(name)
    assert query.name == name
    assert query.purpose.endswith(("?", "."))
    columns = run_query(str(run_directory), name).column_names
    assert all(column.split("_low")[0].split("_high")[0].removesuffix("_gpu_s") in query.columns
               or column.startswith("survivor") or column in query.columns for column in columns)  # fmt: skip


def test_unknown_names_get_the_nearest(run_directory: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean recovery"):
        run_query(str(run_directory), "recovry")
    with pytest.raises(UnknownName, match="did you mean share"):
        run_query(str(run_directory), "recovery", {"shar": 1.0})
    with pytest.raises(BadConfig, match="SQL: "):
        run_sql(str(run_directory), "SELECT nothing FROM nowhere")


def test_a_directory_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a run directory"):
        run_query(str(tmp_path), "summary")


def test_delivered_calls_stand_beside_the_most_that_any_policy_could_deliver(query: Query) -> None:
    one = [call(0, 1.0, 2.0), call(1, 2.0, 99.0), call(2, 3.0, None, "failed", reason="retries_exhausted")]
    two = [call(0, 1.0, 2.0), call(1, 2.0, 3.0), call(2, 3.0, 4.0)]
    cells = {("p", 0): {"calls": one, "replicas": replica(1)}, ("p", 1): {"calls": two, "replicas": replica(1)}}
    (row,) = query("share_of_possible", cells)
    assert (row["policy"], row["phase"], row["possible_delivered"], row["possible_on_time"]) == ("p", None, 4, 2)
    assert (row["delivered"], row["share_delivered_low"], row["share_delivered_high"]) == (2.5, 0.5, 0.75)
    assert (row["on_time"], row["share_on_time"]) == (2.0, 1.0)
