"""The tables of results against a plain version of them, on records that no run would write."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from replay.engine import memory, tables
from replay.engine import state as st
from trace_schema.fields import TableSchema
from trace_schema.results import ATTEMPT_OUTCOMES, CALL_OUTCOMES, EXECUTIONS

Array = npt.NDArray[Any]
TRAVEL_S = 0.25
MANY = 2 * tables.ROWS_AT_ONCE + 12_345
"""Rows of more than two parts, the last of them broken."""


def some_times(rng: np.random.Generator, n: int) -> Array:
    return np.where(rng.random(n) < 0.4, np.inf, np.round(rng.random(n) * 100, 3))


def random_records(rng: np.random.Generator, n: int, dtype: np.dtype[Any]) -> Array:
    """Records in which everything is drawn, each field alone."""
    records = memory.zeros(n, dtype)
    assert dtype.names is not None
    for name in dtype.names:
        kind = dtype[name]
        if kind.kind == "f":
            records[name] = some_times(rng, n)
        else:
            top = {1: 2, 4: 10_000, 8: 10**16}[kind.itemsize]
            records[name] = rng.integers(0, top, n)
    return records


def random_state(seed: int, calls: int, executions: int, attempts: int, limits: bool) -> st.State:
    """A run that is over; `limits`: clients and users wait for some time only."""
    rng = np.random.default_rng(seed)
    spare, limited = 7, calls if limits else 0
    state = st.State(**dict.fromkeys(st.State._fields))._replace(
        calls=random_records(rng, calls, st.CALL),
        attempts=random_records(rng, attempts + spare, st.ATTEMPT),
        executions=random_records(rng, executions + spare, st.EXECUTION),
        timeouts=some_times(rng, limited),
        patiences=some_times(rng, limited),
        leaves_tokens=rng.integers(0, 3, limited).astype(np.int32) * rng.integers(0, 6_000, limited).astype(np.int32),
        charges=rng.integers(0, 10**10, (st.CHARGES, executions + spare)),
        settings={"caching": True},
        progress=np.zeros(1, st.PROGRESS)[0],
    )
    state.progress["attempts"], state.progress["executions"] = attempts, executions
    state.calls["arrival"] = np.round(np.cumsum(rng.random(calls)), 3)
    state.calls["status"] = rng.integers(0, st.STREAM_BROKEN + 1, calls)
    state.calls["stream"] = rng.integers(0, 3, calls)
    state.calls["delivered_by"] = rng.integers(-1, 5, calls)
    state.attempts["call"] = rng.integers(0, calls, len(state.attempts))
    state.attempts["status"] = rng.integers(0, st.SUPERSEDED + 1, len(state.attempts))
    state.attempts["execution"] = st.NONE
    if executions:
        state.attempts["execution"] = rng.integers(0, executions, len(state.attempts))
        no_execution = (state.attempts["status"] == st.REJECTED) | (state.attempts["status"] == st.OPEN)
        state.attempts["execution"][no_execution & (rng.random(len(no_execution)) < 0.5)] = st.NONE
    else:
        state.attempts["status"] = st.REJECTED
    state.executions["call"] = rng.integers(0, calls, len(state.executions))
    state.executions["status"] = rng.integers(0, 4, len(state.executions))
    state.charges[st.SALVAGED] = rng.integers(0, 100, len(state.executions))
    state.charges[st.COMPUTED_PROMPT] = rng.integers(0, 200, len(state.executions))
    return state


def plain_table(schema: TableSchema, columns: dict[str, Any]) -> pa.Table:
    """Lists, None where an optional time is infinite or an optional number is below 0."""
    arrays = []
    for field in schema.fields:
        values = columns[field.name].tolist()
        if field.nullable and field.type != pa.string():
            times = field.type == pa.float64()
            values = [None if (value == np.inf if times else value < 0) else value for value in values]
        arrays.append(pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def in_words(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without a dictionary: two may count their words in another order."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def spelt(codes: Array, *words: str | None) -> Array:
    return np.array(words, dtype=object)[codes]


WHY_FAILED = (
    "retries_exhausted", "budget_exhausted", "rejected:too_long", "deadline_exceeded", "rejected:queue_full",
    "rejected:shed", "rejected:throttled", "stream_not_retried",
)  # fmt: skip
"""Of calls, in the order of their statuses."""


def plain_calls(state: st.State, ids: Array, idle_s: Array) -> pa.Table:
    c = state.calls
    never = np.full(len(c), np.inf)
    patience = state.patiences if len(state.patiences) else never
    stop = state.leaves_tokens if len(state.leaves_tokens) else np.zeros(len(c), np.int32)
    idle = np.where(c["status"] == st.TOO_LONG, np.inf, idle_s + TRAVEL_S)
    reads_all = (stop <= 0) | (stop >= c["output"]) | (c["stream"] != st.STREAMED)
    columns = {
        "call_id": ids,
        "arrival_s": c["arrival"],
        "prompt_tokens": c["prompt"],
        "output_tokens": c["output"],
        "client_timeout_s": state.timeouts if len(state.timeouts) else never,
        "user_cancel_s": patience,
        "user_cancel_tokens": np.where(stop > 0, stop, st.NONE),
        "idle_e2e_s": idle,
        "eligible": (patience > idle_s + TRAVEL_S) & reads_all & (c["status"] != st.TOO_LONG),
        "outcome": spelt(c["status"], "unresolved", "delivered", "cancelled", *["failed"] * len(WHY_FAILED)),
        "reason": spelt(c["status"], None, None, None, *WHY_FAILED),
        "first_token_s": c["first_token"],
        "end_s": c["end"],
        "attempts": c["attempts"],
        "delivered_execution_id": c["delivered_by"],
    }
    return plain_table(CALL_OUTCOMES, columns)


def plain_attempts(state: st.State, ids: Array) -> pa.Table:
    a = state.attempts[: state.progress["attempts"]]
    columns = {
        "attempt_id": np.arange(len(a)),
        "call_id": ids[a["call"]],
        "attempt": a["number"],
        "execution_id": a["execution"],
        "joined": a["joined"] == 1,
        "start_s": a["start"],
        "first_token_s": a["first_token"],
        "end_s": a["end"],
        "outcome": spelt(a["status"], "unresolved", "ok", "timeout", "cancelled", "rejected", "superseded"),
    }
    return plain_table(ATTEMPT_OUTCOMES, columns)


def plain_fates(state: st.State) -> list[str]:
    x = state.executions[: state.progress["executions"]]
    delivering, streaming = set(), set()
    for a in state.attempts[: state.progress["attempts"]]:
        if a["status"] == st.OK:
            delivering.add(int(a["execution"]))
        streams = state.calls["stream"][a["call"]] == st.STREAMED
        if a["status"] == st.CANCELLED and a["first_token"] < np.inf and streams:
            streaming.add(int(a["execution"]))
    fates = []
    for i, (status, call) in enumerate(zip(x["status"], x["call"], strict=True)):
        if i in delivering:
            fates.append("delivered")
        elif i in streaming:
            fates.append("user_cancelled_stream")
        elif status == st.FINISHED and state.calls["status"][call] == st.DELIVERED:
            fates.append("duplicate")
        else:
            fates.append("running_at_end" if status in (st.QUEUED, st.RUNNING) else "lost")
    return fates


def plain_executions(state: st.State, ids: Array) -> pa.Table:
    x = state.executions[: state.progress["executions"]]
    charged = state.charges[:, : len(x)]
    computed = np.maximum(charged[st.COMPUTED_PROMPT], 1)
    share = np.minimum(charged[st.SALVAGED], computed) / computed
    ended = spelt(x["status"], "running_at_end", "running_at_end", "finished", "aborted")
    ended[(x["status"] == st.ABORTED) & np.isinf(x["admitted"])] = "never_admitted"
    columns = {
        "execution_id": np.arange(len(x)),
        "call_id": ids[x["call"]],
        "replica": x["replica"],
        "attempts": x["attempts"],
        "queued_s": x["queued"],
        "admitted_s": x["admitted"],
        "first_output_s": x["first_output"],
        "end_s": x["end"],
        "ended": ended,
        "fate": np.array(plain_fates(state), dtype=object),
        "prompt_tokens": x["prompt"],
        "cached_prompt_tokens": x["cached"],
        "computed_output_tokens": x["outputs"],
        "preemptions": x["preemptions"],
    }
    columns |= {name: charged[row] for name, row in tables.CHARGES.items()}
    prefill = charged[st.ATTENDED_PREFILL] + charged[st.ORPHAN_PREFILL]
    columns["salvaged_ns"] = (prefill * share).astype(np.int64)
    return plain_table(EXECUTIONS, columns)


@pytest.mark.parametrize("limits", [True, False])
@pytest.mark.parametrize(
    ("calls", "executions", "attempts"),
    [(1, 0, 1), (3, 1, 2), (8, 8, 8), (500, 900, 1_100), (MANY, MANY, MANY)],
)
def test_tables_hold_what_the_records_say(calls: int, executions: int, attempts: int, limits: bool) -> None:
    state = random_state(calls, calls, executions, attempts, limits)
    ids = np.arange(calls) * 3 + 5
    idle_s = np.random.default_rng(calls).random(calls) * 50
    wanted = plain_calls(state, ids, idle_s), plain_attempts(state, ids), plain_executions(state, ids)
    numbers, fates = memory.counted(max(attempts, executions)), np.zeros(executions, np.int8)
    of_attempts = tables.attempt_outcomes(state, ids, numbers, fates)
    of_executions = tables.executions_table(state, ids, numbers, fates)
    of_calls = tables.call_outcomes(state, ids, idle_s, TRAVEL_S)
    for got, want in zip((of_calls, of_attempts, of_executions), wanted, strict=True):
        got.validate(full=True)
        assert got.schema.equals(want.schema, check_metadata=True)
        for name in want.column_names:
            assert in_words(got[name]).equals(in_words(want[name])), name
