"""Sessions of a log as open or closed loops: whether a turn comes when it came, or after the one before has ended.

In a closed loop the user's time to think is what the log shows: from the end of a response to the next call of its
session. A replay under which a response takes longer then sees the next turn later, as people are.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replay.errors import BadConfig
from trace_schema.calls import CALLS

Loop = Literal["open", "closed"]
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class Sessions(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the turns of sessions, but for each first one: counts of calls."""

    loop: Loop
    closed: int = 0
    """They wait for the turn before, and then for the time to think."""
    overlapping: int = 0
    """They were sent before the turn before had ended, and come when they came."""
    unknown: int = 0
    """The log does not say when the turn before ended: they come when they came."""

    def text(self) -> str:
        """For a person."""
        if self.loop == "open":
            return "sessions        open: each turn comes when it came in the log"
        said = f"sessions        closed: {self.closed:,} turns wait for the one before"
        if self.overlapping:
            said += f"; {self.overlapping:,} had not waited for it, and come when they came"
        return said + (f"; of {self.unknown:,} it is not known when the one before ended" if self.unknown else "")


def in_loop(calls: pa.Table, loop: Loop) -> tuple[pa.Table, Sessions]:
    """`calls` (schema CALLS) whose sessions are open or closed loops, and what became of their turns.

    Turns of a session follow in order of arrival, unless the calls name the turn before. Raises BadConfig when they
    have no sessions, or nothing says when a turn ended.
    """
    previous, turn = turns_of(calls)
    later = previous >= 0
    if not later.any():
        raise BadConfig(f"--sessions {loop}: no session of the log has a second turn")
    think = np.full(calls.num_rows, np.nan)
    if loop == "closed":
        known = np.asarray(pc.fill_null(calls["think_time_s"], np.nan))
        arrival = np.asarray(calls["arrival_s"])
        seen = arrival - (arrival + ended_after(calls))[previous]
        think = np.where(later, np.where(np.isnan(known), seen, known), np.nan)
    told = Sessions(
        loop=loop,
        closed=int((think >= 0.0).sum()),
        overlapping=int((think < 0.0).sum()),
        unknown=int((later & np.isnan(think)).sum()) if loop == "closed" else 0,
    )
    if loop == "closed" and not told.closed:
        why = "the log does not say when a turn ended" if told.unknown else "no turn waited for the one before"
        raise BadConfig(f"--sessions closed: {why}")
    columns = {
        "turn": pa.array(turn, mask=turn < 0),
        "previous_call_id": pa.array(previous, mask=~later),
        "think_time_s": pa.array(think, mask=~(think >= 0.0)),
    }
    for name, column in columns.items():
        place = calls.column_names.index(name)
        calls = calls.set_column(place, CALLS.arrow.field(name), column.cast(CALLS.field(name).type))
    return calls, told


def turns_of(calls: pa.Table) -> tuple[Counts, Counts]:
    """(the turn before each call, -1 where there is none; its place in its session, -1 where it is of none)."""
    n = calls.num_rows
    named = np.asarray(calls["session_id"].is_valid())
    codes = np.asarray(pc.fill_null(calls["session_id"].combine_chunks().dictionary_encode().indices, n))
    order = np.argsort(codes, kind="stable")[: int(named.sum())]
    first = np.flatnonzero(np.diff(codes[order], prepend=-2))
    previous, turn = np.full(n, -1), np.full(n, -1)
    turn[order] = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    previous[order[1:]] = order[:-1]
    previous[order[first]] = -1
    said = np.asarray(pc.fill_null(calls["previous_call_id"], -1))
    if (said >= 0).any():
        return said, np.asarray(pc.fill_null(calls["turn"], -1)).astype(np.int64)
    return previous, turn


def ended_after(calls: pa.Table) -> Floats:
    """How long each call took until its response, or until its user left; NaN where the log does not say."""
    ended = pc.coalesce(calls["observed_e2e_s"], calls["user_cancel_s"])
    return np.asarray(pc.fill_null(ended, np.nan), dtype=np.float64)
