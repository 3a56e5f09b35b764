"""Thresholds: what is judged, what breaches, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from queries import names, run_query
from queries.blank import columns
from replay.report.thresholds import Judgement, judge, lines, parse, parse_all, save, saved
from tests.queries.test_figures import call, replica, write_run
from trace_schema.errors import BadConfig, BadInput

Judge = Callable[..., list[Judgement]]


@pytest.fixture
def run(tmp_path: Path) -> str:
    """cancel delivers one of two calls, coalesce both; nothing of the calls during the overload is on time."""
    calls = [call(0, 1.0, 2.0), call(1, 12.0, None, "failed")]
    cells = {
        ("cancel", 0): {"calls": calls, "replicas": replica(4)},
        ("coalesce", 0): {"calls": [calls[0], call(1, 12.0, 19.0)], "replicas": replica(2)},
    }
    return write_run(tmp_path / "run", cells)


@pytest.fixture
def own_run(run: str) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(run) / "run.parquet"
    row = pq.read_table(path)
    pq.write_table(row.set_column(row.column_names.index("as_logged"), "as_logged", pa.array(["cancel"])), path)
    return run


def judged(run: str, *written: str) -> list[tuple[str | None, bool, float | None]]:
    return [(j.policy, j.breached, j.value) for j in judge(run, parse_all(written))]


@pytest.mark.parametrize(
    ("written", "policy", "figure", "op", "number"),
    [
        ("delivered_call_rate < 0.99", None, "delivered_call_rate", "<", 0.99),
        ("delivered_call_rate<99%", None, "delivered_call_rate", "<", 0.99),
        (" cancel: on_time_rate <= 99.9 % ", "cancel", "on_time_rate", "<=", 0.999),
        ("my-policy_2:recovery.recovery_time_s>6e1", "my-policy_2", "recovery.recovery_time_s", ">", 60.0),
        ("*:unresolved != 0", "*", "unresolved", "!=", 0.0),
        ("summary.undelivered >= .5", None, "undelivered", ">=", 0.5),
        ("policy_differences.delivered_difference < -5%", None, "policy_differences.delivered_difference", "<", -0.05),
        ("undelivered == 3.", None, "undelivered", "==", 3.0),
    ],
)
def test_a_threshold_is_a_figure_an_operator_and_a_number(
    written: str, policy: str | None, figure: str, op: str, number: float
) -> None:
    found = parse(written)
    assert (found.policy, found.figure, found.op, found.number) == (policy, figure, op, number)


@pytest.mark.parametrize(
    "written",
    ["", "delivered_call_rate", "delivered_call_rate =< 1", "delivered_call_rate = 1", "a < b", "on_time_rate < 5 s",
     "a.b.c < 1", "0.99 > delivered_call_rate", "on_time_rate < 1 and unresolved > 2", "a:b:c < 1",
     "on_time_rate < nan", "on_time_rate < 1,5", "on_time_rate < 9%9"],
)  # fmt: skip
def test_anything_else_is_told_the_grammar(written: str) -> None:
    with pytest.raises(BadConfig, match=r"must be \[POLICY:\]FIGURE OP NUMBER"):
        parse(written)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("delivered_cal_rate < 1", "unknown figure 'delivered_cal_rate'; did you mean delivered_call_rate"),
        ("recovery_time_s > 60", "did you mean recovery.recovery_time_s"),
        ("recovry.recovery_time_s > 60", "unknown query 'recovry'; did you mean recovery"),
        ("latency.e2e_p59_s > 60", "did you mean latency.e2e_p99_s or latency.e2e_p95_s"),
        ("latency.phase > 60", "latency.phase is no figure; delivered, undelivered"),
        ("cancel:self_replay.predicted > 60", "self_replay tells no policies apart"),
    ],
)
def test_a_figure_that_does_not_exist_is_known_before_a_run_is_made(written: str, said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        parse_all(["delivered_call_rate < 1", written])


def test_the_columns_that_a_query_has_without_a_run_are_those_it_has_with_one(run_directory: Path) -> None:
    known = columns(*names())
    for name in names():
        assert list(known[name]) == run_query(str(run_directory), name).column_names


def test_the_log_s_own_policy_is_judged_where_no_other_is_named(own_run: str) -> None:
    assert judged(own_run, "delivered_call_rate < 99%") == [("cancel", True, 0.5)]
    assert judged(own_run, "coalesce:delivered_call_rate < 99%") == [("coalesce", False, 1.0)]
    assert judged(own_run, "*:delivered_call_rate < 99%") == [("cancel", True, 0.5), ("coalesce", False, 1.0)]


def test_every_policy_is_judged_where_the_log_s_own_is_not_known(run: str) -> None:
    assert judged(run, "delivered_call_rate < 99%") == [("cancel", True, 0.5), ("coalesce", False, 1.0)]


@pytest.mark.parametrize(
    ("condition", "breached"),
    [("< 0.5", False), ("<= 0.5", True), ("> 0.5", False), (">= 50%", True), ("== 0.5", True), ("!= 0.5", False),
     ("< 0.6", True), ("> 49%", True), ("!= 1", True), ("== 1", False)],
)  # fmt: skip
def test_each_operator_means_what_it_says(run: str, condition: str, breached: bool) -> None:
    assert judged(run, f"cancel:delivered_call_rate {condition}") == [("cancel", breached, 0.5)]


def test_every_row_of_a_query_is_judged_and_the_worst_is_named(run: str) -> None:
    (found,) = judge(run, parse_all(["coalesce:delivered_by_phase.on_time_rate < 1"]))
    assert (found.breached, found.rows, found.rows_breached, found.value) == (True, 2, 1, 0.0)
    assert found.where == {"phase": "during"}
    assert found.sentence == "coalesce:delivered_by_phase.on_time_rate < 1: 0 with coalesce, during"


def test_a_figure_without_a_value_breaches(run: str) -> None:
    (found,) = judge(run, parse_all(["cancel:counter_shortfall > 0.5"]))
    assert (found.breached, found.value) == (True, None)
    assert found.sentence.endswith(": none with cancel")


def test_an_infinite_latency_breaches_and_is_written_as_such(run: str) -> None:
    (found,) = judge(run, parse_all(["cancel:survivor_p95_s > 30"]))
    assert (found.breached, found.value) == (True, None)
    assert found.sentence.endswith(": infinity with cancel")


def test_a_query_without_a_row_judges_nothing_and_says_so(run: str) -> None:
    (found,) = judge(run, parse_all(["timeouts.timeouts > 0"]))
    assert (found.breached, found.rows) == (False, 0)
    assert lines([found]) == ["not judged timeouts.timeouts > 0: judged nothing, timeouts has no row of it"]


def test_a_policy_that_the_run_does_not_have_is_named(run: str) -> None:
    with pytest.raises(BadConfig, match="unknown policy 'coalesc'; did you mean coalesce"):
        judge(run, parse_all(["coalesc:delivered_call_rate < 1"]))


def test_breaches_are_listed_first(own_run: str) -> None:
    found = judge(own_run, parse_all(["coalesce:delivered_call_rate < 99%", "delivered_call_rate < 99%"]))
    assert lines(found) == [
        "BREACHED delivered_call_rate < 99%: 50% with cancel (the log's own)",
        "1 of 2 thresholds held",
    ]
    assert lines(found[1:]) == ["the threshold held"]


def test_what_was_judged_is_kept_in_the_run(run: str) -> None:
    assert saved(run) == []
    found = judge(run, parse_all(["delivered_call_rate < 99%", "cancel:survivor_p95_s > 30"]))
    save(run, found)
    assert saved(run) == found
    written: list[dict[str, Any]] = json.loads((Path(run) / "thresholds.json").read_text())
    assert written[0]["breached"] is True
    (Path(run) / "thresholds.json").write_text("{}")
    with pytest.raises(BadInput, match=r"thresholds.json: cannot be read"):
        saved(run)
    save(run, [])
    assert saved(run) == []


def test_without_thresholds_nothing_is_judged(run: str) -> None:
    assert judge(run, parse_all([])) == []
    assert lines([]) == []


def test_a_condition_that_is_judged_on_several_policies_is_one_threshold(run: str) -> None:
    found = judge(run, parse_all(["*:delivered_call_rate < 0", "*:delivered_call_rate < 99%"]))
    assert lines(found)[1:] == ["1 of 2 thresholds held"]
