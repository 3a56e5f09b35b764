"""How an engine notices a cancel: by push, by polling, at once or never; and what an aborted request keeps."""

from __future__ import annotations

import math

from replay.engine.blocks import release_lingering
from replay.engine.events import CANCEL_IS_SEEN, KV_IS_RELEASED, SCHEDULE, STEP_ENDS, post, post_at
from replay.engine.flights import give_back_rows, head_end
from replay.engine.gateway import execution_ended
from replay.engine.kernel import cold, hot
from replay.engine.readers import look_at_all
from replay.engine.scheduler import abort
from replay.engine.state import (
    BLOCKED_BY_BLOCKS,
    INFINITY,
    NEXT_TOKEN,
    NONE,
    NOT_BLOCKED,
    ORACLE,
    POLL,
    PUSH,
    QUEUED,
    RUNNING,
    TIMER,
    WHOLE,
    Replica,
    State,
)
from replay.engine.wakes import wake


@cold
def abort_arrives(S: State, x: int) -> None:
    """An abort reaches the engine, which notices it in its own way."""
    if S.settings.detection == PUSH:
        push_arrives(S, x)
    elif S.settings.detection == POLL:
        cancel_lies_ready(S, x)
    elif S.settings.detection == ORACLE:
        abort_at_once(S, x)
    elif S.settings.detection == TIMER:
        post_at(S, next_look(S, x), CANCEL_IS_SEEN, x)
    elif S.settings.detection == NEXT_TOKEN:
        if S.executions[x].status == RUNNING:
            push_arrives(S, x)
        else:
            cancel_lies_ready(S, x)


@hot
def next_look(S: State, x: int) -> float:
    """When the engine next looks whether the client of execution `x` is there: at multiples of the timer."""
    c = int(S.executions[x].call)
    timer = S.settings.timer
    if S.calls[c].stream != WHOLE and S.executions[x].first_output < INFINITY:
        timer = S.settings.timer_streaming
    since = S.executions[x].queued
    if timer <= 0.0 or since == INFINITY:
        return S.progress.now
    return since + (math.floor((S.progress.now - since) / timer) + 1.0) * timer


@cold
def cancel_is_seen(S: State, x: int) -> None:
    push_arrives(S, x)


@hot
def push_arrives(S: State, x: int) -> None:
    """An abort lies in the replica's inbox until its step ends."""
    rep = S.replicas[S.executions[x].replica]
    S.inbox[x] = NONE
    if rep.inbox_first == NONE:
        rep.inbox_first = x
    else:
        S.inbox[rep.inbox_last] = x
    rep.inbox_last = x
    if rep.in_flight == 0:
        read_inbox(S, rep, False)


@hot
def read_inbox(S: State, rep: Replica, at_end: bool) -> None:
    """Apply the aborts that have arrived, if there are any."""
    if rep.inbox_first != NONE:
        apply_aborts(S, rep.index, at_end)


@cold
def apply_aborts(S: State, r: int, at_end: bool) -> None:
    """Apply the aborts that have arrived, in order.

    At the end of a step, a request that arrived during it has not been added yet: its abort waits for it, and those
    behind it wait too.
    """
    rep = S.replicas[r]
    while rep.inbox_first != NONE:
        x = rep.inbox_first
        if x >= S.progress.executions or S.executions[x].queued == INFINITY:
            break
        if at_end and S.executions[x].arrived_in_round == rep.rounds:
            break
        rep.inbox_first = S.inbox[x]
        abort_now(S, rep.index, x)


@hot
def cancel_lies_ready(S: State, x: int) -> None:
    """An engine that polls sees the cancel when it next looks at the request; in the queue, when it could admit it."""
    S.executions[x].gone = 1
    rep = S.replicas[S.executions[x].replica]
    if S.executions[x].status == RUNNING:
        k = S.settings.poll_tokens
        coming = rep.rounds + (1 if rep.in_flight > 0 else 0)
        if S.settings.poll_phase:
            k -= (coming - S.slots[S.executions[x].slot].first_round) % k
        await_look(S, rep, x, (coming + k) & S.settings.due_mask)
    elif S.executions[x].queued < INFINITY and S.executions[x].status == QUEUED:
        if rep.blocked == BLOCKED_BY_BLOCKS:
            rep.blocked = NOT_BLOCKED
        if rep.in_flight == 0:
            wake(S, rep, S.progress.now, SCHEDULE)


@hot
def await_look(S: State, rep: Replica, x: int, place: int) -> None:
    """Execution `x` goes to the end of those that are looked at in `place`: a ring, of which the last is known."""
    last = S.due[rep.index, place]
    if last == NONE:
        S.inbox[x] = x
    else:
        S.inbox[x] = S.inbox[last]
        S.inbox[last] = x
    S.due[rep.index, place] = x


@hot
def read_due(S: State, rep: Replica) -> None:
    """At the end of a step, abort the requests whose cancels are seen now, if there are any."""
    if S.due[rep.index, (rep.rounds + 1) & S.settings.due_mask] != NONE:
        apply_due(S, rep.index)


@cold
def apply_due(S: State, r: int) -> None:
    """Abort the requests whose cancels are seen now, in the order in which they came."""
    rep = S.replicas[r]
    place = (rep.rounds + 1) & S.settings.due_mask
    last = S.due[rep.index, place]
    S.due[rep.index, place] = NONE
    x = last
    while True:
        x = S.inbox[x]
        if S.executions[x].status == RUNNING:
            abort_now(S, rep.index, x)
        if x == last:
            break


@hot
def abort_at_once(S: State, x: int) -> None:
    """Abort execution `x` in mid-step: what is left of its row is not computed. Before it arrives, wait for it."""
    rep = S.replicas[S.executions[x].replica]
    if S.executions[x].queued == INFINITY:
        S.executions[x].gone = 1
        return
    if S.executions[x].status == RUNNING and rep.in_flight > 0:
        give_back_rows(S, rep.index, S.executions[x].slot)
        if rep.wake_kind == STEP_ENDS:
            wake(S, rep, max(head_end(S, rep), S.progress.now), STEP_ENDS)
        if len(S.leaves_tokens) > 0:
            look_at_all(S, rep)
    abort_now(S, rep.index, x)


@cold
def abort_now(S: State, r: int, x: int) -> None:
    """Abort execution `x`, and tell the gateway if it was still alive."""
    rep = S.replicas[r]
    if abort(S, rep, x):
        execution_ended(S, x)
        if S.settings.kv_delay > 0.0 and S.execution_extras[x].lingering > 0:
            post(S, S.settings.kv_delay, KV_IS_RELEASED, x)


@cold
def kv_is_released(S: State, x: int) -> None:
    """The blocks that an aborted execution kept are free."""
    rep = S.replicas[S.executions[x].replica]
    release_lingering(S, rep.index, x)
    rep.blocked = NOT_BLOCKED
    if rep.in_flight == 0 and rep.waiting > 0:
        wake(S, rep, S.progress.now, SCHEDULE)
