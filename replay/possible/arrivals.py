"""When calls arrive: as the trace has it, or where a turn waits for the one before it, no sooner than it can."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from replay.engine import state as st
from replay.engine.intake import column, sessions


class Arrivals(NamedTuple):
    """Of each call of a table, in its order."""

    earliest_s: npt.NDArray[np.float64]
    moves: npt.NDArray[np.bool_]
    """Whether it arrives when the turn before it has ended, and the user has thought: later, where service is slow."""


def arrivals_of(calls: pa.Table) -> Arrivals:
    """When each call can arrive at the earliest: the turn before it may end as soon as it begins, by being refused."""
    earliest = np.array(column(calls, "arrival_s", 0.0, np.float64))
    moves = np.zeros(len(earliest), bool)
    following, think_s = sessions(calls)
    for turn in np.flatnonzero(following != st.NONE).tolist():  # a turn comes after the one before it
        after = following[turn]
        earliest[after] = earliest[turn] + think_s[after]
        moves[after] = True
    return Arrivals(earliest, moves)
