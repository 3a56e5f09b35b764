"""When each replica wants attention next: a heap of the replicas, the earliest on top."""

from __future__ import annotations

from typing import Any

from replay.engine.kernel import cold, hot
from replay.engine.state import INFINITY, Replica, State


@hot
def wake(S: State, rep: Replica, time: float, kind: int) -> None:
    """Replica `rep` wants attention for `kind` at `time` (infinity: not before something arrives)."""
    rep.wake_at = time
    rep.wake_kind = kind
    if S.settings.replicas > 1:
        move(S.replicas, S.wakes, rep.index)


@hot
def others_wake(S: State) -> float:
    """When the first of the replicas wants attention that come after the one on top."""
    time = INFINITY
    for i in range(1, min(3, len(S.wakes))):
        time = min(time, S.replicas[S.wakes[i]].wake_at)
    return time


@hot
def wakes_before(replicas: Any, a: int, b: int) -> bool:
    """Whether replica `a` wants attention before `b`."""
    if replicas[a].wake_at != replicas[b].wake_at:
        return replicas[a].wake_at < replicas[b].wake_at
    if replicas[a].wake_kind != replicas[b].wake_kind:
        return replicas[a].wake_kind < replicas[b].wake_kind
    return a < b


@cold
def move(replicas: Any, wakes: Any, r: int) -> None:
    """Replica `r` rises or sinks to where it belongs."""
    n = len(wakes)
    i = replicas[r].wake_place
    while i > 0 and wakes_before(replicas, r, wakes[(i - 1) >> 1]):
        above = wakes[(i - 1) >> 1]
        wakes[i] = above
        replicas[above].wake_place = i
        i = (i - 1) >> 1
    while True:
        below = 2 * i + 1
        if below >= n:
            break
        if below + 1 < n and wakes_before(replicas, wakes[below + 1], wakes[below]):
            below += 1
        if not wakes_before(replicas, wakes[below], r):
            break
        wakes[i] = wakes[below]
        replicas[wakes[i]].wake_place = i
        i = below
    wakes[i] = r
    replicas[r].wake_place = i
