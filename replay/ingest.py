"""From log files to a trace: a Parquet file of calls that remembers what was read, guessed and dropped."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connectors.base import Dropped
from connectors.files import head
from connectors.registry import connector, guess
from connectors.synthetic import Added, Users, lay_over, make
from replay.errors import BadConfig, BadInput
from replay.files import parquet_bytes, write_whole
from replay.phases import Phase, around, detect
from replay.remote import fetched, is_uri
from trace_schema.attempts import ATTEMPTS
from trace_schema.check import check_calls, first_true
from trace_schema.fold import FOLDED, ObservedClient, fold

METADATA = b"replay.trace"
SYNTHETIC = "synthetic:"
"""Begins what stands in a file's place where a trace is made from nothing: synthetic:overload."""
QUIET_HEAD_MOST_S = 3600.0
"""A log whose first call comes later than this counts from a zero that is not its own start."""
Progress = Callable[[float], None]
BINS_LEAST = 10
"""Distances between times from which a log's bins are inferred."""
KEPT = [*FOLDED, "cancel_reason", "source_file", "source_row"]
"""Columns of ATTEMPTS that a trace is made of."""


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


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an ingest read, and what its log cannot show."""

    files: list[FileReport]
    calls: int
    attempts: int
    inversions: int
    """Rows that were sent before the row above them."""
    time_resolution_s: float
    aborts_visible: bool
    timeouts_visible: bool
    failures_visible: bool
    retries_visible: bool


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace file says of itself, beside its calls."""

    report: Report | None = None
    client: ObservedClient = ObservedClient()
    phases: list[Phase] = []
    phase_rule: str = ""
    added: Added | None = None
    """What is in it that nobody observed."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Calls (schema CALLS), and what is known of where they come from."""

    calls: pa.Table
    about: About

    @property
    def report(self) -> Report | None:
        return self.about.report

    @property
    def client(self) -> ObservedClient:
        return self.about.client

    @property
    def phases(self) -> list[Phase]:
        return self.about.phases


def ingest(
    paths: Sequence[str],
    *,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    synthetic: Mapping[str, Any] | None = None,
    strict: bool = False,
    on_progress: Progress | None = None,
) -> Trace:
    """Read logs as one trace.

    Parameters
    ----------
    paths
        Files or glob patterns; or synthetic:WORKLOAD alone, whose `options` are those of docs/synthetic.md.
    format
        A name of `connectors.registry`; guessed from each file's first bytes when absent.
    mapping
        Column of the file by field of ATTEMPTS, for CSV, Parquet and JSON lines.
    options
        What the format's record `Options` lets the user say, by its keys.
    synthetic
        Users to lay over the log, which shows none: see `lay_users`.
    strict
        Refuse a log with a row that cannot be used, instead of dropping the row.
    on_progress
        Called now and then with the share of the files that has been read, by a guess at their rows.

    Raises
    ------
    BadInput
        A file cannot be read, its format is unknown, or no row of it can be used.
    BadConfig
        A mapping or an option that the format does not have.
    """
    if any(path.startswith(SYNTHETIC) for path in paths):
        refuse_beside_synthetic(paths, {"format": format, "map": mapping, "synthetic": synthetic})
        return made_trace(paths[0], options)
    refuse_misplaced(options or {})
    tables, files = [], []
    expanded = expand(paths)
    for done, path in enumerate(expanded):

        def within(share: float, done: int = done) -> None:
            if on_progress is not None:
                on_progress((done + share) / len(expanded))

        table, report = read_file(path, format, mapping, options, within)
        if strict and report.dropped:
            reason, (count, rows) = next(iter(report.dropped.items()))
            raise BadInput.at(path, f"{reason} ({count} such rows)", row=rows[0])
        tables.append(table)
        files.append(report)
    attempts = pa.concat_tables(tables)
    if attempts.num_rows == 0:
        reasons = "; ".join(f"{r} (row {rows[0]})" for f in files for r, (_, rows) in f.dropped.items())
        raise BadInput(f"{', '.join(f.path for f in files)}: no row can be used: {reasons or 'there are none'}")
    refuse_two_clocks(attempts)
    attempts = from_start(attempts)
    calls, client = fold(attempts)
    phases, rule = detect(np.asarray(calls["arrival_s"]))
    about = About(report=report_of(attempts, calls, files), client=client, phases=phases, phase_rule=rule)
    trace = Trace(check_calls(calls), about)
    return lay_users(trace, synthetic) if synthetic else trace


def made_trace(path: str, options: Mapping[str, Any] | None = None) -> Trace:
    """The trace that synthetic:WORKLOAD names. Raises UnknownName and BadConfig."""
    name = path.removeprefix(SYNTHETIC)
    made = make(name, options)
    if made.overload_s is None:
        phases, rule = [Phase("all", 0.0)], f"{path} is made without an overload"
    else:
        phases, rule = around(*made.overload_s), f"{path} is made with this overload"
    return Trace(check_calls(made.calls), About(phases=phases, phase_rule=rule, added=made.added))


def lay_users(trace: Trace, options: Mapping[str, Any]) -> Trace:
    """`trace` with users laid over it: who leaves and when, how long clients wait; options as in docs/synthetic.md.

    Arrivals, lengths and everything else stay as they are. Raises BadConfig, also when the trace shows users already.
    """
    calls, added = lay_over(trace.calls, trace.client, options)
    return Trace(check_calls(calls), msgspec.structs.replace(trace.about, added=added))


def refuse_beside_synthetic(paths: Sequence[str], others: Mapping[str, Any]) -> None:
    """Raises BadConfig for what cannot stand beside a trace that is made from nothing."""
    path = next(path for path in paths if path.startswith(SYNTHETIC))
    if len(paths) > 1:
        raise BadConfig(f"{path} is a trace of its own: it cannot be read together with others")
    given = [name for name, value in others.items() if value]
    if given:
        hint = "say users with --option too" if given == ["synthetic"] else "it is no file"
        raise BadConfig(f"{path} takes no --{given[0]}: {hint}")


def refuse_misplaced(options: Mapping[str, Any]) -> None:
    """Raises BadConfig for an option of users that is given as one of the log's format."""
    for key in options:
        if key in Users.__struct_fields__:
            raise BadConfig(f"--option {key}: is no log's; lay users over a log with --synthetic {key}={options[key]}")


def expand(paths: Sequence[str]) -> list[str]:
    """The files that `paths` name, patterns expanded. Raises BadInput when one names none."""
    files = []
    for path in paths:
        found = sorted(glob.glob(path)) if any(c in path for c in "*?[") else [path]
        if not found:
            raise BadInput.at(path, "no file matches")
        files += found
    return files


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
    dropped, batches, read = Dropped(), [], 0
    expected = rows_expected(path)
    for batch in reader.read(path):
        batches.append(batch.attempts.select(KEPT))
        read += batch.rows_read
        dropped.merge(batch.dropped)
        on_progress(min(read / expected, 1.0))
    table = pa.concat_tables([ATTEMPTS.arrow.empty_table().select(KEPT), *batches])
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return table, FileReport(path, reader.name, confidence, digest, read, table.num_rows, dropped.reasons)


def rows_expected(path: str) -> float:
    """About how many rows a file has, from its size and the lines in its first bytes; compressed ones have more."""
    start = head(path)
    bytes_per_row = len(start) / max(start.count(b"\n"), 1)
    return max(os.path.getsize(path) / bytes_per_row, 1.0)


def refuse_two_clocks(attempts: pa.Table) -> None:
    """Raises BadInput when some times count from 1970 and others do not: no one span holds both."""
    relative = attempts["arrival_unix_ns"].is_null()
    row = first_true(relative)
    if row and attempts["arrival_unix_ns"].null_count < attempts.num_rows:
        where = attempts.slice(row - 1, 1).to_pylist()[0]
        problem = f"{where['arrival_s']:g} is no time since 1970, as others are; correct it or take the row out"
        raise BadInput.at(where["source_file"], problem, row=where["source_row"], field="arrival_s")


def from_start(attempts: pa.Table) -> pa.Table:
    """`attempts` whose times count from the start of the log.

    That is the first arrival, where times count from 1970 or from a zero that lies more than `QUIET_HEAD_MOST_S` before
    it, as those of monotonic clocks and of parts of long traces do; else the log's own zero.
    """
    if attempts["arrival_unix_ns"].null_count == 0:
        since = pc.subtract(attempts["arrival_unix_ns"], pc.min(attempts["arrival_unix_ns"]))
        seconds = pc.divide(since.cast(pa.float64(), safe=False), 1e9)
    else:
        first = pc.min(attempts["arrival_s"])
        if first.as_py() <= QUIET_HEAD_MOST_S:
            return attempts
        seconds = pc.subtract(attempts["arrival_s"], first)
    return attempts.set_column(attempts.column_names.index("arrival_s"), ATTEMPTS.arrow.field("arrival_s"), seconds)


def report_of(attempts: pa.Table, calls: pa.Table, files: list[FileReport]) -> Report:
    """The ingest report of all files together."""
    sent = np.asarray(attempts["arrival_s"])
    statuses = set(pc.unique(attempts["status"]).to_pylist())
    return Report(
        files=files,
        calls=calls.num_rows,
        attempts=attempts.num_rows,
        inversions=int((np.diff(sent) < 0).sum()),
        time_resolution_s=resolution(sent),
        aborts_visible=bool(np.asarray(pc.is_valid(attempts["cancel_reason"])).any()),
        timeouts_visible="timeout" in statuses,
        failures_visible=bool(statuses & {"timeout", "error", "rejected", "cancelled"}),
        retries_visible=calls.num_rows < attempts.num_rows,
    )


def resolution(times: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """The smallest difference that the times can show; 0 when they are finer than a millisecond.

    Bins, when the times of two rows and more are the same and all others lie about equally far apart; else the coarsest
    of 1, 0.1, 0.01 and 0.001 s of which all times are multiples.
    """
    gaps = np.diff(np.unique(times))
    if len(gaps) >= BINS_LEAST and len(times) >= 2 * len(gaps) and gaps.min() >= 0.9 * np.median(gaps):
        return float(f"{np.median(gaps):.3g}")
    for step in (1.0, 0.1, 0.01, 0.001):
        if np.all(np.abs(times / step - np.round(times / step)) < 1e-6):
            return step
    return 0.0


def write_trace(trace: Trace, path: str) -> None:
    """Write a trace as Parquet, whole or not at all. Raises BadConfig when `path` cannot be written."""
    table = trace.calls.replace_schema_metadata({METADATA: msgspec.json.encode(trace.about)})
    write_whole(path, parquet_bytes(table))


def read_trace(path: str) -> Trace:
    """A trace file, or what is ingested on the way: a log, or synthetic:WORKLOAD. Raises BadInput and BadConfig.

    A URI is fetched first: s3://bucket/trace.parquet.
    """
    if path.startswith(SYNTHETIC):
        return made_trace(path)
    if is_uri(path):
        with fetched(path) as local:
            try:
                return read_trace(local)
            except BadInput as error:
                raise BadInput(str(error).replace(local, path)) from error
    if os.path.isdir(path) or not head(path).startswith(b"PAR1"):
        return ingest([path])
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput.at(path, f"cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    if "call_id" not in table.column_names:
        return ingest([path])
    metadata = (table.schema.metadata or {}).get(METADATA)
    calls = check_calls(table, path)
    if metadata is None:
        phases, rule = detect(np.asarray(calls["arrival_s"]))
        return Trace(calls, About(phases=phases, phase_rule=rule))
    try:
        return Trace(calls, msgspec.json.decode(metadata, type=About))
    except msgspec.DecodeError as error:
        raise BadInput.at(path, f"its metadata was not written by this version: {error}") from error
