"""From log files to a trace."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from connectors.files import head
from replay.errors import BadConfig, BadInput
from replay.ingest.calls import calls_of
from replay.ingest.choosing import Choice, chosen
from replay.ingest.clock import from_start, refuse_two_clocks
from replay.ingest.jitter import spread_within
from replay.ingest.merging import as_one, logs_of
from replay.ingest.reading import KEPT, Progress, Reading, read_source
from replay.ingest.report import FileReport, Merged, report_of
from replay.ingest.sources import Source, sources
from replay.ingest.trace import About, Trace, trace_in
from replay.ingest.turns import Loop, in_loop
from replay.ingest.users import SYNTHETIC, lay_users, made_trace, refuse_beside_synthetic, scale_trace
from replay.phases import detect
from trace_schema.attempts import ATTEMPTS
from trace_schema.check import check_calls
from trace_schema.fold import RETRY_WINDOW_S, JoinRules

RULES = JoinRules()


def ingest(
    paths: Sequence[str],
    *,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    synthetic: Mapping[str, Any] | None = None,
    scale: Mapping[str, Any] | None = None,
    sessions: Loop | None = None,
    where: str | None = None,
    sample: float | None = None,
    bytes_per_token: float | None = None,
    jitter_within_resolution: bool = False,
    seed: int = 0,
    beside: Sequence[str] = (),
    retry_window_s: float = RETRY_WINDOW_S,
    infer: bool = True,
    keep_attempts: bool = False,
    strict: bool = False,
    on_progress: Progress | None = None,
) -> Trace:
    """Read logs as one trace.

    Parameters
    ----------
    paths
        Files, URIs, patterns of either, or - for the standard input; formats may differ. Or synthetic:WORKLOAD alone,
        whose `options` are those of docs/synthetic.md.
    format
        A name of `connectors.registry`; guessed from each file's first bytes when absent.
    mapping
        Column of the file by field of ATTEMPTS, for CSV, Parquet and JSON lines.
    options
        What the format's record `Options` lets the user say, by its keys.
    synthetic
        Users to lay over the log, which shows none: see `lay_users`.
    scale
        More or fewer sessions, longer or shorter calls: see `scale_trace`. It comes after everything else.
    sessions
        open: a turn of a session comes when it came; closed: after the one before, and its user's time to think.
    where
        What the attempts of the trace have in common: a condition on columns of ATTEMPTS, in the SQL of DuckDB.
    sample
        Share of the sessions that is kept; where there are none, of the calls or the callers.
    bytes_per_token
        Estimates prompts of which only the bytes are known.
    jitter_within_resolution
        Spread the calls of one tick of the log's clock over it.
    seed
        Of `sample` and of `jitter_within_resolution`.
    beside
        Logs of the same traffic, of whatever formats, that are merged with the others: an engine's with its gateway's.
    retry_window_s
        A retry begins at most so long after the attempt that it repeats ended.
    infer
        Join attempts by guess too, where the log does not say which belong to one call.
    keep_attempts
        Keep the attempts beside their calls: `Trace.attempts`.
    strict
        Refuse a log with a row that cannot be used, instead of dropping the row.
    on_progress
        Called now and then with the share of the files that has been read, by a guess at their rows.

    Raises
    ------
    BadInput
        A file cannot be read, its format is unknown, or no row of it can be used.
    BadConfig
        A mapping, an option, a condition or a share that cannot be.
    """
    if any(path.startswith(SYNTHETIC) for path in paths):
        others = {"format": format, "map": mapping, "synthetic": synthetic, "where": where, "sample": sample}
        refuse_beside_synthetic(paths, {**others, "with": beside})
        return reshaped(made_trace(paths[0], options), None, scale, sessions)
    asked = (format, mapping, options, where, sample, beside)
    if len(paths) == 1 and not any(asked) and (made := trace_at(paths[0])) is not None:
        return reshaped(made, synthetic, scale, sessions)
    refuse_impossible(retry_window_s, bytes_per_token)
    columns = KEPT if where is None else ATTEMPTS.names
    how = Reading(format=format, mapping=mapping, options=options, strict=strict, columns=columns)
    choice = Choice(where=where, sample=sample, seed=seed)
    rules = JoinRules(retry_window_s=retry_window_s, infer=infer)
    attempts, files, merged = gathered(sources(paths), sources(beside), how, retry_window_s, on_progress or silent)
    attempts = on_one_clock(attempts, files)
    if where is not None or sample is not None:
        attempts, files = chosen(attempts, files, choice)
        attempts = on_one_clock(attempts, files)
    jitter_seed = seed if jitter_within_resolution else None
    trace = trace_of(attempts, files, merged, rules, bytes_per_token, jitter_seed, keep_attempts=keep_attempts)
    return reshaped(trace, synthetic, scale, sessions)


def refuse_impossible(retry_window_s: float, bytes_per_token: float | None) -> None:
    """Raises BadConfig for a number that cannot be one of seconds, or of bytes."""
    if not 0 <= retry_window_s < math.inf:
        raise BadConfig(f"--retry-window {retry_window_s:g}: must be a number of seconds from 0 on, such as 9")
    if bytes_per_token is not None and not 0 < bytes_per_token < math.inf:
        raise BadConfig(f"--bytes-per-token {bytes_per_token:g}: must be a number above 0, such as 4")


def trace_at(path: str) -> Trace | None:
    """The trace in a local file; None where there is a log, or no file."""
    return trace_in(path) if os.path.isfile(path) and head(path).startswith(b"PAR1") else None


def reshaped(
    trace: Trace, synthetic: Mapping[str, Any] | None, scale: Mapping[str, Any] | None, sessions: Loop | None
) -> Trace:
    """The trace with the users, the loops and on the scale that are asked for."""
    trace = lay_users(trace, synthetic) if synthetic else trace
    if sessions is not None:
        calls, told = in_loop(trace.calls, sessions)
        trace = replace(trace, calls=check_calls(calls), about=msgspec.structs.replace(trace.about, sessions=told))
    return scale_trace(trace, scale) if scale else trace


def gathered(
    logs: Sequence[Source], beside: Sequence[Source], how: Reading, retry_window_s: float, on_progress: Progress
) -> tuple[pa.Table, list[FileReport], list[Merged]]:
    """The attempts of all logs, what became of the rows of each, and what was merged."""
    tables, files = read_all(logs, how, on_progress)
    others, more = read_all(beside, Reading(strict=how.strict, columns=how.columns), silent)
    attempts, merged = as_one(logs_of(tables, files), logs_of(others, more), retry_window_s)
    return attempts, [*files, *more], merged


def read_all(logs: Sequence[Source], how: Reading, on_progress: Progress) -> tuple[list[pa.Table], list[FileReport]]:
    """The attempts of each log, and what became of its rows."""
    tables, files = [], []
    for done, source in enumerate(logs):

        def within(share: float, done: int = done) -> None:
            on_progress((done + share) / len(logs))

        table, report = read_source(source, how, within)
        tables.append(table)
        files.append(report)
    return tables, files


def on_one_clock(attempts: pa.Table, files: Sequence[FileReport]) -> pa.Table:
    """`attempts`, whose times count from the start of the first log. Raises BadInput when there are none."""
    if attempts.num_rows == 0:
        reasons = "; ".join(f"{r} (row {rows[0]})" for f in files for r, (_, rows) in f.dropped.items())
        raise BadInput(f"{', '.join(f.path for f in files)}: no row can be used: {reasons or 'there are none'}")
    refuse_two_clocks(attempts)
    return from_start(attempts)


def trace_of(
    attempts: pa.Table,
    files: list[FileReport],
    merged: Sequence[Merged] = (),
    rules: JoinRules = RULES,
    bytes_per_token: float | None = None,
    jitter_seed: int | None = None,
    *,
    keep_attempts: bool = False,
) -> Trace:
    """The trace that attempts on one clock make. Raises BadInput."""
    calls, client, account, kept = calls_of(attempts, files, rules, bytes_per_token, keep_attempts=keep_attempts)
    report = report_of(attempts, calls, files, account, merged)
    if jitter_seed is not None and report.time_resolution_s:
        calls = spread_within(calls, report.time_resolution_s, jitter_seed)
        report = msgspec.structs.replace(report, jitter_s=report.time_resolution_s)
    phases, rule = detect(np.asarray(calls["arrival_s"]))
    return Trace(check_calls(calls), About(report=report, client=client, phases=phases, phase_rule=rule), kept)


def read_trace(path: str) -> Trace:
    """A trace file, or what is ingested on the way: a log, or synthetic:WORKLOAD. Raises BadInput and BadConfig.

    A URI is fetched first: s3://bucket/trace.parquet.
    """
    if path.startswith(SYNTHETIC):
        return made_trace(path)
    with Source(path).local() as local:
        if head(local).startswith(b"PAR1") and (trace := trace_in(local)) is not None:
            return trace
        (attempts,), files = read_all([Source(path, local)], Reading(), silent)
        return trace_of(on_one_clock(attempts, files), files)


def silent(share: float) -> None:
    """Progress that nobody hears."""
