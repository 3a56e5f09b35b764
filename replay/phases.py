"""Before, during and after an overload: given, or found by a rule that is printed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from replay.errors import BadConfig

WINDOWS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
WINDOWS_LEAST = 20
"""A log is cut into at least so many windows."""
PART_ROWS = 1 << 18
"""Arrivals that are counted together, for the sake of memory."""
RISE = 2.0
"""A window is overloaded when it has more than so many times the median window's arrivals, and 3 sigma more."""


class Phase(msgspec.Struct, frozen=True):
    """A stretch of simulated time, in which calls arrive; without an end, it lasts to the last of them."""

    name: str
    start_s: float
    end_s: float | None = None

    def holds(self, times_s: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Which times lie in it."""
        until = np.inf if self.end_s is None else self.end_s
        inside: npt.NDArray[np.bool_] = (times_s >= self.start_s) & (times_s < until)
        return inside


def around(start_s: float, end_s: float) -> list[Phase]:
    """Before, during and after an overload."""
    return [
        Phase("before", 0.0, start_s),
        Phase("during", start_s, end_s),
        Phase("after", end_s),
    ]


def parse(text: str) -> list[Phase]:
    """The phases around an overload given as START:END in seconds. Raises BadConfig."""
    try:
        start, end = (float(part) for part in text.split(":"))
    except ValueError:
        raise BadConfig(f"overload {text!r} is not START:END in seconds, such as 20:40") from None
    if not 0 <= start < end < math.inf:
        raise BadConfig(f"overload {text!r}: START must be at least 0 and END after it")
    return around(start, end)


def detect(arrivals_s: Sequence[float] | npt.NDArray[np.float64]) -> tuple[list[Phase], str]:
    """(phases, the rule that found them) from arrival times; one phase "all" where no overload stands out."""
    arrivals = np.asarray(arrivals_s, dtype=np.float64)
    span = float(arrivals.max()) if len(arrivals) else 0.0
    window = window_for(span)
    counts = arrivals_by_window(arrivals, window, int(span / window) + 1)
    median, limit = float(np.median(counts)), busy_limit(counts)
    first, end = longest_run(counts > limit)
    rule = (
        f"longest run of {window:g} s windows with more than {limit:.1f} arrivals "
        f"(twice the median window's {median:g}, and 3 sigma more)"
    )
    if end - first < 2:
        return [Phase("all", 0.0)], f"no overload: no two successive windows; {rule}"
    return around(first * window, end * window), rule


def window_for(span_s: float) -> float:
    """Seconds of the windows into which a trace that lasts so long is cut."""
    return max([w for w in WINDOWS_S if w <= span_s / WINDOWS_LEAST], default=WINDOWS_S[0])


def busy_limit(counts: npt.NDArray[np.int64], rise: float = RISE) -> float:
    """Arrivals in a window beyond which it is overloaded: `rise` times the median window's, and 3 sigma more."""
    median = float(np.median(counts))
    return max(rise * median, median + 3.0 * math.sqrt(median))


def arrivals_by_window(arrivals: npt.NDArray[np.float64], window_s: float, windows: int) -> npt.NDArray[np.int64]:
    """How many of the arrivals are in each of the windows from 0 on."""
    counts = np.zeros(windows, np.int64)
    for start in range(0, len(arrivals), PART_ROWS):
        part = (arrivals[start : start + PART_ROWS] / window_s).astype(np.int64)
        first = int(part.min())
        found = np.bincount(part - first)
        counts[first : first + len(found)] += found
    return counts


def longest_run(mask: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """[first, end) of the longest run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    if not len(edges):
        return 0, 0
    starts, ends = edges[::2], edges[1::2]
    k = int(np.argmax(ends - starts))
    return int(starts[k]), int(ends[k])
