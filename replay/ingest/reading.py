"""One file, read: its attempts, and what became of each row."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from connectors.base import Dropped
from connectors.digests import digested
from connectors.files import head
from connectors.registry import connector, guess
from replay.errors import BadInput
from replay.ingest.clock import Order
from replay.ingest.report import FileReport
from trace_schema.attempts import ATTEMPTS
from trace_schema.fold import FOLDED

Progress = Callable[[float], None]
KEPT = [
    *FOLDED,
    "source_file",
    "source_row",
    "source_format",
    "source_request_id",
    "engine_request_id",
    "finish_reason",
]
"""Columns of ATTEMPTS that a trace is made of."""


def read_file(
    path: str,
    format: str | None,
    mapping: Mapping[str, str] | None,
    options: Mapping[str, Any] | None,
    on_progress: Progress,
) -> tuple[pa.Table, FileReport]:
    """The attempts of one file, and what became of its rows."""
    if os.path.isdir(path):
        raise BadInput.at(path, "is a directory; name its files")
    if format is None:
        reader, confidence = guess(head(path), path, mapping, options)
    else:
        reader, confidence = connector(format, mapping, options), 1.0
        if not head(path):
            raise BadInput.at(path, "the file is empty")
    dropped, batches, read, order = Dropped(), [], 0, Order()
    expected = rows_expected(path)
    with digested(path) as sha256:
        for batch in reader.read(path):
            batches.append(batch.attempts.select(KEPT))
            order.see(batches[-1])
            read += batch.rows_read
            dropped.merge(batch.dropped)
            on_progress(min(read / expected, 1.0))
        table = pa.concat_tables([ATTEMPTS.arrow.empty_table().select(KEPT), *batches])
        counts = (read, read - dropped.total, dropped.reasons, order.inversions)
        notes = reader.notes(table) if hasattr(reader, "notes") else []
        return table, FileReport(path, reader.name, confidence, sha256(), *counts, notes)


def rows_expected(path: str) -> float:
    """About how many rows a file has, from its size and the lines in its first bytes; compressed ones have more."""
    start = head(path)
    bytes_per_row = len(start) / max(start.count(b"\n"), 1)
    return max(os.path.getsize(path) / bytes_per_row, 1.0)
