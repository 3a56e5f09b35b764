"""Retry budgets and adaptive throttling: what clients may still send.

A row of `budgets` is a bucket: its tokens, its attempts under way and the calls among them that try again, and three
sums over a sliding window: of the bucket itself where its deposits expire, of requests and of accepts. Such a sum is
kept in slices, as Finagle's WindowedAdder keeps it: the oldest is dropped when a new one begins, which is when
something is asked or added at least a slice's length after the last one began.
"""

from __future__ import annotations

from replay.engine.events import draw
from replay.engine.kernel import cold, hot
from replay.engine.state import INFINITY, State

TOKENS, ACTIVE, RETRYING = 0, 1, 2
DEPOSITS, REQUESTS, ACCEPTS = 3, 15, 27
"""Where the sliding sums begin: the slice being written, when it began, the place of the oldest one, and the others."""
OTHER_SLICES = 9
COLUMNS = ACCEPTS + 3 + OTHER_SLICES
DRAW_THROTTLE = 4
"""Purpose of the draw that refuses an attempt."""


@cold
def turn_slices(S: State, b: int, at: int, window: float) -> None:
    """Begin a new slice if the present one is old enough; of those that were skipped nothing is known but that."""
    length = window / (OTHER_SLICES + 1)
    age = S.progress.now - S.budgets[b, at + 1]
    if age < length:
        return
    place = int(S.budgets[b, at + 2])
    S.budgets[b, at + 3 + place] = S.budgets[b, at]
    S.budgets[b, at] = 0.0
    place = (place + 1) % OTHER_SLICES
    for _ in range(min(int(age / length - 1.0), OTHER_SLICES)):
        S.budgets[b, at + 3 + place] = 0.0
        place = (place + 1) % OTHER_SLICES
    S.budgets[b, at + 2] = place
    S.budgets[b, at + 1] = S.progress.now


@hot
def add_to_sum(S: State, b: int, at: int, window: float, amount: float) -> None:
    turn_slices(S, b, at, window)
    S.budgets[b, at] += amount


@hot
def sum_of_late(S: State, b: int, at: int, window: float) -> float:
    """What was added within about the last `window` seconds."""
    turn_slices(S, b, at, window)
    total = S.budgets[b, at]
    for k in range(OTHER_SLICES):
        total += S.budgets[b, at + 3 + k]
    return total


@hot
def put_in(S: State, b: int, amount: float) -> None:
    """Change what is in a bucket by `amount`, up to its cap and not below 0; or for a while, where deposits expire."""
    if S.settings.budget_ttl < INFINITY:
        add_to_sum(S, b, DEPOSITS, S.settings.budget_ttl, amount)
    else:
        S.budgets[b, TOKENS] = max(min(S.budgets[b, TOKENS] + amount, S.settings.budget_cap), 0.0)


@hot
def tokens_in(S: State, b: int) -> float:
    tokens = S.budgets[b, TOKENS]
    if S.settings.budget_ttl < INFINITY:
        tokens += sum_of_late(S, b, DEPOSITS, S.settings.budget_ttl)
    return tokens


@hot
def call_deposits(S: State, c: int) -> None:
    """A call arrives."""
    if S.settings.has_budget and S.settings.budget_deposit > 0.0:
        put_in(S, S.calls[c].bucket, S.settings.budget_deposit)


@hot
def attempt_begins(S: State, c: int) -> None:
    """A client has one more attempt under way."""
    if S.settings.has_budget:
        S.budgets[S.calls[c].bucket, ACTIVE] += 1.0


@hot
def attempt_ends(S: State, c: int, well: bool, failed: bool) -> None:
    """An attempt is over: it ended well, or failed, or neither (its user left, another one was faster)."""
    b = S.calls[c].bucket
    if S.settings.throttles:
        count_request(S, b, well)
    if not S.settings.has_budget:
        return
    S.budgets[b, ACTIVE] -= 1.0
    retry_is_over(S, c)
    if failed and S.settings.budget_failure > 0.0:
        put_in(S, b, -S.settings.budget_failure)
    elif well and S.settings.refunds and S.calls[c].last_cost > 0.0:
        put_in(S, b, S.calls[c].last_cost)
    elif well and S.settings.budget_success > 0.0:
        put_in(S, b, S.settings.budget_success)


@hot
def retry_is_over(S: State, c: int) -> None:
    """A retry is one from when it is decided until it ends."""
    if S.settings.has_budget and S.calls[c].retrying:
        S.calls[c].retrying = 0
        S.budgets[S.calls[c].bucket, RETRYING] -= 1.0


@hot
def may_retry(S: State, c: int, timed_out: bool) -> bool:
    """Whether the budget allows call `c` one more attempt, which then takes its price from it."""
    if not S.settings.has_budget:
        return True
    b = S.calls[c].bucket
    retrying = S.budgets[b, RETRYING]
    if retrying >= max(S.settings.budget_share * S.budgets[b, ACTIVE], S.settings.retries_least):
        return False
    cost = S.settings.budget_timeout_cost if timed_out else S.settings.budget_cost
    tokens = tokens_in(S, b)
    if tokens < cost or tokens <= S.settings.budget_above:
        return False
    put_in(S, b, -cost)
    S.calls[c].last_cost = cost
    if not S.calls[c].retrying:
        S.calls[c].retrying = 1
        S.budgets[b, RETRYING] += 1.0
    return True


@hot
def count_request(S: State, b: int, accepted: bool) -> None:
    """A request has ended, well or not."""
    add_to_sum(S, b, REQUESTS, S.settings.throttle_window, 1.0)
    if accepted:
        add_to_sum(S, b, ACCEPTS, S.settings.throttle_window, 1.0)


@hot
def is_throttled(S: State, c: int) -> bool:
    """Whether the client refuses the next attempt of call `c` itself, which then counts as a request."""
    if not S.settings.throttles:
        return False
    b = S.calls[c].bucket
    requests = sum_of_late(S, b, REQUESTS, S.settings.throttle_window)
    accepts = sum_of_late(S, b, ACCEPTS, S.settings.throttle_window)
    excess = (requests - S.settings.throttle * accepts) / (requests + 1.0)
    if draw(S.settings.seed, DRAW_THROTTLE, c, S.calls[c].attempts) >= excess:
        return False
    count_request(S, b, False)
    return True
