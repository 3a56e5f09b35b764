"""The compiled engine against its naive twin: the same fates at the same times, the same ledger."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, currently_in_test_context, given, note, settings

from replay.engine import Results, simulate
from replay.engine.columns import CALL_REASON
from tests import naive
from tests.engine.scenarios import Scenario, scenarios
from tests.naive.world import World

THOROUGH = settings(max_examples=5_000, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
QUICK = settings(THOROUGH, max_examples=300)
ONCE_APART = Path(__file__).parents[1] / "fixtures" / "twin"
"""Scenarios of which the two have thought differently."""
CALL_STATUS = {
    "live": ("unresolved", None), "delivered": ("delivered", None), "left": ("cancelled", None),
    **{reason: ("failed", reason) for reason in CALL_REASON if reason is not None},
}  # fmt: skip


def close(a: float | None, b: float | None) -> bool:
    """Equal times."""
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=0, abs_tol=1e-9)


def compare_calls(ours: Results, twin: World) -> None:
    rows = ours.calls.to_pylist()
    for row, call in zip(rows, twin.calls, strict=True):
        assert (row["outcome"], row["reason"]) == CALL_STATUS[call.status], row
        assert close(row["end_s"], call.end), (row, call.end)
        assert close(row["first_token_s"], call.first_token), (row, call.first_token)
        assert row["attempts"] == call.attempts
        assert row["delivered_execution_id"] == (None if call.delivered_by is None else call.delivered_by.id)


def compare_attempts(ours: Results, twin: World) -> None:
    rows = ours.attempts.to_pylist()
    assert len(rows) == len(twin.attempts)
    for row, attempt in zip(rows, twin.attempts, strict=True):
        status = "unresolved" if attempt.status == "open" else attempt.status
        assert row["outcome"] == status, (row, attempt)
        assert (row["call_id"], row["attempt"], row["joined"]) == (attempt.call.id, attempt.number, attempt.joined)
        assert row["execution_id"] == (None if attempt.execution is None else attempt.execution.id)
        assert close(row["start_s"], attempt.start)
        assert close(row["end_s"], attempt.end)
        assert close(row["first_token_s"], attempt.first_token), (row, attempt.first_token)


def fate(x: Any, twin: World) -> str:
    """First match, from the attempts that waited for it."""
    mine = [a for a in twin.attempts if a.execution is x]
    if any(a.status == "ok" for a in mine):
        return "delivered"
    if any(a.status == "cancelled" and a.first_token is not None and a.call.stream for a in mine):
        return "user_cancelled_stream"
    if x.state == "finished" and x.call.status == "delivered":
        return "duplicate"
    return "lost" if x.state in ("finished", "aborted") else "running_at_end"


def compare_executions(ours: Results, twin: World) -> None:
    rows = ours.executions.to_pylist()
    assert len(rows) == len(twin.executions)
    for row, x in zip(rows, twin.executions, strict=True):
        ended = {"finished": "finished", "aborted": "aborted" if x.admitted is not None else "never_admitted"}
        assert row["ended"] == ended.get(x.state, "running_at_end"), row
        assert row["fate"] == fate(x, twin), row
        assert (row["call_id"], row["replica"], row["attempts"]) == (x.call.id, x.replica, x.attempts)
        for name, value in (("queued_s", x.queued), ("admitted_s", x.admitted), ("first_output_s", x.first_output)):
            assert close(row[name], value), (name, row, value)
        assert close(row["end_s"], x.end)
        counts = (x.cached or 0, x.computed_prompt, x.outputs, x.recomputed, x.preemptions)
        names = ("cached_prompt_tokens", "computed_prompt_tokens", "computed_output_tokens", "recomputed_tokens")
        assert tuple(row[n] for n in (*names, "preemptions")) == counts, (row, counts)
        compare_ledger(row, x)


def compare_ledger(row: dict[str, Any], x: Any) -> None:
    """Charges to a nanosecond or a part in a million."""
    for name in ("attended_prefill", "attended_decode", "orphan_prefill", "orphan_decode", "recompute", "poll",
                 "held_slot", "marginal", "kv_block", "stranded_kv"):  # fmt: skip
        ours, theirs = row[f"{name}_ns"], x.ledger.get(name, 0.0) * 1e9
        assert math.isclose(ours, theirs, rel_tol=1e-6, abs_tol=60.0 if "kv" in name else 3.0), (
            name,
            ours,
            theirs,
            row,
        )
    prefill = row["attended_prefill_ns"] + row["orphan_prefill_ns"]
    salvaged = prefill * min(x.salvaged_tokens / max(x.computed_prompt, 1), 1.0)
    assert math.isclose(row["salvaged_ns"], salvaged, rel_tol=1e-6, abs_tol=3.0), (row, x.salvaged_tokens)


def compare_replicas(ours: Results, twin: World) -> None:
    for row, replica in zip(ours.replicas.to_pylist(), twin.replicas, strict=True):
        assert math.isclose(row["busy_ns"], replica.busy * 1e9, rel_tol=1e-9, abs_tol=2.0)
        assert row["steps"] == replica.steps
        assert row["computed_prompt_tokens"] == replica.computed_prompt
        assert row["counter_prompt_tokens"] == replica.counter_prompt
        assert row["allocated_blocks"] == replica.pool.allocated
        assert row["released_blocks"] == replica.pool.released
    stranded = sum(np.asarray(ours.executions["stranded_kv_block_ns"]).tolist())
    assert math.isclose(stranded, twin.stranded_block_s * 1e9, rel_tol=1e-6, abs_tol=2_000.0)


def agree(scenario: Scenario, until_s: float | None = None) -> None:
    """Raise AssertionError where the two engines differ."""
    arguments = (scenario.table, scenario.policy, scenario.profile, scenario.fleet, scenario.seed)
    twin = naive.simulate(*arguments, until_s=until_s)
    ours = simulate(*arguments, until_s=until_s, timeline_interval_s=0.07)
    if currently_in_test_context():
        note(f"to replay: Scenario.load({repr(scenario)!r})")
    compare_calls(ours, twin)
    compare_attempts(ours, twin)
    compare_executions(ours, twin)
    compare_replicas(ours, twin)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("file", sorted(ONCE_APART.glob("*.json")), ids=lambda path: path.stem)
def test_the_engine_agrees_with_its_twin_where_it_once_did_not(file: Path) -> None:
    agree(Scenario.load(file.read_text()))


@QUICK
@given(scenarios())
def test_the_engine_agrees_with_its_twin(scenario: Scenario) -> None:
    agree(scenario)


@settings(QUICK, max_examples=100)
@given(scenarios())
def test_the_engine_agrees_with_its_twin_when_the_run_is_cut(scenario: Scenario) -> None:
    agree(scenario, until_s=0.3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@THOROUGH
@given(scenarios())
def test_the_engine_agrees_with_its_twin_on_thousands(scenario: Scenario) -> None:
    agree(scenario)
