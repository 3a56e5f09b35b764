"""What can happen, in which order at equal times, and where it is held until then: in line, or in a heap."""

from __future__ import annotations

from typing import Any

from replay.engine.kernel import cold, hot
from replay.engine.lines import stands_in_line
from replay.engine.state import NONE, State

# Priorities at equal times, smallest first; within one, in the order of posting.
ABORT_ARRIVES = 0  # at an engine, before the step ends: an abort beats the finish
STEP_ENDS = 1
DELIVER = 2  # before a timeout: a response that is there in time counts
TIMES_OUT = 3  # before the user leaves: an attempt ends once
USER_LEAVES = 4
CALL_ARRIVES = 5
RETRY_IS_SENT = 6  # new calls and retries after what ended: they see the state that it left
AT_GATEWAY = 7  # attempts and disconnects in the order in which they were sent
EXECUTION_ARRIVES = 8
SCHEDULE = 9  # last: the scheduler sees all that has arrived

# Kinds of events that are not named by their priority alone.
ATTEMPT_AT_GATEWAY = 10
DISCONNECT_AT_GATEWAY = 11
ORPHAN_EXPIRES = 12
ANSWER = 13
KV_IS_RELEASED = 14
CANCEL_IS_SEEN = 15
REFUSED = 16
HEDGE_IS_SENT = 17
DEADLINE_PASSES = 18
LETS_GO = 19
TOKENS_ARE_READ = 20
READ_ENOUGH = 21

PRIORITY_SHIFT = 48


@hot
def priority_of(kind: int) -> int:
    """Priority of a kind of event."""
    if kind <= SCHEDULE:
        return kind
    if kind in (ANSWER, REFUSED, TOKENS_ARE_READ):
        return DELIVER
    if kind == CANCEL_IS_SEEN:
        return ABORT_ARRIVES
    if kind == HEDGE_IS_SENT:
        return RETRY_IS_SENT
    if kind == DEADLINE_PASSES:
        return TIMES_OUT
    return USER_LEAVES if kind == READ_ENOUGH else AT_GATEWAY


@hot
def line_of(kind: int) -> int:
    """The line of a kind of event; NONE for kinds that come in no order."""
    if kind == TIMES_OUT:
        return 0
    if kind == EXECUTION_ARRIVES:
        return 1
    if kind == DELIVER:
        return 2
    if kind == ABORT_ARRIVES:
        return 3
    if kind == ATTEMPT_AT_GATEWAY:
        return 4
    return 5 if kind == DISCONNECT_AT_GATEWAY else NONE


@hot
def post(S: State, delay: float, kind: int, argument: int) -> None:
    """`kind` happens to `argument` after `delay` seconds; without delay, right after the present event."""
    if delay > 0.0:
        post_at(S, S.progress.now + delay, kind, argument)
        return
    place = S.progress.soon_tail & (len(S.soon) - 1)
    S.soon[place].kind = kind
    S.soon[place].argument = argument
    S.progress.soon_tail += 1


@hot
def post_at(S: State, time: float, kind: int, argument: int) -> None:
    """`kind` happens to `argument` at `time`."""
    S.progress.posted += 1
    post_in_place(S, time, kind, argument, S.progress.posted)


@hot
def post_in_place(S: State, time: float, kind: int, argument: int, place: int) -> None:
    """`kind` happens to `argument` at `time`, and has this place among others of its priority at that time."""
    S.progress.outside = min(S.progress.outside, time)
    order = (priority_of(kind) << PRIORITY_SHIFT) + place
    line = line_of(kind)
    if NONE < line < len(S.fronts) and stands_in_line(S, line, time, order, kind, argument):
        return
    push(S.heap, S.progress.heap, time, order, kind, argument)
    S.progress.heap += 1


@hot
def drop_top(S: State) -> None:
    """Remove the earliest event of the heap."""
    S.progress.heap -= 1
    sift(S.heap, S.progress.heap)


@hot
def copy_event(heap: Any, start: int, end: int) -> None:
    """Copy an event, field by field: numba copies a record byte by byte."""
    heap[end].time = heap[start].time
    heap[end].order = heap[start].order
    heap[end].kind = heap[start].kind
    heap[end].argument = heap[start].argument


@cold
def push(heap: Any, n: int, time: float, order: int, kind: int, argument: int) -> None:
    """Put an event into a heap of `n`, in which `4 i + 1` to `4 i + 4` stand below `i`.

    Called, not inlined: it takes one array, and stands in a dozen places.
    """
    i = n
    while i > 0:
        above = (i - 1) >> 2
        if heap[above].time < time or (heap[above].time == time and heap[above].order < order):
            break
        copy_event(heap, above, i)
        i = above
    heap[i].time = time
    heap[i].order = order
    heap[i].kind = kind
    heap[i].argument = argument


@hot
def earlier_of(heap: Any, a: int, b: int) -> int:
    """The earlier one of two events, found without a branch, which could not be foreseen."""
    earlier = heap[b].time < heap[a].time
    earlier |= (heap[b].time == heap[a].time) & (heap[b].order < heap[a].order)
    return a + int(earlier) * (b - a)


@cold
def sift(heap: Any, n: int) -> None:
    """Let the last of `n + 1` events take the place of the top one, and sink to where it belongs.

    The place sinks to the bottom first, and the event rises from there: it belongs near it.
    """
    time = heap[n].time
    order = heap[n].order
    kind = heap[n].kind
    argument = heap[n].argument
    i = 0
    below = 1
    while below < n:
        first = earlier_of(heap, below, min(below + 1, n - 1))
        second = earlier_of(heap, min(below + 2, n - 1), min(below + 3, n - 1))
        below = earlier_of(heap, first, second)
        copy_event(heap, below, i)
        i = below
        below = 4 * i + 1
    push(heap, i, time, order, kind, argument)


@hot
def draw(seed: int, purpose: int, call: int, attempt: int) -> float:
    """A uniform number in [0, 1) that depends on its arguments alone: no policy shifts another's draws.

    Four rounds of the finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
    """
    x = mix(GOLDEN + seed)
    x = mix(x + purpose * GOLDEN)
    x = mix(x + call * GOLDEN)
    x = mix(x + attempt * GOLDEN)
    return ((x >> 11) & ((1 << 53) - 1)) * 2.0**-53


GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
SECOND = 0x94D049BB133111EB - (1 << 64)


@hot
def mix(x: int) -> int:
    """SplitMix64's finalizer on a signed 64-bit integer, whose right shifts are masked to be logical ones."""
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * FIRST
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * SECOND
    return x ^ ((x >> 31) & ((1 << 33) - 1))
