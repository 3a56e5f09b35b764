"""JSON lines of one kind, as Arrow tables of a schema: at Arrow's speed where all lines are good, else line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import Dropped
from connectors.files import CUT_SHORT, counted, json_blocks, one_by_one, reason_of
from connectors.json_values import SNIFFED_LINES, decoded
from trace_schema.columns import alike

NULL_LINE = re.compile(rb"^\s*null\b", re.MULTILINE)
"""Arrow's reader crashes on a block whose first value is null."""
SAMPLED_BYTES = 64 << 10
Rows = np.ndarray[Any, np.dtype[np.int64]]


def tables(
    path: str, schema: pa.Schema, line: type[msgspec.Struct], *others: pa.Schema
) -> Iterator[tuple[pa.Table, Rows, Dropped]]:
    """(good lines in `schema`, their 1-based numbers, the lines that are none) of a file, many at a time.

    `line` has the schema's names as its fields, and says what is good where Arrow cannot read a block; so it does where
    a field that may not be null is. Keys that the schema does not name are left alone; blank lines are no lines. Blocks
    that are in one of the `others` come as they are.
    """
    decoder = msgspec.json.Decoder(line)
    for block, lines in counted(json_blocks(path)):
        dropped = Dropped()
        if block is None:
            dropped.add(CUT_SHORT, lines.start)
            yield schema.empty_table(), np.zeros(0, np.int64), dropped
            return
        table = next(filter(None, (table_of(block, kind) for kind in (schema, *others))), None)
        rows = np.arange(lines.start, lines.stop)
        if table is None or table.num_rows != len(lines):
            found, numbers = one_by_one(block.split(b"\n"), lines.start, decoder, reason_of, dropped)
            table = pa.table(
                {field.name: column([getattr(x, field.name) for x in found], field.type) for field in schema}
            )
            rows = np.asarray(numbers, np.int64)
        yield table, rows, dropped


def texts_of(block: bytes) -> pa.Table | None:
    """The lines of a block as a table of texts, if the first ones are of texts and the others have no other keys."""
    if not is_readable(block):
        return None
    first = [line for line in first_lines(block) if isinstance(line, dict)]
    if not all(isinstance(value, str) for line in first for value in line.values()):
        return None
    keys = dict.fromkeys(key for line in first for key in line)
    return parsed(block, pa.schema([(key, pa.string()) for key in keys]), "error")


def table_of(block: bytes, schema: pa.Schema) -> pa.Table | None:
    """The lines of a block as a table, if all are as they should be."""
    if not is_readable(block):
        return None
    # Each field that no line has costs as much as one that all have.
    table = parsed(block, named_first(block, schema), "error")
    table = parsed(block, schema, "ignore") if table is None else table
    if table is None:
        return None
    lists = (column for column in table.columns if pa.types.is_list(column.type))
    if any(pc.list_flatten(column).null_count for column in lists):
        return None
    columns = [
        table[field.name] if field.name in table.column_names else alike(None, field.type, table.num_rows)
        for field in schema
    ]
    holes = any(column.null_count for column, field in zip(columns, schema, strict=True) if not field.nullable)
    return None if holes else pa.table(columns, names=schema.names)


def parsed(block: bytes, schema: pa.Schema, others: str) -> pa.Table | None:
    """A block in a schema; what becomes of `others` is Arrow's word for keys that it does not name."""
    from pyarrow import json

    try:
        return json.read_json(
            pa.BufferReader(block),
            json.ReadOptions(use_threads=False, block_size=len(block)),
            json.ParseOptions(explicit_schema=pa.schema(map(nullable, schema)), unexpected_field_behavior=others),
        )
    except pa.ArrowException:
        return None


def named_first(block: bytes, schema: pa.Schema) -> pa.Schema:
    """The fields of a schema that a block's first lines name."""
    named = {key for line in first_lines(block) if isinstance(line, dict) for key in line}
    return pa.schema([field for field in schema if field.name in named])


def first_lines(block: bytes) -> list[Any]:
    """The values of a block's first lines; None for what cannot be read."""
    return [decoded(line) for line in block[:SAMPLED_BYTES].split(b"\n", SNIFFED_LINES)[:SNIFFED_LINES]]


def column(values: list[Any], type: pa.DataType) -> pa.Array:
    """The values in a type; integers too large for it as floats, so that they can be named."""
    try:
        return pa.array(values, type)
    except OverflowError:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())


def nullable(field: pa.Field) -> pa.Field:
    return field.with_nullable(True)


def is_readable(block: bytes) -> bool:
    """Whether Arrow's reader can be given a block."""
    return not (b"null" in block and NULL_LINE.search(block)) and is_utf8(block)


def is_utf8(block: bytes) -> bool:
    """Whether all of it is UTF-8, which Arrow's reader does not ask."""
    try:
        return block.isascii() or bool(block.decode())
    except UnicodeDecodeError:
        return False
