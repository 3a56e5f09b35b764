"""What an ingest says of itself: what became of every row, and what the log cannot show."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from replay.ingest.clock import resolution
from trace_schema.columns import is_empty, words
from trace_schema.fold import FoldAccount
from trace_schema.merge import MergeAccount

MERGE = "--with "
"""Stands in each note that merging another log would answer."""


class FileReport(msgspec.Struct, frozen=True):
    """What became of one file's rows: `rows_read` = `rows_emitted` + those dropped."""

    path: str
    format: str
    confidence: float
    """How sure the format was, from 0 to 1; 1 when it was given."""
    sha256: str
    rows_read: int
    rows_emitted: int
    dropped: dict[str, tuple[int, list[int]]]
    """By reason: how many rows, and the first of them (1-based)."""
    inversions: int = 0
    """Rows that were sent before the row above them."""
    notes: list[str] = []
    """What this file cannot show, and the setting of whoever wrote it that would, a sentence each."""


class Merged(MergeAccount, frozen=True, kw_only=True):
    """A log of the same traffic that was merged into another: what became of its rows."""

    into: str
    """Formats of the logs that it completes."""
    log: str
    """Its own format, and of what had been merged into it before."""
    set_aside: bool = False
    """Too few could be paired: the trace is made of this log alone, and the other one's rows are left out."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an ingest read, and what its log cannot show."""

    files: list[FileReport]
    calls: int
    attempts: int
    inversions: int
    """Rows that were sent before the row above them, in their file."""
    time_resolution_s: float
    jitter_s: float = 0.0
    """Over how long calls of one tick are spread, by lot."""
    aborts_visible: bool
    timeouts_visible: bool
    failures_visible: bool
    retries_visible: bool
    fold: FoldAccount | None = None
    """How attempts became calls."""
    merged: list[Merged] = []


def report_of(
    attempts: pa.Table, calls: pa.Table, files: list[FileReport], fold: FoldAccount, merged: Sequence[Merged] = ()
) -> Report:
    """The ingest report of all files together."""
    statuses = words(attempts["status"])
    return Report(
        files=[unadvised(file) for file in files] if any(not m.set_aside for m in merged) else files,
        calls=calls.num_rows,
        attempts=attempts.num_rows,
        inversions=sum(file.inversions for file in files),
        time_resolution_s=resolution(np.asarray(calls["arrival_s"])),
        aborts_visible=not is_empty(attempts["cancel_reason"]),
        timeouts_visible="timeout" in statuses or fold.departures.timed_out > 0,
        failures_visible=bool(statuses & {"timeout", "error", "rejected", "cancelled"}),
        retries_visible=fold.joined_calls > 0,
        fold=fold,
        merged=list(merged),
    )


def unadvised(file: FileReport) -> FileReport:
    """A file's report without the advice to merge it, which has been followed."""
    return msgspec.structs.replace(file, notes=[note for note in file.notes if MERGE not in note])
