"""From the arrays of a finished run to the tables of `trace_schema.results`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from replay.engine import columns as cols
from replay.engine import state as st
from replay.engine.memory import LINE, ROWS_AT_ONCE, SKEW_LINES, release, zeros
from trace_schema.fields import Field, TableSchema
from trace_schema.results import ATTEMPT_OUTCOMES, CALL_OUTCOMES, EXECUTIONS, REPLICAS, STEPS, TIMELINE

CHARGES = {
    "computed_prompt_tokens": st.COMPUTED_PROMPT,
    "recomputed_tokens": st.RECOMPUTED,
    "attended_prefill_ns": st.ATTENDED_PREFILL,
    "attended_decode_ns": st.ATTENDED_DECODE,
    "orphan_prefill_ns": st.ORPHAN_PREFILL,
    "orphan_decode_ns": st.ORPHAN_DECODE,
    "recompute_ns": st.RECOMPUTE,
    "poll_ns": st.POLL_COST,
    "held_slot_ns": st.HELD_SLOT,
    "marginal_ns": st.MARGINAL,
    "kv_block_ns": st.KV_BLOCK,
    "stranded_kv_block_ns": st.STRANDED_KV_BLOCK,
    "stranded_kv_ns": st.STRANDED_KV,
    "salvaged_ns": st.SALVAGED,
}
"""Columns of EXECUTIONS that a run writes itself, and their rows in `State.charges`."""

Array = npt.NDArray[Any]
Words = Sequence[str | None]


class Sheet:
    """The columns of a table of `rows` rows, all zeros, to be written in compiled code; then an Arrow table over them.

    `words` are the words of each column of names, which is written as their codes; `written` the columns that are there
    already, of which one without any value is null in every row.
    """

    def __init__(
        self, schema: TableSchema, rows: int, words: Mapping[str, Words], written: Mapping[str, Array] | None = None
    ) -> None:
        self.schema, self.rows, self.words, self.written = schema, rows, words, written or {}
        fields = [field for field in schema.fields if field.name not in self.written]
        sizes = [self.size_of(field) for field in fields]
        starts = np.cumsum([0] + [size // LINE * LINE + (1 + SKEW_LINES) * LINE for size in sizes])
        memory = zeros(int(starts[-1]), np.uint8)
        self.columns = {
            field.name: memory[at : at + size].view(self.dtype_of(field))
            for field, size, at in zip(fields, sizes, starts[:-1], strict=True)
        }

    def dtype_of(self, field: Field) -> Any:
        """Type of a column as the kernels take it."""
        if field.name in self.words:
            return np.int8
        return np.uint8 if field.type == pa.bool_() else field.type.to_pandas_dtype()

    def size_of(self, field: Field) -> int:
        """Bytes of a column."""
        return self.rows // 8 + 1 if field.type == pa.bool_() else self.rows * np.dtype(self.dtype_of(field)).itemsize

    def table(self) -> pa.Table:
        """What has been written."""
        return pa.Table.from_arrays([self.array(field) for field in self.schema.fields], schema=self.schema.arrow)

    def array(self, field: Field) -> pa.Array:
        """A column as Arrow takes it: a time is null where it is infinite, a number where it is below 0."""
        if field.name in self.words:
            return named(field, self.columns[field.name], self.words[field.name])
        values = self.written[field.name] if field.name in self.written else self.columns[field.name]
        if len(values) == 0:
            return nulls(field, self.rows)
        valid = validity(field, values) if field.nullable else None
        return pa.Array.from_buffers(field.type, self.rows, [valid, pa.py_buffer(values)])


def named(field: Field, codes: Array, words: Words) -> pa.Array:
    """A column of names from their codes: a dictionary, or text where there may be none, whose code is 0."""
    if field.nullable:
        return names(codes, words) if codes.any() else nulls(field, len(codes))
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(words, pa.string()))


def nulls(field: Field, rows: int) -> pa.Array:
    """A column of nulls, which takes no memory."""
    text = field.type == pa.string()
    sizes = [rows // 8 + 1, 4 * (rows + 1), 0] if text else [rows // 8 + 1, rows * field.type.bit_width // 8]
    return pa.Array.from_buffers(field.type, rows, [pa.py_buffer(zeros(size, np.uint8)) for size in sizes])


def validity(field: Field, values: Any) -> pa.Buffer | None:
    """Bits of a column's validity; none where nothing is null."""
    holds = values < np.inf if field.type == pa.float64() else values >= 0
    return None if holds.all() else pa.py_buffer(np.packbits(holds, bitorder="little"))


def table(schema: TableSchema, **columns: Any) -> pa.Table:
    """A table of `schema`, from arrays by field name; none is null."""
    arrays = [pa.array(np.ascontiguousarray(columns[field.name])).cast(field.type) for field in schema.fields]
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def names(codes: Array, of: Words) -> pa.Array:
    """Text for small codes."""
    return pa.array(of, pa.string()).take(pa.array(codes))


def in_parts(rows: int) -> list[tuple[int, int]]:
    """First row and end of each part of a table."""
    return [(first, min(first + ROWS_AT_ONCE, rows)) for first in range(0, rows, ROWS_AT_ONCE)]


def attempt_outcomes(state: st.State, ids: Array, numbers: Array, fates: Array) -> pa.Table:
    """ATTEMPT_OUTCOMES of the calls numbered `ids`. Enters into `fates`, one for each execution, what they decide.

    `numbers` are 0, 1, 2, ... and as many as there are attempts, or more.
    The attempts of `state` are gone afterwards.
    """
    rows = int(state.progress["attempts"])
    sheet = Sheet(ATTEMPT_OUTCOMES, rows, {"outcome": cols.ATTEMPT_OUTCOME}, {"attempt_id": numbers[:rows]})
    to = cols.AttemptColumns(**sheet.columns)
    for first, end in in_parts(rows):
        cols.write_attempts(state.attempts, state.calls, ids, fates, first, end, to)
        release(state.attempts, first, end)
    return sheet.table()


def executions_table(state: st.State, ids: Array, numbers: Array, fates: Array) -> pa.Table:
    """EXECUTIONS of the calls numbered `ids`. `fates` is what `attempt_outcomes` has entered; for `numbers` see there.

    The executions of `state` are gone afterwards.
    """
    rows = int(state.progress["executions"])
    if state.settings["caching"]:
        cols.price_salvage(state.charges, rows)
    written = {name: state.charges[row, :rows] for name, row in CHARGES.items()}
    sheet = Sheet(
        EXECUTIONS, rows, {"ended": cols.ENDED, "fate": cols.FATE}, written | {"execution_id": numbers[:rows]}
    )
    to = cols.ExecutionColumns(**sheet.columns)
    for first, end in in_parts(rows):
        cols.write_executions(state.executions, state.calls, ids, fates, first, end, to)
        release(state.executions, first, end)
    return sheet.table()


def call_outcomes(state: st.State, ids: Array, idle_s: Array, travel_s: float) -> pa.Table:
    """CALL_OUTCOMES of the calls numbered `ids`, which would take `idle_s + travel_s` seconds on an idle replica.

    The calls of `state` are gone afterwards.
    """
    rows = len(state.calls)
    words = {"outcome": cols.CALL_OUTCOME, "reason": cols.CALL_REASON}
    written = {
        "call_id": ids,
        "client_timeout_s": state.timeouts,
        "user_cancel_s": state.patiences,
        "user_cancel_tokens": np.where(state.leaves_tokens > 0, state.leaves_tokens, st.NONE).astype(np.int32),
        "idle_e2e_s": idle_s,
    }
    sheet = Sheet(CALL_OUTCOMES, rows, words, written)
    to = cols.CallColumns(**sheet.columns)
    for first, end in in_parts(rows):
        cols.write_calls(state.calls, state.patiences, state.leaves_tokens, idle_s, travel_s, first, end, to)
        release(state.calls, first, end)
    return sheet.table()


def timeline(samples: Array) -> pa.Table:
    """TIMELINE."""
    return table(
        TIMELINE,
        sample_s=samples["time"],
        replica=samples["replica"],
        running=samples["running"],
        waiting=samples["waiting"],
        used_blocks=samples["used_blocks"],
        busy_ns=samples["busy_ns"],
        computed_prompt_tokens=samples["computed_prompt"],
        computed_output_tokens=samples["computed_output"],
        counter_prompt_tokens=samples["counter_prompt"],
        preemptions=samples["preemptions"],
    )


def replicas_table(state: st.State, end_s: float) -> pa.Table:
    """REPLICAS."""
    replicas = state.replicas
    return table(
        REPLICAS,
        replica=replicas["index"],
        end_s=np.full(len(replicas), end_s),
        steps=replicas["steps"],
        busy_ns=np.round(replicas["busy_s"] * st.NS).astype(np.int64),
        allocated_blocks=replicas["allocated"],
        released_blocks=replicas["released"],
        counter_prompt_tokens=replicas["counter_prompt"],
        computed_prompt_tokens=replicas["computed_prompt"],
        unfinished=replicas["running"] + replicas["waiting"],
    )


def steps_table(steps: Array) -> pa.Table:
    """STEPS."""
    return table(
        STEPS,
        replica=steps["replica"],
        step=steps["step"],
        scheduled_at_s=steps["scheduled_at"],
        start_s=steps["start"],
        duration_s=steps["duration"],
        prefill_tokens=steps["prefill"],
        decode_tokens=steps["decode"],
        context_tokens=steps["context"],
        running=steps["running"],
        waiting=steps["waiting"],
        free_blocks=steps["free"],
        preempted=steps["preempted"],
    )


def golden_steps(steps: Array) -> pa.Table:
    """The steps of one replica under the names of a recorded schedule."""
    return pa.table(
        {
            "step": steps["step"],
            "scheduled_at": steps["scheduled_at"],
            "start": steps["start"],
            "duration": steps["duration"],
            "prefill_tokens": steps["prefill"].astype(np.int64),
            "decode_tokens": steps["decode"].astype(np.int64),
            "context_tokens": steps["context"],
            "running": steps["running"].astype(np.int64),
            "waiting": steps["waiting"].astype(np.int64),
            "free_blocks": steps["free"],
            "preempted": steps["preempted"].astype(np.int64),
        }
    )


def golden_outcome(state: st.State, requests: Array) -> pa.Table:
    """What became of each request, under the names of a recorded schedule."""
    executions = state.executions[: state.progress["executions"]]
    order = np.argsort(requests, kind="stable")
    executions = executions[order]
    charges = state.charges[:, : len(executions)][:, order]

    def instant(name: str) -> pa.Array:
        values = executions[name]
        return pa.array(values, mask=np.isinf(values))

    return pa.table(
        {
            "request": requests[order].astype(np.int64),
            "admitted": instant("admitted"),
            "first_token": instant("first_output"),
            "finished": instant("end"),
            "status": names(executions["status"], (None, None, "length", "abort")),
            "computed_prompt_tokens": charges[st.COMPUTED_PROMPT],
            "computed_tokens": charges[st.COMPUTED],
            "cached_prompt_tokens": executions["cached"].astype(np.int64),
            "preemptions": executions["preemptions"].astype(np.int64),
            "output_tokens": executions["outputs"].astype(np.int64),
        }
    )
