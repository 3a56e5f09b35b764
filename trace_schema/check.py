"""Does a table keep its schema? What does not is named by file, row and field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trace_schema.calls import CALLS
from trace_schema.columns import alike, is_empty
from trace_schema.errors import BadInput, UnknownName
from trace_schema.fields import TableSchema

AT_LEAST = {"s": 0, "ns": 0, "tokens": 0, "blocks": 0, "bytes": 0, "count": 0, "id": None, "name": None, "": None}
"""Smallest value by unit."""
PART_ROWS = 1 << 18
"""Calls that are looked at together, for the sake of memory."""
LATEST_S = 1e11
"""3,000 years: a later arrival is a mistake, and would make a trace of too many windows."""


def conform(table: pa.Table, schema: TableSchema, file: object = "table") -> pa.Table:
    """`table` with exactly the columns and types of `schema`; absent optional columns become null.

    Raises BadInput for a missing, unknown or inconvertible column.
    """
    for name in table.column_names:
        if name not in schema.names:
            problem = str(UnknownName.of("column", name, schema.names))
            raise BadInput.at(file, problem)
    columns = []
    for field in schema.fields:
        if field.name not in table.column_names:
            if not field.nullable:
                raise BadInput.at(file, "the column is missing", field=field.name)
            columns.append(alike(None, field.type, table.num_rows))
            continue
        column = table[field.name]
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            reason = str(error).splitlines()[0]
            raise BadInput.at(file, f"cannot be read as {field.type}: {reason}", field=field.name) from error
    return pa.Table.from_arrays(columns, schema=schema.arrow)


def check(table: pa.Table, schema: TableSchema, file: object = "table") -> pa.Table:
    """`conform`, and every value is possible: no null where one is required, no negative count, no infinite time.

    Raises BadInput that names file, row (1-based) and field of the first offence.
    """
    table = conform(table, schema, file)
    for field in schema.fields:
        column = table[field.name]
        if not field.nullable and column.null_count:
            raise BadInput.at(file, "is null", row=first_true(pc.is_null(column)), field=field.name)
        row = first_impossible(column, AT_LEAST[field.unit])
        if row:
            problem = f"{column[row - 1].as_py()} is not a number of {field.unit} >= {AT_LEAST[field.unit]}"
            raise BadInput.at(file, problem, row=row, field=field.name)
    return table


def first_impossible(column: pa.ChunkedArray, least: int | None) -> int:
    """1-based place of the first number that is below `least` or not finite; 0 where there is none."""
    floating = pa.types.is_floating(column.type)
    if least is None or is_empty(column) or not (floating or pa.types.is_integer(column.type)):
        return 0
    if pc.min(column).as_py() >= least and not (floating and not pc.all(pc.is_finite(column)).as_py()):
        return 0
    wrong = pc.less(column, least)
    if floating:
        wrong = pc.or_(wrong, pc.invert(pc.is_finite(column)))
    return first_true(pc.fill_null(wrong, False))


def check_calls(table: pa.Table, file: object = "calls") -> pa.Table:
    """`check` against CALLS, and what holds between rows: ids 0, 1, 2, ..., arrivals in order, sizes of at least 1."""
    table = check(table, CALLS, file)
    if table.num_rows == 0:
        raise BadInput.at(file, "holds no calls")
    above, last = 0, 0.0
    for part in table.select(["call_id", "arrival_s", "prompt_tokens", "output_tokens"]).to_batches(PART_ROWS):
        ids, arrivals, prompts, outputs = (np.asarray(column) for column in part.columns)
        places: Iterable[tuple[str, np.ndarray[Any, Any], str]] = (
            ("call_id", ids != np.arange(above, above + len(ids)), "ids must be 0, 1, 2, ... in order"),
            ("arrival_s", np.diff(arrivals, prepend=last) < 0, "arrives before the call above it"),
            ("arrival_s", arrivals > LATEST_S, f"is after {LATEST_S:g} s; times are in seconds"),
            ("prompt_tokens", prompts < 1, "a prompt has at least 1 token"),
            ("output_tokens", outputs < 1, "an output has at least 1 token"),
        )
        for name, wrong, problem in places:
            if wrong.any():
                raise BadInput.at(file, problem, row=above + int(np.argmax(wrong)) + 1, field=name)
        if len(ids):
            above, last = above + len(ids), float(arrivals[-1])
    return table


def first_true(mask: pa.ChunkedArray) -> int:
    """1-based place of the first true value, 0 when there is none."""
    return int(pc.index(mask, pa.scalar(True)).as_py()) + 1
