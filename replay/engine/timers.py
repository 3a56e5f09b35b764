"""Timeouts that wait in line: most are posted in the order in which they fire, and need no place in the heap.

Of those in line only the first stands in the heap. A timeout that fires before the last one in line goes to the heap
by itself, as does one for which the line has no room.
"""

from __future__ import annotations

from replay.engine.kernel import hot
from replay.engine.state import State


@hot
def stands_in_line(S: State, time: float, order: int, kind: int, argument: int) -> bool:
    """Put a timeout in line, if it fires after the last one; False if it needs a place in the heap."""
    mask = len(S.timers) - 1
    waiting = S.progress.timers_tail - S.progress.timers_head
    if waiting > 0:
        last = S.timers[(S.progress.timers_tail - 1) & mask]
        if waiting > mask or time < last.time or (time == last.time and order < last.order):
            return False
    event = S.timers[S.progress.timers_tail & mask]
    event.time = time
    event.order = order
    event.kind = kind
    event.argument = argument
    S.progress.timers_tail += 1
    return waiting > 0


@hot
def next_in_line(S: State, order: int) -> bool:
    """The event of that `order` is over: if it was first in line, the next one is; False if there is none."""
    mask = len(S.timers) - 1
    if S.progress.timers_head == S.progress.timers_tail or S.timers[S.progress.timers_head & mask].order != order:
        return False
    S.progress.timers_head += 1
    return S.progress.timers_head < S.progress.timers_tail
