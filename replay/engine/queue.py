"""The waiting queue of a replica: first come first served, or by priority.

First come: a list threaded through the executions. By priority: a pairing heap threaded through them, ordered by
(priority, arrival at the engine, execution). Either way a request leaves from the middle without a search.
"""

from __future__ import annotations

from replay.engine.kernel import cold, hot
from replay.engine.state import NONE, Replica, State


@hot
def runs_before(S: State, a: int, b: int) -> bool:
    """Whether execution `a` comes before `b` in a queue by priority."""
    p = S.execution_extras[a].priority
    q = S.execution_extras[b].priority
    if p != q:
        return p < q
    if S.executions[a].queued != S.executions[b].queued:
        return S.executions[a].queued < S.executions[b].queued
    return a < b


@hot
def meld(S: State, a: int, b: int) -> int:
    """Join two heaps by their roots; returns the root of the whole."""
    if a == NONE:
        return b
    if b == NONE:
        return a
    if runs_before(S, b, a):
        a, b = b, a
    first = S.execution_extras[a].child
    S.executions[b].next = first
    if first != NONE:
        S.executions[first].previous = b
    S.executions[b].previous = a
    S.execution_extras[a].child = b
    S.executions[a].next = NONE
    S.executions[a].previous = NONE
    return a


@hot
def meld_children(S: State, first: int) -> int:
    """Join a list of siblings into one heap: in pairs from the left, then the pairs from the right."""
    pairs = NONE
    while first != NONE:
        second = S.executions[first].next
        rest = NONE
        if second != NONE:
            rest = S.executions[second].next
        S.executions[first].next = NONE
        if second != NONE:
            S.executions[second].next = NONE
        joined = meld(S, first, second)
        S.executions[joined].next = pairs
        pairs = joined
        first = rest
    root = NONE
    while pairs != NONE:
        rest = S.executions[pairs].next
        S.executions[pairs].next = NONE
        root = meld(S, root, pairs)
        pairs = rest
    if root != NONE:
        S.executions[root].previous = NONE
    return root


@cold
def heap_insert(S: State, rep: Replica, x: int) -> None:
    """Put `x` into a queue by priority."""
    S.execution_extras[x].child = NONE
    rep.queue_head = meld(S, rep.queue_head, x)


@cold
def heap_remove(S: State, rep: Replica, x: int) -> None:
    """Take `x` out of a queue by priority."""
    left = S.executions[x].previous
    right = S.executions[x].next
    if left != NONE:
        if S.execution_extras[left].child == x:
            S.execution_extras[left].child = right
        else:
            S.executions[left].next = right
        if right != NONE:
            S.executions[right].previous = left
    below = meld_children(S, S.execution_extras[x].child)
    rep.queue_head = below if left == NONE else meld(S, rep.queue_head, below)


@hot
def list_remove(S: State, rep: Replica, x: int) -> None:
    """Take `x` out of a first-come queue."""
    left = S.executions[x].previous
    right = S.executions[x].next
    if left != NONE:
        S.executions[left].next = right
    else:
        rep.queue_head = right
    if right != NONE:
        S.executions[right].previous = left
    else:
        rep.queue_tail = left


@hot
def list_insert(S: State, rep: Replica, x: int, at_head: bool) -> None:
    """Put `x` at one end of a first-come queue."""
    neighbour = rep.queue_head if at_head else rep.queue_tail
    if at_head:
        S.executions[x].next = neighbour
        rep.queue_head = x
    else:
        S.executions[x].previous = neighbour
        rep.queue_tail = x
    if neighbour == NONE:
        rep.queue_head = x
        rep.queue_tail = x
    elif at_head:
        S.executions[neighbour].previous = x
    else:
        S.executions[neighbour].next = x


@hot
def enqueue(S: State, rep: Replica, x: int, preempted: bool) -> None:
    """Put a request in line: a new one at the tail, a preempted one at the head; either where its priority says."""
    S.executions[x].next = NONE
    S.executions[x].previous = NONE
    if S.settings.by_priority:
        heap_insert(S, rep, x)
    else:
        list_insert(S, rep, x, preempted)
    rep.waiting += 1
    rep.waiting_tokens += S.executions[x].prompt


@hot
def dequeue(S: State, rep: Replica, x: int) -> None:
    """Take a request out of the line, wherever it stands."""
    if S.settings.by_priority:
        heap_remove(S, rep, x)
    else:
        list_remove(S, rep, x)
    rep.waiting -= 1
    rep.waiting_tokens -= S.executions[x].prompt
