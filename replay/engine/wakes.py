"""When each replica wants attention next: a heap of the replicas, the earliest on top."""

from __future__ import annotations

from replay.engine.kernel import hot
from replay.engine.state import Replica, State


@hot
def wakes_before(S: State, a: int, b: int) -> bool:
    """Whether replica `a` wants attention before `b`."""
    if S.replicas[a].wake_at != S.replicas[b].wake_at:
        return S.replicas[a].wake_at < S.replicas[b].wake_at
    if S.replicas[a].wake_kind != S.replicas[b].wake_kind:
        return S.replicas[a].wake_kind < S.replicas[b].wake_kind
    return a < b


@hot
def wake(S: State, rep: Replica, time: float, kind: int) -> None:
    """Replica `rep` wants attention for `kind` at `time` (infinity: not before something arrives)."""
    rep.wake_at = time
    rep.wake_kind = kind
    n = S.settings.replicas
    if n == 1:
        return
    r = rep.index
    i = rep.wake_place
    while i > 0 and wakes_before(S, r, S.wakes[(i - 1) >> 1]):
        above = S.wakes[(i - 1) >> 1]
        S.wakes[i] = above
        S.replicas[above].wake_place = i
        i = (i - 1) >> 1
    while True:
        below = 2 * i + 1
        if below >= n:
            break
        if below + 1 < n and wakes_before(S, S.wakes[below + 1], S.wakes[below]):
            below += 1
        if not wakes_before(S, S.wakes[below], r):
            break
        S.wakes[i] = S.wakes[below]
        S.replicas[S.wakes[i]].wake_place = i
        i = below
    S.wakes[i] = r
    rep.wake_place = i
