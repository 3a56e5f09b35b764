"""Calls of attempts that have nothing to do with each other: each is a call, and its columns are the call's.

Says the same as `fold`, in a fraction of its time and memory: what both tables hold is shared by them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trace_schema.calls import CALLS
from trace_schema.check import conform
from trace_schema.columns import alike, is_empty, words
from trace_schema.fields import BOOL, I32

Ints = npt.NDArray[np.int64]

SAME = ("model", "deployment", "tenant", "client", "max_tokens", "block_hashes", "hash_block_tokens", "stream")
"""What a call has from its attempt."""
READ = {*SAME, "arrival_s", "prompt_tokens", "output_tokens", "status", "priority"}
SILENT = {"source_format", "source_file", "source_row", "arrival_unix_ns", "time_resolution_s", "prompt_token_source",
          "arrival_basis", "http_status"}  # fmt: skip
"""Columns that say nothing of calls."""
ENDS = {"ok", "unknown"}


def stand_alone(attempts: pa.Table) -> bool:
    """Whether attempts say nothing that could join one to another, or tell how clients wait and try again."""
    spoken = {name for name in attempts.column_names if not is_empty(attempts[name])}
    return spoken <= READ | SILENT and words(attempts["status"]) <= ENDS


def calls_alone(attempts: pa.Table) -> pa.Table:
    """The calls (schema CALLS) of attempts that `stand_alone`, in order of arrival."""
    count = attempts.num_rows
    attempts = in_order(attempts.select([name for name in attempts.column_names if name in READ]))
    ids = pa.array(np.arange(count))
    output, censored = outputs(attempts)
    fields: dict[str, Any] = {
        "call_id": ids,
        "content_id": ids,
        "arrival_s": attempts["arrival_s"],
        "priority": filled(attempts["priority"], 0),
        "prompt_tokens": attempts["prompt_tokens"],
        "output_tokens": output,
        "output_censored": censored,
        "patience_censored": alike(True, BOOL, count),
        "observed_attempts": alike(1, I32, count),
        "observed_status": attempts["status"],
    }
    fields |= {name: attempts[name] for name in SAME}
    return conform(pa.table(fields), CALLS)


def in_order(attempts: pa.Table) -> pa.Table:
    """`attempts` in order of their arrivals, equal ones as they are; those that are in order already are not copied."""
    if is_sorted(attempts["arrival_s"]):
        return attempts
    order = np.argsort(np.asarray(attempts["arrival_s"]), kind="stable")
    columns = {name: taken(attempts[name], order) for name in attempts.column_names}
    return pa.table(columns)


def is_sorted(times: pa.ChunkedArray) -> bool:
    last = -np.inf
    for chunk in filter(len, map(np.asarray, times.chunks)):
        if chunk[0] < last or (chunk[1:] < chunk[:-1]).any():
            return False
        last = chunk[-1]
    return True


def taken(column: pa.ChunkedArray, order: Ints) -> pa.ChunkedArray:
    """A column in another order; one that says the same everywhere stays as it is."""
    if is_empty(column) or is_constant(column):
        return column
    if not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return pa.chunked_array([np.asarray(column)[order]], column.type)
    return column.take(pa.array(order))


def is_constant(column: pa.ChunkedArray) -> bool:
    return pa.types.is_string(column.type) and len(words(column)) == 1


def outputs(attempts: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """(output tokens of each call, at least 1; whether they are only a lower bound)."""
    output = attempts["output_tokens"]
    known = pc.min(output).as_py()
    if not output.null_count and known is not None and known > 0:
        return output, alike(False, BOOL, len(output))
    whole = pc.fill_null(pc.greater(output, 0), False)
    return pc.if_else(whole, output, 1), pc.invert(whole)


def filled(column: pa.ChunkedArray, value: int) -> pa.ChunkedArray:
    return alike(value, column.type, len(column)) if is_empty(column) else pc.fill_null(column, value)
