"""Does a table keep its schema? What does not is named by file, row and field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trace_schema.calls import CALLS
from trace_schema.errors import BadInput, UnknownName
from trace_schema.fields import TableSchema

AT_LEAST = {"s": 0, "ns": 0, "tokens": 0, "blocks": 0, "bytes": 0, "count": 0, "id": None, "name": None, "": None}
"""Smallest value by unit."""
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
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        try:
            columns.append(table[field.name].cast(field.type))
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
        least = AT_LEAST[field.unit]
        if least is None or not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
            continue
        wrong = pc.less(column, least)
        if pa.types.is_floating(field.type):
            wrong = pc.or_(wrong, pc.invert(pc.is_finite(column)))
        row = first_true(pc.fill_null(wrong, False))
        if row:
            problem = f"{column[row - 1].as_py()} is not a number of {field.unit} >= {least}"
            raise BadInput.at(file, problem, row=row, field=field.name)
    return table


def check_calls(table: pa.Table, file: object = "calls") -> pa.Table:
    """`check` against CALLS, and what holds between rows: ids 0, 1, 2, ..., arrivals in order, sizes of at least 1."""
    table = check(table, CALLS, file)
    if table.num_rows == 0:
        raise BadInput.at(file, "holds no calls")
    arrivals = np.asarray(table["arrival_s"])
    places: Iterable[tuple[str, np.ndarray[Any, Any], str]] = (
        ("call_id", np.asarray(table["call_id"]) != np.arange(table.num_rows), "ids must be 0, 1, 2, ... in order"),
        ("arrival_s", np.diff(arrivals, prepend=arrivals[0]) < 0, "arrives before the call above it"),
        ("arrival_s", arrivals > LATEST_S, f"is after {LATEST_S:g} s; times are in seconds"),
        ("prompt_tokens", np.asarray(table["prompt_tokens"]) < 1, "a prompt has at least 1 token"),
        ("output_tokens", np.asarray(table["output_tokens"]) < 1, "an output has at least 1 token"),
    )
    for name, wrong, problem in places:
        if wrong.any():
            raise BadInput.at(file, problem, row=int(np.argmax(wrong)) + 1, field=name)
    return table


def first_true(mask: pa.ChunkedArray) -> int:
    """1-based place of the first true value, 0 when there is none."""
    return int(pc.index(mask, pa.scalar(True)).as_py()) + 1
