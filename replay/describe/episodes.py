"""Stretches of a trace in which its service was overloaded: too many arrivals, or too few answers."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replay.phases import arrivals_by_window, busy_limit, window_for
from trace_schema.columns import is_empty

KNOWN_LEAST = 5
"""Calls with a known outcome from which a window's share of delivered ones is believed."""
DELIVERED_LEAST = 0.8
"""A window in which less than this share of its calls was delivered is one of overload."""
RISE = 1.5
"""A window is busy when it has more than so many times the median window's arrivals, and 3 sigma more."""
EPISODES_MOST = 20
"""Of many episodes, the longest that are told."""


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """Successive windows, each of which has too many arrivals or too few answers."""

    start_s: float
    end_s: float
    calls: int
    calls_per_s: float
    delivered_call_rate: float | None
    """Share of its calls that the log shows as delivered; null where it shows no outcomes."""
    busy: bool
    """Some window has far more arrivals than the median one."""
    failing: bool
    """In some window fewer than four in five calls were delivered."""


def episodes(calls: pa.Table) -> tuple[list[Episode], str]:
    """(the episodes in order of time, the rule that found them)."""
    arrivals = np.asarray(calls["arrival_s"])
    window = window_for(float(arrivals[-1]))
    counts = arrivals_by_window(arrivals, window, int(float(arrivals[-1]) / window) + 1)
    limit = busy_limit(counts, RISE)
    known, delivered = outcomes(calls, arrivals, window, len(counts))
    busy = counts > limit
    failing = (known >= KNOWN_LEAST) & (delivered < DELIVERED_LEAST * known)
    found = [
        episode(slice(first, end), window, counts, known, delivered, busy, failing)
        for first, end in runs(bridged(busy | failing))
        if end - first > 1 or failing[first]
    ]
    longest = sorted(found, key=lambda e: e.start_s - e.end_s)[:EPISODES_MOST]
    rule = (
        f"{window:g} s windows with more than {limit:.1f} arrivals (two at least in succession), or of whose calls "
        f"fewer than {DELIVERED_LEAST:.0%} were delivered"
    )
    return sorted(longest, key=lambda e: e.start_s), rule


def outcomes(
    calls: pa.Table, arrivals: npt.NDArray[np.float64], window_s: float, number: int
) -> tuple[npt.NDArray[np.int64], ...]:
    """(calls whose outcome is known, those of them that were delivered) in each of `number` windows."""
    status = calls["observed_status"]
    if is_empty(status):
        return np.zeros(number, np.int64), np.zeros(number, np.int64)
    ok = np.asarray(pc.fill_null(pc.equal(status, "ok"), False))
    known = np.asarray(pc.fill_null(pc.not_equal(status, "unknown"), False))
    return arrivals_by_window(arrivals[known], window_s, number), arrivals_by_window(arrivals[ok], window_s, number)


def episode(
    windows: slice,
    window_s: float,
    counts: npt.NDArray[np.int64],
    known: npt.NDArray[np.int64],
    delivered: npt.NDArray[np.int64],
    busy: npt.NDArray[np.bool_],
    failing: npt.NDArray[np.bool_],
) -> Episode:
    total, seconds = int(counts[windows].sum()), (windows.stop - windows.start) * window_s
    told = int(known[windows].sum())
    return Episode(
        start_s=windows.start * window_s,
        end_s=windows.stop * window_s,
        calls=total,
        calls_per_s=total / seconds,
        delivered_call_rate=int(delivered[windows].sum()) / told if told else None,
        busy=bool(busy[windows].any()),
        failing=bool(failing[windows].any()),
    )


def bridged(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The mask, true also in single windows between two that are."""
    between = np.zeros_like(mask)
    between[1:-1] = mask[:-2] & mask[2:]
    return mask | between


def runs(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """[first, end) of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
