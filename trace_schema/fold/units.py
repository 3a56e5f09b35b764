"""What a log itself joins: units of attempts, of which the rules then make calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trace_schema.columns import is_empty

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

DIFFERENT_LEAST = 3
"""Times that differ from which the step of a log's clock is known."""
FAILED = ("cancelled", "timeout", "rejected", "error")


@dataclass(slots=True)
class Units:
    """An entry a unit: an attempt, or those of one `retry_group`; its first (head) and its last (tail)."""

    of: Ints
    """The unit of each attempt."""
    head: Ints
    tail: Ints
    start: Floats
    """When its head was sent."""
    begun: Floats
    """When its tail was sent."""
    end: Floats
    """When its tail ended; when that was sent, where nothing says more."""
    count: Floats
    """Its head's retry count; NaN: unknown."""
    tail_count: Floats
    failed: Mask
    answered: Mask
    before: Ints
    """The unit that it is a retry of; -1: none."""
    claimed: Mask
    """Some unit is a retry of it."""

    @property
    def number(self) -> int:
        return len(self.head)

    def roots(self) -> Ints:
        """The first unit of each one's call."""
        root = np.arange(self.number)
        later = np.flatnonzero(self.before >= 0)
        for unit in later[np.argsort(self.start[later], kind="stable")]:
            root[unit] = root[self.before[unit]]
        return root


def units_of(attempts: pa.Table, failed: Mask) -> Units:
    """What `retry_group` joins, in order of time, and of the retry count at equal times."""
    n = attempts.num_rows
    start, length, count = (numeric(attempts, name) for name in ("arrival_s", "e2e_s", "retry_index"))
    group = attempts["retry_group"]
    if is_empty(group):
        unit = head = tail = np.arange(n)
    else:
        codes = codes_of(group)
        codes = np.where(codes < 0, np.arange(n) + n, codes)
        order = np.lexsort((np.nan_to_num(count), start, codes))
        first = np.flatnonzero(np.diff(codes[order], prepend=-1))
        size = np.diff(np.append(first, n))
        unit = np.empty(n, np.int64)
        unit[order] = np.repeat(np.arange(len(first)), size)
        head, tail = order[first], order[first + size - 1]
    return Units(
        of=unit,
        head=head,
        tail=tail,
        start=start[head],
        begun=start[tail],
        end=start[tail] + np.nan_to_num(length[tail]),
        count=count[head],
        tail_count=count[tail],
        failed=failed[tail],
        answered=np.asarray(pc.equal(attempts["status"], "ok"))[tail],
        before=np.full(len(head), -1),
        claimed=np.zeros(len(head), bool),
    )


def keys_of(attempts: pa.Table, needed: Sequence[str], beside: Sequence[str]) -> Ints:
    """A number for each combination of values; -1 where one of the `needed` columns says nothing."""
    code = np.zeros(attempts.num_rows, np.int64)
    known = np.ones(attempts.num_rows, bool)
    for name in (*needed, *beside):
        if is_empty(attempts[name]):
            known &= name not in needed
            continue
        own = codes_of(attempts[name])
        known &= (own >= 0) | (name not in needed)
        _, code = np.unique(code * (int(own.max()) + 2) + own + 1, return_inverse=True)
    return np.where(known, code, -1)


def codes_of(column: pa.ChunkedArray) -> Ints:
    """A number for each of a column's values; -1 for null."""
    return np.asarray(column.combine_chunks().dictionary_encode().indices.fill_null(-1)).astype(np.int64)


def numeric(attempts: pa.Table, name: str, missing: float = np.nan) -> Floats:
    """A column as floats."""
    if is_empty(attempts[name]):
        return np.full(attempts.num_rows, missing)
    return np.asarray(pc.fill_null(attempts[name].cast(pa.float64()), missing), dtype=np.float64)


def coarseness(seconds: Floats) -> float:
    """The step in which times are written, 1 or 0.1 s; 0 where it is finer, or too few differ to tell."""
    values = np.unique(seconds[~np.isnan(seconds)])
    if len(values) < DIFFERENT_LEAST:
        return 0.0
    whole = (step for step in (1.0, 0.1) if np.all(np.abs(values / step - np.round(values / step)) < 1e-6))
    return next(whole, 0.0)
