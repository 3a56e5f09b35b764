"""Clients: they send attempts, wait, give up, try again within their budget, or leave for good."""

from __future__ import annotations

from replay.engine.budgets import ACTIVE, attempt_ends, put_in, refuses_own, retry_is_over, takes_retry
from replay.engine.events import (
    ATTEMPT_AT_GATEWAY,
    CALL_ARRIVES,
    DEADLINE_PASSES,
    DELIVER,
    DISCONNECT_AT_GATEWAY,
    HEDGE_IS_SENT,
    REFUSED,
    RETRY_IS_SENT,
    TIMES_OUT,
    USER_LEAVES,
    draw,
    post,
    post_at,
)
from replay.engine.gateway import detach
from replay.engine.kernel import cold, hot
from replay.engine.limits import patience_of, timeout_of
from replay.engine.state import (
    ALWAYS,
    BEFORE_FIRST_TOKEN,
    BUDGET_EXHAUSTED,
    CANCELLED,
    DEADLINE_EXCEEDED,
    DELIVERED,
    FOR_ITS_TURN,
    HAS_COME,
    IDLE,
    INFINITY,
    LEFT,
    LIVE,
    NONE,
    OK,
    OPEN,
    QUEUED,
    REJECTED,
    RETRIES_EXHAUSTED,
    STREAM_BROKEN,
    STREAMED,
    SUPERSEDED,
    THROTTLED,
    TIMEOUT,
    TOO_LONG,
    TOTAL,
    WHOLE,
    State,
)

DRAW_BACKOFF = 1
"""Purpose of the draw that jitters a wait before a retry."""


@hot
def call_arrives(S: State, c: int) -> None:
    """A user asks: the client deposits in its retry budget and sends the first attempt."""
    S.calls[c].arrival = S.progress.now
    if S.calls[c].waits == FOR_ITS_TURN:
        S.calls[c].waits = HAS_COME
    if S.settings.has_budget and S.settings.budget_deposit > 0.0:
        put_in(S.settings, S.budgets[S.call_extras[c].bucket], S.progress.now, S.settings.budget_deposit)
    if S.calls[c].status == TOO_LONG:
        a = new_attempt(S, c)
        S.attempts[a].status = REJECTED
        S.attempts[a].end = S.progress.now
        end_call(S, c, TOO_LONG)
        return
    send_attempt(S, c)
    if patience_of(S, c) < INFINITY:
        post_at(S, S.progress.now + patience_of(S, c), USER_LEAVES, c)
    if S.settings.deadline < INFINITY:
        post_at(S, S.progress.now + S.settings.deadline, DEADLINE_PASSES, c)


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
    """The client of call `c` sends its next attempt and starts to wait, unless it refuses to send it."""
    if S.settings.throttles and refuses_own(
        S.settings, c, S.calls[c].attempts, S.budgets[S.call_extras[c].bucket], S.progress.now
    ):
        refuse_own(S, c)
        return
    a = new_attempt(S, c)
    S.calls[c].attempt = a
    set_off(S, c, a)
    if S.settings.hedges:
        post_at(S, S.progress.now + S.settings.hedge_after, HEDGE_IS_SENT, a)


@cold
def refuse_own(S: State, c: int) -> None:
    """The client of call `c` refuses its next attempt."""
    a = new_attempt(S, c)
    S.attempts[a].status = REJECTED
    S.attempts[a].end = S.progress.now
    retry_is_over(S.call_extras[c], S.budgets[S.call_extras[c].bucket])
    retry_or_give_up(S, c, REJECTED, THROTTLED)


@hot
def may_retry(S: State, c: int, timed_out: bool) -> bool:
    """Whether the budget allows call `c` one more attempt."""
    if not S.settings.has_budget:
        return True
    return takes_retry(S.settings, S.call_extras[c], S.budgets[S.call_extras[c].bucket], S.progress.now, timed_out)


@hot
def set_off(S: State, c: int, a: int) -> None:
    """Attempt `a` is on its way, and its client's timer runs."""
    if S.settings.has_budget:
        S.budgets[S.call_extras[c].bucket, ACTIVE] += 1.0
    if timeout_of(S, c) < INFINITY:
        post_at(S, S.progress.now + timeout_of(S, c), TIMES_OUT, a)
    post(S, S.settings.to_gateway, ATTEMPT_AT_GATEWAY, a)


@hot
def retry_is_sent(S: State, c: int) -> None:
    if S.calls[c].status == LIVE:
        send_attempt(S, c)


@cold
def hedge_is_sent(S: State, a: int) -> None:
    """Attempt `a` has waited long: if it still has no token, another one goes beside it."""
    c = int(S.attempts[a].call)
    if S.attempts[a].status != OPEN or first_token_reaches_client(S, a) <= S.progress.now:
        return
    if S.call_extras[c].hedge != NONE or S.calls[c].attempts >= S.settings.max_attempts or not may_retry(S, c, False):
        return
    b = new_attempt(S, c)
    S.call_extras[c].hedge = b
    set_off(S, c, b)


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


@cold
def end_attempt(S: State, a: int, status: int) -> None:
    """Attempt `a` ends for its client, now; one that was sent beside it takes its place."""
    S.attempts[a].status = status
    S.attempts[a].end = S.progress.now
    first = first_token_reaches_client(S, a)
    if first <= S.progress.now:
        S.attempts[a].first_token = first
    c = int(S.attempts[a].call)
    if S.calls[c].attempt == a:
        S.calls[c].attempt = S.call_extras[c].hedge if S.settings.hedges else NONE
    if S.settings.hedges:
        S.call_extras[c].hedge = NONE
    if S.settings.has_budget or S.settings.throttles:
        attempt_ends(S.settings, S.call_extras[c], S.budgets[S.call_extras[c].bucket], S.progress.now, status)
    detach(S, a)


@hot
def abandon(S: State, a: int, status: int) -> None:
    """The client of attempt `a` hangs up."""
    end_attempt(S, a, status)
    post(S, S.settings.to_gateway, DISCONNECT_AT_GATEWAY, a)


@hot
def end_call(S: State, c: int, status: int) -> None:
    """Call `c` is over."""
    S.calls[c].status = status
    S.calls[c].end = S.progress.now
    if S.settings.has_budget:
        retry_is_over(S.call_extras[c], S.budgets[S.call_extras[c].bucket])
    if S.settings.has_turns:
        next_turn(S, S.call_extras[c].following)


@cold
def next_turn(S: State, c: int) -> None:
    """The turn before call `c` is over, if there is such a call: its user thinks, and then asks."""
    if c != NONE:
        post_at(S, S.progress.now + S.call_extras[c].think, CALL_ARRIVES, c)


@hot
def times_out(S: State, a: int) -> None:
    """The timer of attempt `a` fires."""
    if S.attempts[a].status != OPEN:
        return
    c = int(S.attempts[a].call)
    if S.settings.timeout_kind != TOTAL and S.calls[c].stream != WHOLE:
        if S.settings.timeout_kind == IDLE:
            due = silence_ends_it(S, a)
            if due > S.progress.now:
                post_at(S, due, TIMES_OUT, a)
                return
        elif first_token_reaches_client(S, a) <= S.progress.now:
            return
    abandon(S, a, TIMEOUT)
    if S.calls[c].attempt == NONE:
        retry_stream_or_not(S, c, a)


@hot
def silence_ends_it(S: State, a: int) -> float:
    """When the client of stream `a` will have heard nothing for too long, if it hears nothing from now on; at least.

    While a request decodes, a token comes with every step.
    """
    timeout = timeout_of(S, int(S.attempts[a].call))
    if first_token_reaches_client(S, a) > S.progress.now or timeout <= 0.0:
        return S.progress.now
    x = int(S.attempts[a].execution)
    if S.executions[x].status <= QUEUED + 1 and S.executions[x].silent:
        silent = S.execution_extras[x].silent_since
        return max(silent + S.settings.to_engine + S.settings.to_gateway, S.attempts[a].start) + timeout
    return S.progress.now + timeout


@hot
def retry_stream_or_not(S: State, c: int, a: int) -> None:
    """Attempt `a`, the last one open, has timed out: some clients do not retry a stream that has begun."""
    begun = S.settings.streams_retried != ALWAYS and S.calls[c].stream == STREAMED
    if begun and S.settings.streams_retried == BEFORE_FIRST_TOKEN:
        begun = S.attempts[a].first_token < INFINITY
    if begun:
        end_call(S, c, STREAM_BROKEN)
    else:
        retry_or_give_up(S, c, TIMEOUT, RETRIES_EXHAUSTED)


@cold
def retry_or_give_up(S: State, c: int, status: int, reason: int) -> None:
    """After an attempt that ended with `status`: wait and try again, if attempts and budget are left.

    `reason` is what becomes of the call if none are.
    """
    retry = S.calls[c].attempts
    told = told_wait(S, status, reason)
    last = retry >= S.settings.max_attempts or told == INFINITY
    if last or (status == REJECTED and not S.settings.retries_rejections):
        end_call(S, c, reason)
    elif not may_retry(S, c, status == TIMEOUT):
        end_call(S, c, BUDGET_EXHAUSTED)
    else:
        wait = told if told >= 0.0 else backoff(S, c, retry)
        post_at(S, S.progress.now + wait, RETRY_IS_SENT, c)


@hot
def told_wait(S: State, status: int, reason: int) -> float:
    """Seconds that a client is told to wait; below 0 if it is told nothing, infinity if it will not wait so long."""
    return S.settings.retry_after if status == REJECTED and reason != THROTTLED else float(NONE)


@hot
def backoff(S: State, c: int, retry: int) -> float:
    """Seconds that the client waits before retry number `retry` of call `c`."""
    factor = S.settings.backoff_factor
    terms = factor ** (retry - 1) if retry > 1 else 1.0
    if S.settings.backoff_by_sum:
        terms = float(retry) if factor == 1.0 else (factor**retry - 1.0) / (factor - 1.0)
    floor = S.settings.backoff_floor
    most = floor
    if S.settings.backoff_base > 0.0:  # else 0 times what may have become infinite
        most = max(min(S.settings.backoff_base * terms, S.settings.backoff_cap), floor)
    return floor + (most - floor) * (1.0 - S.settings.backoff_jitter * draw(S.settings.seed, DRAW_BACKOFF, c, retry))


@hot
def user_leaves(S: State, c: int) -> None:
    """The user of call `c` is gone, whatever the client was doing."""
    if S.calls[c].status == LIVE:
        hang_up(S, c, CANCELLED)
        end_call(S, c, LEFT)


@cold
def read_enough(S: State, a: int) -> None:
    """The user who reads the stream of attempt `a` has seen as much as they wanted."""
    if S.attempts[a].status == OPEN:
        user_leaves(S, S.attempts[a].call)


@cold
def deadline_passes(S: State, c: int) -> None:
    """The client gives call `c` up, whatever it was doing."""
    if S.calls[c].status == LIVE:
        hang_up(S, c, TIMEOUT)
        end_call(S, c, DEADLINE_EXCEEDED)


@cold
def hang_up(S: State, c: int, status: int) -> None:
    """All attempts of call `c` that are open end with `status`."""
    while S.calls[c].attempt != NONE:
        abandon(S, S.calls[c].attempt, status)


@cold
def refused(S: State, x: int) -> None:
    """The refusal of execution `x` reaches the clients that wait for it, one after the other."""
    a = S.executions[x].waiters
    if a == NONE:
        return
    c = int(S.attempts[a].call)
    end_attempt(S, a, REJECTED)
    if S.calls[c].attempt == NONE:
        retry_or_give_up(S, c, REJECTED, S.executions[x].refused)
    post_at(S, S.progress.now, REFUSED, x)


@hot
def response_arrives(S: State, a: int) -> None:
    """The client of attempt `a` has the whole response."""
    if S.attempts[a].status != OPEN:
        return
    c = int(S.attempts[a].call)
    end_attempt(S, a, OK)
    if S.calls[c].attempt != NONE:
        hang_up(S, c, SUPERSEDED)
    end_call(S, c, DELIVERED)
    S.calls[c].first_token = S.attempts[a].first_token
    S.calls[c].delivered_by = S.attempts[a].execution


@hot
def deliver(S: State, x: int) -> None:
    """The response of execution `x` reaches the clients that wait for it, one after the other."""
    a = S.executions[x].waiters
    if a != NONE:
        response_arrives(S, a)
        if S.executions[x].waiters != NONE:
            post_at(S, S.progress.now, DELIVER, x)
