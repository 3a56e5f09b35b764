"""Logs of the same traffic, as one: those that the user says are, and those whose ids say so."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from connectors.registry import connector_class
from replay.errors import BadInput
from replay.ingest.report import FileReport, Merged
from trace_schema.merge import ids_match, merge

CLIENTS, SPANS, ENGINE = 0, 1, 2
"""Whose account a log is: a gateway or a client tells outcomes, spans what finished, an engine all that it ran."""
PAIRED_LEAST = 0.5
"""Share of the shorter log that must be paired for a merge to be worth it."""
SIDES = {"clients": CLIENTS, "spans": SPANS, "engine": ENGINE}


@dataclass(frozen=True, slots=True)
class Log:
    """Attempts of one account, and what they are called."""

    side: int
    formats: tuple[str, ...]
    attempts: pa.Table

    def __add__(self, other: Log) -> Log:
        """Both, one after the other."""
        formats = tuple(dict.fromkeys((*self.formats, *other.formats)))
        return Log(min(self.side, other.side), formats, pa.concat_tables([self.attempts, other.attempts]))


def logs_of(tables: Sequence[pa.Table], files: Sequence[FileReport]) -> list[Log]:
    """The logs that files hold: those of one format are parts of one."""
    held: dict[str, Log] = {}
    for table, file in zip(tables, files, strict=True):
        side = SIDES[getattr(connector_class(file.format), "sees", "clients")]
        log = Log(side, (file.format,), table)
        held[file.format] = held[file.format] + log if file.format in held else log
    return list(held.values())


def as_one(given: Sequence[Log], beside: Sequence[Log], retry_window_s: float) -> tuple[pa.Table, list[Merged]]:
    """The attempts of all logs, and what was merged.

    Those `beside` are merged whatever their ids; those `given` where their ids match, else they follow each other. What
    engines and their spans say is put together first; what gateways say then tells which of it was a request. Raises
    BadInput when a log that is to be merged has no attempts.
    """
    for log in beside:
        if not log.attempts.num_rows:
            raise BadInput(f"--with: none of the rows of the {log.formats[0]} log can be used")
    told = [log for log in given if log.side == CLIENTS and log.attempts.num_rows]
    if not told:
        told = [log for log in beside if log.side == CLIENTS]
    gateways = functools.reduce(operator.add, told) if told else None
    # The fullest first: an engine's spans are of those of its requests that finished.
    rest = [log for log in (*given, *beside) if log.attempts.num_rows and not any(log is one for one in told)]
    rest.sort(key=lambda log: (-log.side, -log.attempts.num_rows))
    apart: list[Log] = []
    merged: list[Merged] = []
    inner: Log | None = None
    for log in [*rest, *([gateways] if gateways else [])]:
        if inner is None:
            inner = log
        elif beside or ids_match(log.attempts, inner.attempts):
            inner, said = together(log, inner, retry_window_s)
            merged.append(said)
        else:
            apart.append(inner)
            inner = log
    tables = [log.attempts for log in (*apart, inner) if log is not None]
    return (pa.concat_tables(tables) if tables else given[0].attempts), merged


def together(log: Log, inner: Log, retry_window_s: float) -> tuple[Log, Merged]:
    """`log` with what `inner` knows; where no gateway tells what was a request, all that an engine ran was one.

    A gateway's log that knows no lengths, and of which too little can be paired, tells less than the engine's alone.
    """
    main, other = (inner, log) if log.side != CLIENTS else (log, inner)
    attempts, account = merge(
        main.attempts, other.attempts, keep_rest=main.side != CLIENTS, retry_window_s=retry_window_s
    )
    aside = main.side == CLIENTS != other.side and account.paired_share < PAIRED_LEAST and unsized(main.attempts)
    said = Merged(
        into=" and ".join(main.formats),
        log=" and ".join(other.formats),
        set_aside=aside,
        **msgspec.structs.asdict(account),
    )
    if aside:
        return other, said
    return Log(min(main.side, other.side), (*main.formats, *other.formats), attempts), said


def unsized(attempts: pa.Table) -> bool:
    """Whether most attempts do not say how long their prompts were."""
    return bool(attempts["prompt_tokens"].null_count > 0.5 * attempts.num_rows)
