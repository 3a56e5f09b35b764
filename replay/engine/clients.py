"""Clients: they send attempts, wait, give up, try again within their budget, or leave for good."""

from __future__ import annotations

from replay.engine.events import (
    ATTEMPT_AT_GATEWAY,
    DISCONNECT_AT_GATEWAY,
    RETRY_IS_SENT,
    TIMES_OUT,
    USER_LEAVES,
    draw,
    post,
    post_at,
)
from replay.engine.gateway import detach
from replay.engine.kernel import hot
from replay.engine.state import (
    BUDGET_EXHAUSTED,
    CANCELLED,
    DELIVERED,
    INFINITY,
    LEFT,
    LIVE,
    NONE,
    OK,
    OPEN,
    REJECTED,
    RETRIES_EXHAUSTED,
    TIMEOUT,
    TOO_LONG,
    WHOLE,
    State,
)

DRAW_BACKOFF = 1
"""Purpose of the draw that jitters a wait before a retry."""


@hot
def call_arrives(S: State, c: int) -> None:
    """A user asks: the client deposits in its retry budget and sends the first attempt."""
    if S.settings.has_budget:
        bucket = S.calls[c].bucket
        S.budgets[bucket] = min(S.budgets[bucket] + S.settings.budget_deposit, S.settings.budget_cap)
    if S.calls[c].status == TOO_LONG:
        a = new_attempt(S, c)
        S.attempts[a].status = REJECTED
        S.attempts[a].end = S.progress.now
        S.calls[c].end = S.progress.now
        return
    send_attempt(S, c)
    if S.calls[c].leaves_at < INFINITY:
        post_at(S, S.calls[c].leaves_at, USER_LEAVES, c)


@hot
def new_attempt(S: State, c: int) -> int:
    a = S.progress.attempts
    S.progress.attempts += 1
    attempt = S.attempts[a]
    attempt.call = c
    attempt.number = S.calls[c].attempts
    attempt.start = S.progress.now
    attempt.end = INFINITY
    attempt.first_token = INFINITY
    attempt.execution = NONE
    attempt.next = NONE
    attempt.previous = NONE
    S.calls[c].attempts += 1
    return a


@hot
def send_attempt(S: State, c: int) -> None:
    """The client of call `c` sends its next attempt and starts to wait."""
    a = new_attempt(S, c)
    S.calls[c].attempt = a
    if S.calls[c].timeout < INFINITY:
        post_at(S, S.progress.now + S.calls[c].timeout, TIMES_OUT, a)
    post(S, S.settings.to_gateway, ATTEMPT_AT_GATEWAY, a)


@hot
def retry_is_sent(S: State, c: int) -> None:
    if S.calls[c].status == LIVE:
        send_attempt(S, c)


@hot
def first_token_reaches_client(S: State, a: int) -> float:
    """When the client of attempt `a` gets its first token, from what is known now; else infinity.

    A joined attempt gets at once what has been put out before it came.
    """
    x = int(S.attempts[a].execution)
    if x == NONE or not S.executions[x].first_output < INFINITY:
        return INFINITY
    at_gateway = max(S.executions[x].first_output + S.settings.to_engine, S.attempts[a].start + S.settings.to_gateway)
    return at_gateway + S.settings.to_gateway


@hot
def end_attempt(S: State, a: int, status: int) -> None:
    """Attempt `a` ends for its client, now."""
    S.attempts[a].status = status
    S.attempts[a].end = S.progress.now
    first = first_token_reaches_client(S, a)
    if first <= S.progress.now:
        S.attempts[a].first_token = first
    S.calls[S.attempts[a].call].attempt = NONE
    detach(S, a)


@hot
def end_call(S: State, c: int, status: int) -> None:
    S.calls[c].status = status
    S.calls[c].end = S.progress.now


@hot
def times_out(S: State, a: int) -> None:
    """The timer of attempt `a` fires."""
    if S.attempts[a].status != OPEN:
        return
    c = int(S.attempts[a].call)
    if (
        S.settings.first_token_timeout
        and S.calls[c].stream != WHOLE
        and first_token_reaches_client(S, a) <= S.progress.now
    ):
        return
    end_attempt(S, a, TIMEOUT)
    post(S, S.settings.to_gateway, DISCONNECT_AT_GATEWAY, a)
    retry_or_give_up(S, c)


@hot
def retry_or_give_up(S: State, c: int) -> None:
    """After a failed attempt: wait and try again, if attempts and budget are left."""
    retry = S.calls[c].attempts
    if retry >= S.settings.max_attempts:
        end_call(S, c, RETRIES_EXHAUSTED)
        return
    if S.settings.has_budget:
        bucket = S.calls[c].bucket
        if S.budgets[bucket] < S.settings.budget_cost:
            end_call(S, c, BUDGET_EXHAUSTED)
            return
        S.budgets[bucket] -= S.settings.budget_cost
    wait = min(S.settings.backoff_base * S.settings.backoff_factor ** (retry - 1), S.settings.backoff_cap)
    wait *= 1.0 - S.settings.backoff_jitter * draw(S.settings.seed, DRAW_BACKOFF, c, retry)
    post(S, wait, RETRY_IS_SENT, c)


@hot
def user_leaves(S: State, c: int) -> None:
    """The user of call `c` is gone, whatever the client was doing."""
    if S.calls[c].status != LIVE:
        return
    a = S.calls[c].attempt
    if a != NONE:
        end_attempt(S, a, CANCELLED)
        post(S, S.settings.to_gateway, DISCONNECT_AT_GATEWAY, a)
    end_call(S, c, LEFT)


@hot
def response_arrives(S: State, a: int) -> None:
    """The client of attempt `a` has the whole response."""
    if S.attempts[a].status != OPEN:
        return
    c = int(S.attempts[a].call)
    end_attempt(S, a, OK)
    end_call(S, c, DELIVERED)
    S.calls[c].first_token = S.attempts[a].first_token
    S.calls[c].delivered_by = S.attempts[a].execution


@hot
def deliver(S: State, x: int) -> None:
    """The response of execution `x` reaches every client that waits for it."""
    a = S.executions[x].waiters
    while a != NONE:
        after = S.attempts[a].next
        response_arrives(S, a)
        a = after
