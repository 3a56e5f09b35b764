"""From log files to a trace."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from connectors.files import head
from replay.errors import BadInput
from replay.ingest.calls import calls_of
from replay.ingest.clock import from_start, refuse_two_clocks
from replay.ingest.reading import Progress, read_file
from replay.ingest.report import report_of
from replay.ingest.sources import expand
from replay.ingest.trace import About, Trace, trace_in
from replay.ingest.users import SYNTHETIC, lay_users, made_trace, refuse_beside_synthetic
from replay.phases import detect
from replay.remote import fetched, is_uri
from trace_schema.check import check_calls
from trace_schema.fold import JoinRules


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
    calls, client, account = calls_of(attempts, JoinRules(), None)
    phases, rule = detect(np.asarray(calls["arrival_s"]))
    about = About(report=report_of(attempts, calls, files, account), client=client, phases=phases, phase_rule=rule)
    trace = Trace(check_calls(calls), about)
    return lay_users(trace, synthetic) if synthetic else trace


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
    return trace_in(path) or ingest([path])
