"""What attempts show of their clients: how long they wait, how often and after what pause they try again."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trace_schema.columns import is_empty
from trace_schema.fold.groups import Groups, having
from trace_schema.fold.units import Floats, Ints, numeric

TIMEOUTS_LEAST = 3
"""Timed-out attempts from which a timeout is inferred."""
WAITS_LEAST = 5
"""Waits before a retry from which its law is inferred."""
AGREEING_SHARE = 0.8
"""Share of observations that must agree before a value is inferred from them."""


class ObservedClient(msgspec.Struct, frozen=True, kw_only=True):
    """What a log shows of how its clients wait and try again; null where it shows too little."""

    timeout_s: float | None = None
    max_attempts: int | None = None
    backoff_base_s: float | None = None
    backoff_factor: float | None = None
    backoff_jitter: float | None = None
    streams_retried: Literal["never"] | None = None
    """never: of at least three streams that timed out none was tried again, as SDKs do once they have the headers."""
    timeouts: int = 0
    """Timed-out attempts seen."""
    retries: int = 0
    """Retries seen."""


def observe_client(attempts: pa.Table, groups: Groups) -> ObservedClient:
    """What attempts in `groups` order show of their clients."""
    start, length = numeric(attempts, "arrival_s"), numeric(attempts, "e2e_s")
    # A gateway that says how long it waited is believed before its clock.
    announced = numeric(attempts, "gateway_timeout_s")
    waited = np.where(np.isnan(announced), length, announced)
    timed_out = waited[having(attempts, "timeout") & ~np.isnan(waited)]
    number = groups.number
    retry = np.flatnonzero(number > 0)
    waits = start[retry] - (start + length)[retry - 1]
    good = waits > 0
    ended = having(attempts, "ok") | having(attempts, "cancelled")
    # Once the headers of a response have come, client libraries do not ask again.
    ended |= having(attempts, "timeout") & (numeric(attempts, "http_status", 0.0) == 200)
    told = len(retry) > 0 or not is_empty(attempts["retry_group"]) or not is_empty(attempts["retry_index"])
    gave_up = groups.size[~ended[groups.last] & told]
    base, factor, jitter = backoff(number[retry][good], waits[good])
    return ObservedClient(
        timeout_s=common_timeout(timed_out),
        max_attempts=common_count(gave_up),
        backoff_base_s=base,
        backoff_factor=factor,
        backoff_jitter=jitter,
        streams_retried=retries_of_streams(attempts, groups),
        timeouts=len(timed_out),
        retries=len(retry),
    )


def retries_of_streams(attempts: pa.Table, groups: Groups) -> Literal["never"] | None:
    """Whether streams that time out are never tried again; None where too few did, some were, or nothing is."""
    if is_empty(attempts["stream"]) or len(groups.first) == len(groups.order):
        return None
    streamed = np.asarray(pc.fill_null(attempts["stream"], False))
    last = np.zeros(len(streamed), bool)
    last[groups.last] = True
    timed_out = streamed & having(attempts, "timeout")
    return "never" if timed_out.sum() >= TIMEOUTS_LEAST and not (timed_out & ~last).any() else None


def common_timeout(seconds: Floats) -> float | None:
    """The timeout behind durations that all end a little after it.

    Their 5% quantile, rounded to the coarsest of 5, 1, 0.5, 0.1, 0.05, 0.01 s within 0.5% + 2 ms of it, when at least
    80% of the durations lie within 5% of that.
    """
    if len(seconds) < TIMEOUTS_LEAST:
        return None
    low = float(np.quantile(seconds, 0.05))
    for step in (5.0, 1.0, 0.5, 0.1, 0.05, 0.01):
        value = round(low / step) * step
        if value > 0 and abs(low - value) <= 0.005 * value + 0.002:
            near = np.mean(np.abs(seconds - value) <= 0.05 * value + 0.05)
            return round(value, 2) if near >= AGREEING_SHARE else None
    return None


def common_count(attempts: Ints) -> int | None:
    """The number of attempts after which calls were given up, when at least 80% of those agree on the largest."""
    if len(attempts) < TIMEOUTS_LEAST:
        return None
    most = int(attempts.max())
    return most if np.mean(attempts == most) >= AGREEING_SHARE else None


def backoff(number: Ints, waits: Floats) -> tuple[float | None, float | None, float | None]:
    """(base_s, factor, jitter) of `wait n = base * factor ** (n - 1) * (1 - jitter * U)`, U uniform in [0, 1).

    factor: the geometric mean ratio of successive retries' waits (their 95% quantiles), to 0.1; base and jitter: from
    the 0.5% and 99.5% quantiles of `wait / factor ** (n - 1)`, to two significant digits.
    """
    if len(waits) < WAITS_LEAST:
        return None, None, None
    counted = [n for n in range(1, int(number.max()) + 1) if (number == n).sum() > 2]
    longest = [float(np.quantile(waits[number == n], 0.95)) for n in counted]
    steps = len(longest) - 1
    factor = max(round((longest[-1] / longest[0]) ** (1.0 / steps), 1), 1.0) if steps > 0 else 1.0
    scaled = waits / factor ** (number - 1)
    low, high = (float(q) for q in np.quantile(scaled, [0.005, 0.995]))
    base = float(f"{high:.2g}")
    jitter = min(max(float(f"{1.0 - low / high:.2g}"), 0.0), 1.0)
    return base, factor if steps > 0 else None, jitter
