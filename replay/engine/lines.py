"""Events that wait in line: most come after the same delay as others of their kind, and so in the order of posting.

Each such kind has a line, a ring of events. One that would happen before the last in its line goes to the heap, as does
one for which the line has no room. `fronts` has the time and the order of the first in each line, and `first_line` says
which of those is the earliest. Where nothing travels for any time, timeouts alone have a line.
"""

from __future__ import annotations

from replay.engine.kernel import hot
from replay.engine.state import INFINITY, State


@hot
def stands_in_line(S: State, line: int, time: float, order: int, kind: int, argument: int) -> bool:
    """Put an event in a line, if it comes after the last one there; False if it needs a place in the heap."""
    front = S.fronts[line]
    if front.tail > front.head:
        last = S.lines[line, (front.tail - 1) & S.settings.line_mask]
        full = front.tail - front.head > S.settings.line_mask
        if full or time < last.time or (time == last.time and order < last.order):
            return False
    else:
        front.head = 0
        front.tail = 0
        front.time = time
        front.order = order
        if comes_before(S, line, S.progress.first_line):
            S.progress.first_line = line
    event = S.lines[line, front.tail & S.settings.line_mask]
    event.time = time
    event.order = order
    event.kind = kind
    event.argument = argument
    front.tail += 1
    return True


@hot
def comes_before(S: State, a: int, b: int) -> bool:
    """Whether the first event of line `a` happens before that of line `b`."""
    one = S.fronts[a]
    other = S.fronts[b]
    return one.time < other.time or (one.time == other.time and one.order < other.order)


@hot
def leave_line(S: State, line: int) -> None:
    """The first event of a line is over."""
    front = S.fronts[line]
    front.head += 1
    if front.head < front.tail:
        first = S.lines[line, front.head & S.settings.line_mask]
        front.time = first.time
        front.order = first.order
    else:
        front.time = INFINITY
    S.progress.first_line = earliest_line(S)


@hot
def earliest_line(S: State) -> int:
    """The line whose first event happens first."""
    found = 0
    for line in range(1, len(S.fronts)):
        if comes_before(S, line, found):
            found = line
    return found
