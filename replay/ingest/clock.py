"""The times of a log: one clock, counted from its start, and how finely it tells."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replay.errors import BadInput
from trace_schema.attempts import ATTEMPTS
from trace_schema.check import first_true

Floats = npt.NDArray[np.float64]

QUIET_HEAD_MOST_S = 3600.0
"""A log whose first call comes later than this counts from a zero that is not its own start."""
BINS_LEAST = 10
"""Distances between times from which a log's bins are inferred."""
PART_ROWS = 1 << 18
"""Rows that are looked at together: their times fit into a cache."""


def refuse_two_clocks(attempts: pa.Table) -> None:
    """Raises BadInput when some times count from 1970 and others do not: no one span holds both."""
    if 0 < attempts["arrival_unix_ns"].null_count < attempts.num_rows:
        row = first_true(attempts["arrival_unix_ns"].is_null())
        where = attempts.slice(row - 1, 1).to_pylist()[0]
        problem = f"{where['arrival_s']:g} is no time since 1970, as others are; correct it or take the row out"
        raise BadInput.at(where["source_file"], problem, row=where["source_row"], field="arrival_s")


def from_start(attempts: pa.Table) -> pa.Table:
    """`attempts` whose times count from the start of the log.

    That is the first arrival, where times count from 1970 or from a zero that lies more than `QUIET_HEAD_MOST_S` before
    it, as those of monotonic clocks and of parts of long traces do; else the log's own zero.
    """
    absolute = attempts["arrival_unix_ns"].null_count == 0
    logged = attempts["arrival_unix_ns" if absolute else "arrival_s"]
    first = pc.min(logged).as_py()
    if not absolute and (first is None or first <= QUIET_HEAD_MOST_S):
        return attempts
    seconds = [pa.array((np.asarray(chunk) - first) / (1e9 if absolute else 1.0)) for chunk in logged.chunks]
    field = ATTEMPTS.arrow.field("arrival_s")
    return attempts.set_column(attempts.column_names.index(field.name), field, pa.chunked_array(seconds, field.type))


class Order:
    """How many rows of a file were sent before the row above them."""

    def __init__(self) -> None:
        self.inversions = 0
        self.last = -math.inf

    def see(self, attempts: pa.Table) -> None:
        """The next rows of the file."""
        absolute = attempts["arrival_unix_ns"].null_count == 0
        for chunk in attempts["arrival_unix_ns" if absolute else "arrival_s"].chunks:
            times = np.asarray(chunk)
            if len(times):
                self.inversions += int(times[0] < self.last) + int(np.count_nonzero(times[1:] < times[:-1]))
                self.last = times[-1]


def resolution(times: Floats) -> float:
    """The smallest difference that the times can show; 0 when they are finer than a millisecond.

    Bins, when the times of two rows and more are the same and all others lie about equally far apart; else the coarsest
    of 1, 0.1, 0.01 and 0.001 s of which all times are multiples.
    """
    if any((part[1:] < part[:-1]).any() for part in parts(times)):
        times = np.sort(times)
    if BINS_LEAST <= sum(int(np.count_nonzero(np.diff(part))) for part in parts(times)) <= len(times) / 2:
        gaps = np.concatenate([gaps[gaps > 0] for gaps in map(np.diff, parts(times))])
        if gaps.min() >= 0.9 * np.median(gaps):
            return float(f"{np.median(gaps):.3g}")
    for step in (1.0, 0.1, 0.01, 0.001):
        if all(np.all(np.abs(part / step - np.round(part / step)) < 1e-6) for part in parts(times)):
            return step
    return 0.0


def parts(times: Floats) -> Iterator[Floats]:
    """Some of the times after the others, each time with the last one before them."""
    for start in range(0, len(times), PART_ROWS):
        yield times[max(start - 1, 0) : start + PART_ROWS]
