"""Two logs of the same traffic, as one."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pyarrow as pa

from trace_schema.columns import is_empty
from trace_schema.fold.joins import RETRY_WINDOW_S
from trace_schema.merge.ids import owners_by_id, owners_by_trace
from trace_schema.merge.sides import Executions, Requests, fit_of
from trace_schema.merge.tables import Planner, merged_table, rest_of
from trace_schema.merge.times import is_proxied, offset_by_durations, take_by_time, take_chains, take_nearest

MATCHING_SHARE = 0.5
"""Share of the shorter log's rows whose ids the other has, from which both are of the same traffic."""


class MergeAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the rows of a log that was merged into another."""

    rows: int
    by_id: int = 0
    by_trace: int = 0
    by_chain: int = 0
    """Tries of a request of which another one was found: a proxy's own retries."""
    by_time: int = 0
    by_nearest: int = 0
    """Requests behind a proxy that came together with others: the nearest is taken, and may be another's."""
    left_out: int = 0
    """Rows that belong to no request of the other log."""
    added: int = 0
    """Rows that belong to no request of the other log, and are attempts of their own."""
    beside: int = 0
    """Rows that ran beside another of the same request, as the n answers of one do."""
    requests: int = 0
    incomplete: int = 0
    """Requests of the other log of which no row was found."""
    clock_offset_s: float = 0.0
    """By how much this log's clock is ahead of the other's."""

    @property
    def paired_share(self) -> float:
        """Share of the shorter log's rows that were paired."""
        return (self.by_id + self.by_trace + self.by_time + self.by_nearest) / max(min(self.rows, self.requests), 1)


def merge(
    main: pa.Table, other: pa.Table, *, keep_rest: bool, retry_window_s: float = RETRY_WINDOW_S
) -> tuple[pa.Table, MergeAccount]:
    """The attempts of `main`, with what `other` knows of them (both: columns of ATTEMPTS), and what became of its rows.

    `keep_rest`: rows of `other` that belong to none are attempts of their own; else they are left out.
    """
    requests, executions = Requests.of(main), Executions.of(other)
    counts: Counter[str] = Counter()
    for way, owners in (
        ("by_id", owners_by_id(main, requests.units.of, other)),
        ("by_trace", owners_by_trace(main, requests.units.of, other)),
    ):
        counts[way] = give(requests, executions, owners)
    shared_clock = is_empty(main["arrival_unix_ns"]) == is_empty(other["arrival_unix_ns"])
    offset = None if counts.total() else offset_by_durations(requests, executions) or 0.0
    fit = fit_of(requests, executions, offset)
    if shared_clock:
        proxied = is_proxied(requests, executions)
        while given := take_by_time(requests, executions, fit, retry_window_s):
            # Each pair says more of how starts and sizes differ, and leaves fewer to choose among.
            counts["by_time"] += given
            fit = fit_of(requests, executions, fit.offset_s)
        if proxied:
            counts["by_nearest"] = take_nearest(requests, executions, fit, retry_window_s)
        counts["by_chain"] = take_chains(requests, executions, fit, retry_window_s)
    planner = Planner(requests, executions, fit)
    table = merged_table(requests, executions, planner.plan())
    rest = rest_of(executions)
    account = MergeAccount(
        rows=other.num_rows,
        **counts,
        left_out=0 if keep_rest else rest.num_rows,
        added=rest.num_rows if keep_rest else 0,
        beside=planner.beside,
        requests=requests.units.number,
        incomplete=int((~requests.taken).sum()),
        clock_offset_s=round(fit.offset_s, 3),
    )
    return pa.concat_tables([table, rest]) if keep_rest and rest.num_rows else table, account


def give(requests: Requests, executions: Executions, owners: list[list[int]]) -> int:
    """Note the owners of rows that have none; of several, the one within whose time a row lies. How many were given."""
    given = 0
    for row, units in enumerate(owners):
        if executions.owner[row] >= 0 or not units:
            continue
        unit = units[0] if len(units) == 1 else nearest(requests, float(executions.start[row]), units)
        executions.owner[row] = unit
        requests.taken[unit] = True
        given += 1
    return given


def nearest(requests: Requests, time: float, units: list[int]) -> int:
    """The last of `units` that began before `time`; the first where none did."""
    begun = [unit for unit in units if requests.start[unit] <= time]
    return max(begun, key=lambda unit: float(requests.start[unit])) if begun else units[0]


def ids_match(main: pa.Table, other: pa.Table) -> bool:
    """Whether two logs are of the same traffic, by their ids alone."""
    owners = owners_by_id(main, np.arange(main.num_rows), other)
    found = sum(map(bool, owners))
    return found > 0 and found >= MATCHING_SHARE * min(main.num_rows, other.num_rows)
