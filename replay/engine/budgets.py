"""Retry budgets and adaptive throttling: what clients may still send.

A row of `budgets` is a bucket: its tokens, its attempts under way and the calls among them that try again, and three
sums over a sliding window: of the bucket itself where its deposits expire, of requests and of accepts. Such a sum is
kept in slices, as Finagle's WindowedAdder keeps it: the oldest is dropped when a new one begins, which is when
something is asked or added at least a slice's length after the last one began.

These functions are called, not inlined, and take the few arrays of the state that they need.
"""

from __future__ import annotations

from typing import Any

from replay.engine.events import draw
from replay.engine.kernel import cold, hot
from replay.engine.state import INFINITY, OK, REJECTED, TIMEOUT

TOKENS, ACTIVE, RETRYING = 0, 1, 2
DEPOSITS, REQUESTS, ACCEPTS = 3, 15, 27
"""Where the sliding sums begin: the slice being written, when it began, the place of the oldest one, and the others."""
OTHER_SLICES = 9
COLUMNS = ACCEPTS + 3 + OTHER_SLICES
ROUNDING_TOKENS = 1e-9
"""Ten deposits of a tenth are one token, to the price of one: sums that differ by less are equal."""
DRAW_THROTTLE = 4
"""Purpose of the draw that refuses an attempt."""


@cold
def turn_slices(bucket: Any, at: int, window: float, now: float) -> None:
    """Begin a new slice if the present one is old enough; of those that were skipped nothing is known but that."""
    length = window / (OTHER_SLICES + 1)
    age = now - bucket[at + 1]
    if age < length:
        return
    place = int(bucket[at + 2])
    bucket[at + 3 + place] = bucket[at]
    bucket[at] = 0.0
    place = (place + 1) % OTHER_SLICES
    for _ in range(min(int(age / length - 1.0), OTHER_SLICES)):
        bucket[at + 3 + place] = 0.0
        place = (place + 1) % OTHER_SLICES
    bucket[at + 2] = place
    bucket[at + 1] = now


@cold
def add_to_sum(bucket: Any, at: int, window: float, now: float, amount: float) -> None:
    turn_slices(bucket, at, window, now)
    bucket[at] += amount


@cold
def sum_of_late(bucket: Any, at: int, window: float, now: float) -> float:
    """What was added within about the last `window` seconds."""
    turn_slices(bucket, at, window, now)
    total = bucket[at]
    for k in range(OTHER_SLICES):
        total += bucket[at + 3 + k]
    return total


@cold
def put_in(settings: Any, bucket: Any, now: float, amount: float) -> None:
    """Change what is in a bucket by `amount`, up to its cap and not below 0; or for a while, where deposits expire."""
    if settings.budget_ttl < INFINITY:
        add_to_sum(bucket, DEPOSITS, settings.budget_ttl, now, amount)
    else:
        bucket[TOKENS] = max(min(bucket[TOKENS] + amount, settings.budget_cap), 0.0)


@hot
def tokens_in(settings: Any, bucket: Any, now: float) -> float:
    tokens = bucket[TOKENS]
    if settings.budget_ttl < INFINITY:
        tokens += sum_of_late(bucket, DEPOSITS, settings.budget_ttl, now)
    return tokens


@cold
def attempt_ends(settings: Any, call: Any, bucket: Any, now: float, status: int) -> None:
    """An attempt is over: it ended well, or failed, or neither (its user left, another one was faster)."""
    well = status == OK
    if settings.throttles:
        count_request(settings, bucket, now, well)
    if not settings.has_budget:
        return
    bucket[ACTIVE] -= 1.0
    retry_is_over(call, bucket)
    if status in (TIMEOUT, REJECTED):
        put_in(settings, bucket, now, -settings.budget_failure)
    elif well and settings.refunds and call.last_cost > 0.0:
        put_in(settings, bucket, now, call.last_cost)
    elif well and settings.budget_success > 0.0:
        put_in(settings, bucket, now, settings.budget_success)


@hot
def retry_is_over(call: Any, bucket: Any) -> None:
    """A retry is one from when it is decided until it ends."""
    if call.retrying:
        call.retrying = 0
        bucket[RETRYING] -= 1.0


@cold
def takes_retry(settings: Any, call: Any, bucket: Any, now: float, timed_out: bool) -> bool:
    """Whether the budget allows a call one more attempt, which then takes its price from it."""
    if bucket[RETRYING] >= max(settings.budget_share * bucket[ACTIVE], settings.retries_least):
        return False
    cost = settings.budget_timeout_cost if timed_out else settings.budget_cost
    tokens = tokens_in(settings, bucket, now)
    if tokens < cost - ROUNDING_TOKENS or tokens <= settings.budget_above + ROUNDING_TOKENS:
        return False
    put_in(settings, bucket, now, -cost)
    call.last_cost = cost
    if not call.retrying:
        call.retrying = 1
        bucket[RETRYING] += 1.0
    return True


@cold
def count_request(settings: Any, bucket: Any, now: float, accepted: bool) -> None:
    """A request has ended, well or not."""
    add_to_sum(bucket, REQUESTS, settings.throttle_window, now, 1.0)
    if accepted:
        add_to_sum(bucket, ACCEPTS, settings.throttle_window, now, 1.0)


@cold
def refuses_own(settings: Any, c: int, number: int, bucket: Any, now: float) -> bool:
    """Whether the client refuses attempt `number` of call `c` itself, which then counts as a request."""
    requests = sum_of_late(bucket, REQUESTS, settings.throttle_window, now)
    accepts = sum_of_late(bucket, ACCEPTS, settings.throttle_window, now)
    excess = (requests - settings.throttle * accepts) / (requests + 1.0)
    if draw(settings.seed, DRAW_THROTTLE, c, number) >= excess:
        return False
    count_request(settings, bucket, now, False)
    return True
