"""The times of a log: one clock, counted from its start, and how finely it tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.errors import BadInput
from trace_schema.attempts import ATTEMPTS
from trace_schema.check import first_true

QUIET_HEAD_MOST_S = 3600.0
"""A log whose first call comes later than this counts from a zero that is not its own start."""
BINS_LEAST = 10
"""Distances between times from which a log's bins are inferred."""


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
