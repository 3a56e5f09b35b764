"""Attempts in order of their calls."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trace_schema.columns import alike, is_empty
from trace_schema.fold.units import Floats, Ints, Mask, numeric


class Groups:
    """The attempts in order of (call, time), and where each call's begin and end. Calls are in order of arrival."""

    def __init__(self, attempts: pa.Table, call: Ints | None) -> None:
        n = attempts.num_rows
        start = numeric(attempts, "arrival_s")
        if call is None:
            self.order = np.argsort(start, kind="stable")
            self.size = np.ones(n, np.int64)
        else:
            order = np.lexsort((numeric(attempts, "retry_index", 0.0), start, call))
            first = np.flatnonzero(np.diff(call[order], prepend=-1))
            by_arrival = np.argsort(start[order[first]], kind="stable")
            self.size = np.diff(np.append(first, n))[by_arrival]
            moved = first[by_arrival] - (np.cumsum(self.size) - self.size)
            self.order = order[np.arange(n) + np.repeat(moved, self.size)]
        self.first = np.cumsum(self.size) - self.size
        self.last = self.first + self.size - 1

    @property
    def number(self) -> Ints:
        """The place of each attempt in its call, from 0."""
        return np.asarray(np.arange(len(self.order)) - np.repeat(self.first, self.size))

    @property
    def call(self) -> Ints:
        """The call of each attempt."""
        return np.repeat(np.arange(len(self.first)), self.size)


def at(table: pa.Table, places: Ints) -> pa.Table:
    """The rows at `places`; the table itself where those are all its rows in order, which spares a copy."""
    count = len(places)
    if count == table.num_rows and bool((places == np.arange(count)).all()):
        return table
    taken = pa.array(places)
    columns = [alike(None, c.type, count) if is_empty(c) else c.take(taken) for c in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def having(attempts: pa.Table, status: str) -> Mask:
    """Which attempts ended with `status`."""
    return np.asarray(pc.equal(attempts["status"], status))


def nullable(values: Floats, known: Mask) -> pa.Array:
    """The values where they are known and numbers, else null."""
    return pa.array(values, mask=~known | np.isnan(values))
