"""The gateway: which execution an attempt waits for, where it runs, and what a disconnect does to it.

An attempt is *attached* to its execution from its arrival here until it ends for its client; the execution is
*attended* while one is. It is *connected* until the gateway has heard of the end.
"""

from __future__ import annotations

from replay.engine.events import (
    ABORT_ARRIVES,
    ANSWER,
    ORPHAN_EXPIRES,
    post,
)
from replay.engine.kernel import hot
from replay.engine.ledger import become_attended, become_orphan
from replay.engine.limits import tokens_until_leaving
from replay.engine.lobby import enter, learn_from, leave_line, room_was_made
from replay.engine.readers import somebody_reads
from replay.engine.state import (
    ABORTED,
    ALIKE,
    FINISHED,
    INFINITY,
    NONE,
    OPEN,
    RETRIES_LAST,
    SHED_NONE,
    STREAMED,
    State,
)

RETRIES_APART = 1 << 32
"""How far the priority of a retry lies behind that of a fresh call, or before it: further than those of any two."""


@hot
def finish_is_known(S: State, x: int) -> bool:
    """Whether the gateway has the end of execution `x`'s response."""
    return S.executions[x].status == FINISHED and S.executions[x].end + S.settings.to_engine <= S.progress.now


@hot
def attempt_arrives(S: State, a: int) -> None:
    """Attempt `a` reaches the gateway: it joins an execution of an equal call, is answered, or gets its own."""
    c = int(S.attempts[a].call)
    if S.settings.coalesce:
        x = S.key_execution[S.call_extras[c].key]
        if x != NONE and not S.executions[x].abort_sent:
            if not finish_is_known(S, x):
                S.attempts[a].joined = 1
                attach(S, a, x)
                return
            if S.progress.now <= S.executions[x].end + S.settings.to_engine + S.settings.result_ttl:
                S.attempts[a].joined = 1
                S.attempts[a].execution = x
                S.executions[x].attempts += 1
                post(S, S.settings.to_gateway, ANSWER, a)
                return
    x = new_execution(S, c)
    attach(S, a, x)
    enter(S, x)


@hot
def new_execution(S: State, c: int) -> int:
    """Make an execution for call `c`."""
    x = S.progress.executions
    S.progress.executions += 1
    execution = S.executions[x]
    execution.call = c
    execution.prompt = S.calls[c].prompt
    execution.output = S.calls[c].output
    execution.orphan = 1
    execution.queued = INFINITY
    execution.admitted = INFINITY
    execution.first_output = INFINITY
    execution.end = INFINITY
    execution.waiters = NONE
    execution.slot = NONE
    execution.replica = NONE
    if S.settings.by_priority:
        S.execution_extras[x].priority = S.call_extras[c].priority
    if S.settings.retries != ALIKE and S.calls[c].attempts > 1:
        execution.apart = 1
        S.execution_extras[x].priority += RETRIES_APART if S.settings.retries == RETRIES_LAST else -RETRIES_APART
    if S.settings.coalesce:
        S.key_execution[S.call_extras[c].key] = x
    return x


@hot
def attach(S: State, a: int, x: int) -> None:
    """Attempt `a` waits for execution `x` from now on."""
    S.attempts[a].execution = x
    S.executions[x].attempts += 1
    S.executions[x].connected += 1
    if S.attempts[a].status != OPEN:
        return
    head = S.executions[x].waiters
    S.attempts[a].next = head
    if head != NONE:
        S.attempts[head].previous = a
    S.executions[x].waiters = a
    S.attempts[a].attached = 1
    S.executions[x].attended += 1
    if S.executions[x].orphan:
        become_attended(S, x)
    c = int(S.attempts[a].call)
    if tokens_until_leaving(S, c) > 0 and S.calls[c].stream == STREAMED:
        somebody_reads(S, x)


@hot
def detach(S: State, a: int) -> None:
    """Attempt `a` has ended for its client."""
    if not S.attempts[a].attached:
        return
    x = int(S.attempts[a].execution)
    S.attempts[a].attached = 0
    left = S.attempts[a].previous
    right = S.attempts[a].next
    if left != NONE:
        S.attempts[left].next = right
    else:
        S.executions[x].waiters = right
    if right != NONE:
        S.attempts[right].previous = left
    S.executions[x].attended -= 1
    if S.executions[x].attended == 0:
        become_orphan(S, x)


@hot
def disconnect_arrives(S: State, a: int) -> None:
    """The gateway hears that attempt `a` is over; the last one to leave decides what becomes of the execution."""
    x = int(S.attempts[a].execution)
    if x == NONE:
        return
    S.executions[x].connected -= 1
    if S.executions[x].connected > 0 or S.executions[x].abort_sent or finish_is_known(S, x):
        return
    if S.settings.orphan_ttl == 0.0:
        send_abort(S, x)
    elif S.settings.orphan_ttl < INFINITY:
        S.execution_extras[x].orphaned_at = S.progress.now
        post(S, S.settings.orphan_ttl, ORPHAN_EXPIRES, x)


@hot
def orphan_expires(S: State, x: int) -> None:
    """An orphan's time is up, unless somebody came back or it has finished."""
    if S.executions[x].connected > 0 or S.executions[x].abort_sent or finish_is_known(S, x):
        return
    if S.execution_extras[x].orphaned_at + S.settings.orphan_ttl <= S.progress.now:
        send_abort(S, x)


@hot
def send_abort(S: State, x: int) -> None:
    """Nobody wants execution `x` any more: the engine is told, if it has it."""
    S.executions[x].abort_sent = 1
    if S.executions[x].held:
        leave_line(S, x)
        S.executions[x].status = ABORTED
        S.executions[x].end = S.progress.now
        return
    post(S, S.settings.to_engine + S.settings.cancel_delay, ABORT_ARRIVES, x)


@hot
def execution_ended(S: State, x: int) -> None:
    """The engine has finished, aborted or refused execution `x`."""
    rep = S.replicas[S.executions[x].replica]
    rep.outstanding -= 1
    if S.executions[x].status == FINISHED:
        if S.settings.shed != SHED_NONE:
            learn_from(S, x)
    elif S.executions[x].first_output == INFINITY:
        rep.unstarted -= S.executions[x].prompt
        room_was_made(S)
