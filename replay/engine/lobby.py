"""Where requests wait for a place: the gateway sends them on at once, or holds them while the engines are busy enough.

Those that it holds stand in two lines, of fresh calls and of retries, threaded through the executions. They leave when
a replica has room, one at a time, in the order that the policy wants; some are refused instead.
"""

from __future__ import annotations

import math

from replay.engine.events import EXECUTION_ARRIVES, LETS_GO, REFUSED, post, post_at
from replay.engine.kernel import cold, hot
from replay.engine.limits import timeout_of
from replay.engine.routing import choose_replica
from replay.engine.state import (
    ABORTED,
    ADAPTIVE_LIFO,
    FIFO,
    INFINITY,
    LIVE,
    NONE,
    QUEUE_FULL,
    RETRIES_FIRST,
    SHED,
    SHED_CALL,
    SHED_NONE,
    TOTAL,
    WHOLE,
    Replica,
    State,
)

NEVER = -1.0
DEVIATIONS = 4.0
"""Mean deviations beyond the mean within which nearly every answer comes (RFC 6298, section 2)."""
MEMORY_OF_DROPS = 16.0
"""Intervals within which CoDel takes up dropping where it left off (RFC 8289, section 5.5)."""


@hot
def enter(S: State, x: int) -> None:
    """A new request has come to the gateway: it goes to its replica, waits, or is refused."""
    if not S.settings.holds:
        send(S, x, choose_replica(S, S.executions[x].call, x))
    else:
        enter_lobby(S, x)


@cold
def enter_lobby(S: State, x: int) -> None:
    """A new request has come to a gateway that holds requests."""
    S.execution_extras[x].entered = S.progress.now
    if S.progress.held == 0 and some_replica_has_room(S):
        S.progress.codel_above = 0.0
        S.progress.codel_dropping = 0
        send(S, x, replica_with_room(S, x))
    elif is_full(S, x, S.progress.held, S.progress.held_tokens):
        refuse(S, x, QUEUE_FULL)
    else:
        stand_in_line(S, x)


@hot
def is_full(S: State, x: int, waiting: int, tokens: int) -> bool:
    """Whether so many waiting requests and prompt tokens leave no place for execution `x`."""
    return waiting >= S.settings.most_queued or tokens + S.executions[x].prompt > S.settings.most_queued_tokens


@hot
def send(S: State, x: int, r: int) -> None:
    """Send execution `x` to replica `r`."""
    S.executions[x].replica = r
    S.replicas[r].outstanding += 1
    S.replicas[r].unstarted += S.executions[x].prompt
    post(S, S.settings.to_engine, EXECUTION_ARRIVES, x)


@hot
def has_place(S: State, rep: Replica) -> bool:
    """Whether the prompts sent to a replica that have not begun to answer are few enough for one more."""
    return rep.unstarted == 0 or rep.unstarted < S.settings.hold_steps * rep.max_tokens


@hot
def some_replica_has_room(S: State) -> bool:
    found = False
    for r in range(S.settings.replicas):
        found = found or has_place(S, S.replicas[r])
    return found


@hot
def replica_with_room(S: State, x: int) -> int:
    """The replica for execution `x` by the gateway's rule; if that has no room, the least loaded one that has."""
    chosen = choose_replica(S, S.executions[x].call, x)
    if has_place(S, S.replicas[chosen]):
        return chosen
    found = NONE
    for r in range(S.settings.replicas):
        fewer = found == NONE or S.replicas[r].outstanding < S.replicas[found].outstanding
        if fewer and has_place(S, S.replicas[r]):
            found = r
    return found


@hot
def stand_in_line(S: State, x: int) -> None:
    S.executions[x].held = 1
    S.executions[x].next = NONE
    tail = S.progress.retry_tail if S.executions[x].apart else S.progress.fresh_tail
    S.executions[x].previous = tail
    if tail != NONE:
        S.executions[tail].next = x
    if S.executions[x].apart:
        S.progress.retry_tail = x
        if tail == NONE:
            S.progress.retry_head = x
    else:
        S.progress.fresh_tail = x
        if tail == NONE:
            S.progress.fresh_head = x
    S.progress.held += 1
    S.progress.held_tokens += S.executions[x].prompt


@hot
def leave_line(S: State, x: int) -> None:
    """Execution `x` waits at the gateway no more."""
    before = S.executions[x].previous
    after = S.executions[x].next
    if before != NONE:
        S.executions[before].next = after
    if after != NONE:
        S.executions[after].previous = before
    if S.executions[x].apart:
        if before == NONE:
            S.progress.retry_head = after
        if after == NONE:
            S.progress.retry_tail = before
    else:
        if before == NONE:
            S.progress.fresh_head = after
        if after == NONE:
            S.progress.fresh_tail = before
    S.executions[x].held = 0
    S.progress.held -= 1
    S.progress.held_tokens -= S.executions[x].prompt


@hot
def next_in_line(S: State) -> int:
    """The execution whose turn it is."""
    newest = S.settings.order != FIFO
    if S.settings.order == ADAPTIVE_LIFO:
        newest = S.progress.held > S.settings.lifo_above
    fresh = S.progress.fresh_tail if newest else S.progress.fresh_head
    retry = S.progress.retry_tail if newest else S.progress.retry_head
    if S.settings.retries == RETRIES_FIRST:
        return retry if retry != NONE else fresh
    return fresh if fresh != NONE else retry


@hot
def room_was_made(S: State) -> None:
    """An engine has begun to answer, or to forget, a request: the gateway hears of it, once if at one instant."""
    if S.settings.holds and S.progress.held > 0 and S.progress.lets_go_at != S.progress.now:
        S.progress.lets_go_at = S.progress.now
        post(S, S.settings.to_engine, LETS_GO, NONE)


@cold
def lets_go(S: State) -> None:
    """If a replica has room, the request whose turn it is goes there, or is refused; and then the next one."""
    S.progress.lets_go_at = NEVER
    if S.progress.held == 0 or not some_replica_has_room(S):
        return
    x = next_in_line(S)
    leave_line(S, x)
    if codel_drops(S, S.progress.now - S.execution_extras[x].entered) or not is_worth_it(S, x):
        refuse(S, x, SHED)
    else:
        send(S, x, replica_with_room(S, x))
    if S.progress.held > 0:
        post_at(S, S.progress.now, LETS_GO, NONE)


@hot
def refuse(S: State, x: int, reason: int) -> None:
    """The gateway refuses execution `x`: its clients will hear of it."""
    S.executions[x].status = ABORTED
    S.executions[x].end = S.progress.now
    S.executions[x].abort_sent = 1
    S.executions[x].refused = reason
    post(S, S.settings.to_gateway, REFUSED, x)


@hot
def is_worth_it(S: State, x: int) -> bool:
    """Whether some client would have the answer of execution `x` in time, if it were sent now."""
    if S.settings.shed == SHED_NONE:
        return True
    c = int(S.executions[x].call)
    a = S.executions[x].waiters
    if a == NONE:
        return S.settings.shed == SHED_CALL and S.calls[c].status == LIVE and in_time(S, c, INFINITY)
    while a != NONE:
        c = int(S.attempts[a].call)
        if in_time(S, c, S.attempts[a].start + timeout_of(S, c)):
            return True
        a = S.attempts[a].next
    return False


@hot
def in_time(S: State, c: int, attempt_ends: float) -> bool:
    """Whether the client of call `c`, of which an attempt times out at `attempt_ends`, can be expected to be there."""
    answer = S.progress.answer_s + DEVIATIONS * S.progress.answer_off_s
    if S.settings.timeout_kind != TOTAL and S.calls[c].stream != WHOLE:
        answer = S.progress.first_token_s + DEVIATIONS * S.progress.first_token_off_s
    if S.settings.shed == SHED_CALL:
        attempt_ends = S.calls[c].arrival + S.settings.max_attempts * timeout_of(S, c) + S.settings.backoff_total
    ends = min(attempt_ends, S.calls[c].arrival + S.settings.deadline)
    return S.progress.now + answer + S.settings.to_gateway <= ends


@hot
def learn_from(S: State, x: int) -> None:
    """The gateway updates what it expects of a request by one that has finished (RFC 6298, section 2)."""
    sent = S.executions[x].queued - 2.0 * S.settings.to_engine
    answer = S.executions[x].end - sent
    first_token = S.executions[x].first_output - sent
    if S.progress.answer_s == 0.0:
        S.progress.answer_s = answer
        S.progress.answer_off_s = 0.5 * answer
        S.progress.first_token_s = first_token
        S.progress.first_token_off_s = 0.5 * first_token
        return
    S.progress.answer_off_s += 0.25 * (abs(answer - S.progress.answer_s) - S.progress.answer_off_s)
    S.progress.answer_s += 0.125 * (answer - S.progress.answer_s)
    S.progress.first_token_off_s += 0.25 * (abs(first_token - S.progress.first_token_s) - S.progress.first_token_off_s)
    S.progress.first_token_s += 0.125 * (first_token - S.progress.first_token_s)


@hot
def codel_drops(S: State, waited: float) -> bool:
    """Whether CoDel refuses the request whose turn has come after it `waited` so long (RFC 8289, section 5.5)."""
    if S.settings.codel_target == INFINITY:
        return False
    now = S.progress.now
    interval = S.settings.codel_interval
    standing = False
    if waited < S.settings.codel_target:
        S.progress.codel_above = 0.0
    elif S.progress.codel_above == 0.0:
        S.progress.codel_above = now + interval
    else:
        standing = now >= S.progress.codel_above
    if not standing:
        S.progress.codel_dropping = 0
        return False
    if S.progress.codel_dropping:
        if now < S.progress.codel_next:
            return False
        S.progress.codel_count += 1
        S.progress.codel_next += interval / math.sqrt(S.progress.codel_count)
        return True
    S.progress.codel_dropping = 1
    since = S.progress.codel_count - S.progress.codel_last
    if since <= 1 or now - S.progress.codel_next >= MEMORY_OF_DROPS * interval:
        since = 1
    S.progress.codel_count = since
    S.progress.codel_last = since
    S.progress.codel_next = now + interval / math.sqrt(since)
    return True
