"""Attempts are joined by what the log says, by careful guesses where it says nothing, and never after a success."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from connectors.rows import attempts_of
from tests.incidents import Incident, Told, tell
from trace_schema.fold import Folded, JoinRules, fold


def log(*rows: dict[str, Any]) -> pa.Table:
    names = dict.fromkeys(key for row in rows for key in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return attempts_of(columns, np.arange(1, len(rows) + 1), source_format="test", source_file="log").attempts


def sent(start: float, status: str = "cancelled", **more: Any) -> dict[str, Any]:
    return {"arrival_s": start, "status": status, "prompt_tokens": 10, "e2e_s": 1.0, "tenant": "u", **more}


def calls(table: pa.Table, **rules: Any) -> list[list[int]]:
    """The rows (from 0) of each call."""
    folded = fold(table, JoinRules(**rules))
    return [np.flatnonzero(folded.call == call).tolist() for call in range(folded.calls.num_rows)]


def right_share(told: Told, folded: Folded) -> float:
    """Share of the attempts that stand in a call with just those with which they belong."""
    ours: dict[int, set[int]] = {}
    theirs: dict[int, set[int]] = {}
    for row, (mine, true) in enumerate(zip(folded.call.tolist(), told.call, strict=True)):
        ours.setdefault(mine, set()).add(row)
        theirs.setdefault(true, set()).add(row)
    pairs = zip(folded.call.tolist(), told.call, strict=True)
    return float(np.mean([ours[mine] == theirs[true] for mine, true in pairs]))


def test_a_retry_joins_the_failed_attempt_whose_count_is_one_less() -> None:
    rows = [sent(0.0, retry_index=0), sent(1.5, retry_index=1), sent(3.5, "ok", retry_index=2)]
    assert calls(log(*rows)) == [[0, 1, 2]]


def test_a_count_of_zero_begins_a_call() -> None:
    assert calls(log(sent(0.0, retry_index=0), sent(1.5, "ok", retry_index=0))) == [[0], [1]]


def test_a_retry_joins_what_has_its_size_not_what_is_nearer() -> None:
    rows = [
        sent(0.0, retry_index=0, request_bytes=500),
        sent(0.2, retry_index=0, request_bytes=900),
        sent(1.5, "ok", retry_index=1, request_bytes=500),
    ]
    assert calls(log(*rows)) == [[0, 2], [1]]


def test_nothing_joins_an_attempt_that_succeeded() -> None:
    assert calls(log(sent(0.0, "ok", body_hash="x"), sent(1.5, "ok", body_hash="x"))) == [[0], [1]]
    assert calls(log(sent(0.0, "ok", retry_index=0), sent(1.5, "ok", retry_index=1))) == [[0], [1]]
    assert calls(log(sent(0.0, "ok", idempotency_key="x"), sent(1.5, "ok", idempotency_key="x"))) == [[0], [1]]


def test_a_retry_of_what_is_not_in_the_log_is_counted() -> None:
    account = fold(log(sent(1.5, "ok", retry_index=1))).account
    assert account.unmatched_retries == 1


@pytest.mark.parametrize("name", ["idempotency_key", "trace_id"])
def test_an_id_that_a_failed_attempt_had_too_is_certain(name: str) -> None:
    folded = fold(log(sent(0.0, **{name: "x"}), sent(1.5, "ok", **{name: "x"}), sent(1.6, "ok", **{name: "y"})))
    assert folded.call.tolist() == [0, 0, 1]
    assert folded.calls["retry_source"].to_pylist() == [name.replace("_", " "), None]
    assert folded.calls["retry_certainty"].to_pylist() == ["certain", None]


def test_one_trace_of_unequal_prompts_is_no_retry() -> None:
    rows = [sent(0.0, trace_id="x", prompt_tokens=10), sent(1.5, "ok", trace_id="x", prompt_tokens=70)]
    assert calls(log(*rows)) == [[0], [1]]


def test_an_equal_body_of_the_same_caller_after_a_failure_is_a_guess() -> None:
    folded = fold(log(sent(0.0, body_hash="x"), sent(1.5, "ok", body_hash="x")))
    assert folded.calls["retry_source"].to_pylist() == ["body hash"]
    assert folded.calls["retry_certainty"].to_pylist() == ["inferred"]
    assert calls(log(sent(0.0, body_hash="x"), sent(1.5, "ok", body_hash="x", tenant="v"))) == [[0], [1]]


def test_two_attempts_that_would_fit_are_ambiguous() -> None:
    rows = [sent(0.0, body_hash="x"), sent(0.1, body_hash="x"), sent(1.5, "ok", body_hash="x")]
    folded = fold(log(*rows))
    assert folded.account.rules[0].ambiguous == 1
    assert sorted(folded.calls["observed_attempts"].to_pylist()) == [1, 2]


@pytest.mark.parametrize(("start", "joined"), [(1.2, True), (9.9, True), (10.2, False), (0.5, False)])
def test_a_retry_begins_within_the_window_after_the_end(start: float, joined: bool) -> None:
    assert calls(log(sent(0.0, body_hash="x"), sent(start, "ok", body_hash="x"))) == (
        [[0, 1]] if joined else [[0], [1]]
    )


def test_the_window_is_the_users_to_say() -> None:
    rows = [sent(0.0, body_hash="x"), sent(15.0, "ok", body_hash="x")]
    assert calls(log(*rows)) == [[0], [1]]
    assert calls(log(*rows), retry_window_s=20.0) == [[0, 1]]


def test_a_marked_retry_may_have_waited_as_long_as_it_was_told_to() -> None:
    rows = [sent(0.0, "rejected", retry_index=0), sent(61.0, "ok", retry_index=1)]
    assert calls(log(*rows)) == [[0, 1]]


def test_without_guesses_only_marks_join() -> None:
    guess = [sent(0.0, body_hash="x"), sent(1.5, "ok", body_hash="x")]
    mark = [sent(20.0, retry_index=0, body_hash="y"), sent(21.5, "ok", retry_index=1, body_hash="y")]
    assert calls(log(*guess, *mark), infer=False) == [[0], [1], [2, 3]]


def test_units_of_a_log_are_joined_whole() -> None:
    rows = [
        sent(0.0, "error", retry_group="line 1", retry_index=0),
        sent(1.0, "timeout", retry_group="line 1", retry_index=0),
        sent(2.5, "ok", retry_group="line 2", retry_index=1),
    ]
    assert calls(log(*rows)) == [[0, 1, 2]]


def test_sizes_that_tell_requests_apart_join_retries() -> None:
    told = tell(Incident(seed=3))
    folded = fold(with_prompts(told.table("gateway", "retry_index")))
    assert folded.account.sizes_tell
    assert {rule.name for rule in folded.account.rules} == {"sizes"}
    assert right_share(told, folded) >= 0.98


def test_sizes_that_all_requests_have_join_nothing() -> None:
    told = tell(Incident(seed=3))
    for row in told.gateway:
        row["request_bytes"] = 4096
    folded = fold(with_prompts(told.table("gateway", "retry_index")))
    assert folded.account.sizes_tell is False
    assert folded.account.joined_calls == 0


@pytest.mark.parametrize(
    "incident",
    [
        Incident(seed=1),
        Incident(seed=2, timeout_s=0.5),
        Incident(seed=3, timeout_s=30.0, retries=5),
        Incident(seed=4, rate_per_s=30.0, calls=1000, users=200),
        Incident(seed=5, slow_share=0.9, retries=3),
    ],
    ids=["plain", "short", "patient", "busy", "overload"],
)
@pytest.mark.parametrize("without", [(), ("client_timeout_s",), ("retry_index",)])
def test_retries_of_many_kinds_of_clients_are_joined_to_the_right_call(
    incident: Incident, without: tuple[str, ...]
) -> None:
    told = tell(incident)
    assert right_share(told, fold(with_prompts(told.table("gateway", *without)))) >= 0.98


def test_counts_alone_join_by_the_usual_pause() -> None:
    told = tell(Incident(seed=6, users=40))
    folded = fold(with_prompts(told.table("gateway", "request_bytes")))
    assert {rule.name for rule in folded.account.rules} == {"retry count alone"}
    assert right_share(told, folded) >= 0.9


def with_prompts(table: pa.Table) -> pa.Table:
    """A gateway's log knows no lengths; here all are one, so that every attempt is a call's."""
    return table.set_column(
        table.column_names.index("prompt_tokens"),
        table.schema.field("prompt_tokens"),
        pa.array([1] * table.num_rows, pa.int32()),
    )
