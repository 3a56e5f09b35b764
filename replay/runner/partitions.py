"""A trace in parts that do not interact: what is asked of one model says nothing to the engines of another.

Each part is replayed on a fleet of its own. Its replicas, attempts and executions are numbered apart, so that within a
policy, profile, fleet and seed every number is one thing, whatever the part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from replay.engine import Results

if TYPE_CHECKING:
    from collections.abc import Sequence

STRIDE = 1 << 40
"""Attempts and executions of part n are numbered from n * STRIDE."""


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a trace: which, and how many calls it has."""

    index: int
    name: str
    calls: int


@dataclass(frozen=True, slots=True)
class Parted:
    """The parts of a trace, and the calls of each (schema CALLS, with the numbers that they have in the trace)."""

    partitions: list[Partition]
    calls: list[pa.Table]


def parted(calls: pa.Table, by: Sequence[str]) -> Parted:
    """The parts of `calls` that differ in a column of `by`, in the order in which they first occur."""
    keys = [name for name in by if calls[name].null_count < calls.num_rows]
    if not keys:
        return Parted([Partition(index=0, name="all", calls=calls.num_rows)], [calls])
    places = [pc.fill_null(calls[name], "") for name in keys]
    names = pc.binary_join_element_wise(*places, "/").combine_chunks()
    found = pc.unique(names)
    if len(found) == 1:
        return Parted([Partition(index=0, name="all", calls=calls.num_rows)], [calls])
    tables = [calls.filter(pc.equal(names, name)).combine_chunks() for name in found]
    parts = [
        Partition(index=k, name=name.as_py().strip("/") or "unnamed", calls=table.num_rows)
        for k, (name, table) in enumerate(zip(found, tables, strict=True))
    ]
    return Parted(parts, tables)


def numbered(results: Results, index: int, replicas: int) -> Results:
    """The results of part `index`, whose fleet has `replicas`, under numbers that no other part has."""
    if index == 0:
        return results
    ids, engines = {"attempt_id", "execution_id", "delivered_execution_id"}, {"replica"}

    def moved(table: pa.Table) -> pa.Table:
        for k, name in enumerate(table.column_names):
            if name in ids or name in engines:
                offset = pa.scalar(index * (STRIDE if name in ids else replicas), table.schema.field(k).type)
                table = table.set_column(k, table.schema.field(k), pc.add(table[name], offset))
        return table

    return Results(
        calls=moved(results.calls),
        attempts=moved(results.attempts),
        executions=moved(results.executions),
        timeline=moved(results.timeline),
        replicas=moved(results.replicas),
    )
