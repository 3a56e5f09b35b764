"""One file, read: its attempts, and what became of each row."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from connectors.base import Connector, Dropped
from connectors.digests import digested
from connectors.files import head
from connectors.registry import connector, guess, looks_otherwise
from replay.errors import BadInput
from replay.ingest.clock import Order
from replay.ingest.report import FileReport
from replay.ingest.sources import Source
from replay.ingest.trace import is_trace
from trace_schema.attempts import ATTEMPTS
from trace_schema.columns import alike
from trace_schema.fold import FOLDED

Progress = Callable[[float], None]
KEPT = (
    *FOLDED,
    "source_file",
    "source_row",
    "source_format",
    "source_request_id",
    "engine_request_id",
    "finish_reason",
)
"""Columns of ATTEMPTS that a trace is made of."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How files are to be read."""

    format: str | None = None
    """A name of `connectors.registry`; guessed from each file's first bytes when absent."""
    mapping: Mapping[str, str] | None = None
    options: Mapping[str, Any] | None = None
    strict: bool = False
    """Refuse a file with a row that cannot be used."""
    columns: Sequence[str] = KEPT
    """What is kept of ATTEMPTS."""


def read_source(source: Source, how: Reading, on_progress: Progress) -> tuple[pa.Table, FileReport]:
    """The attempts of one log, and what became of its rows; both know it by its name. Raises BadInput and BadConfig."""
    with source.local() as path:
        table, report = read_file(path, how, on_progress)
        if how.strict and report.dropped:
            reason, (count, rows) = next(iter(report.dropped.items()))
            raise BadInput.at(path, f"{reason} ({count} such rows)", row=rows[0])
    if path == source.name:
        return table, report
    place, field = table.column_names.index("source_file"), table.schema.field("source_file")
    table = table.set_column(place, field, alike(source.name, field.type, table.num_rows))
    return table, msgspec.structs.replace(report, path=source.name)


def read_file(path: str, how: Reading, on_progress: Progress) -> tuple[pa.Table, FileReport]:
    """The attempts of one file, and what became of its rows."""
    start = head(path)
    if start.startswith(b"PAR1") and is_trace(path):
        raise BadInput.at(path, "is a trace already: name the logs that it was made of, to choose among their attempts")
    if how.format is None:
        return read_by(*guess(start, path, how.mapping, how.options), path, start, how, on_progress)
    reader = connector(how.format, how.mapping, how.options)
    if not start:
        raise BadInput.at(path, "the file is empty")
    try:
        table, report = read_by(reader, 1.0, path, start, how, on_progress)
    except BadInput as error:
        raise BadInput(f"{error}{looks_otherwise(start, path, reader.name)}") from error
    hint = "" if table.num_rows else looks_otherwise(start, path, reader.name)
    if hint:
        raise BadInput.at(path, f"holds no row of format {reader.name}{hint}")
    return table, report


def read_by(
    reader: Connector, confidence: float, path: str, start: bytes, how: Reading, on_progress: Progress
) -> tuple[pa.Table, FileReport]:
    """The attempts of a file that begins with `start`, by its connector, and what became of its rows."""
    dropped, batches, read, order = Dropped(), [ATTEMPTS.arrow.empty_table().select(list(how.columns))], 0, Order()
    expected = rows_expected(path, start)
    with digested(path) as sha256:
        for batch in reader.read(path):
            batches.append(batch.attempts.select(list(how.columns)))
            order.see(batches[-1])
            read += batch.rows_read
            dropped.merge(batch.dropped)
            on_progress(min(read / expected, 1.0))
        table = pa.concat_tables(batches)
        counts = (read, read - dropped.total, dropped.reasons, order.inversions)
        notes = reader.notes(table) if hasattr(reader, "notes") else []
        return table, FileReport(path, reader.name, confidence, sha256(), *counts, notes)


def rows_expected(path: str, start: bytes) -> float:
    """About how many rows a file has, from its size and the lines in its first bytes; compressed ones have more."""
    bytes_per_row = len(start) / max(start.count(b"\n"), 1)
    return max(os.path.getsize(path) / bytes_per_row, 1.0)
