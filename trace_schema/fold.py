"""Attempts to calls, where the log says which attempts belong together; and what the log shows of its clients.

An attempt without a `retry_group` is a call of its own: nothing is joined by guess.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trace_schema.calls import CALLS
from trace_schema.check import conform

Floats = npt.NDArray[np.float64]

TIMEOUTS_LEAST = 3
"""Timed-out attempts from which a timeout is inferred."""
WAITS_LEAST = 5
"""Waits before a retry from which its law is inferred."""
AGREEING_SHARE = 0.8
"""Share of observations that must agree before a value is inferred from them."""

SAME = ("idempotency_key", "model", "deployment", "tenant", "client", "session_id", "max_tokens", "block_hashes",
        "hash_block_tokens", "stream", "timeout_kind")  # fmt: skip
"""What a call takes from its first attempt."""
FOLDED = [*SAME, "retry_group", "retry_index", "arrival_s", "arrival_unix_ns", "status", "e2e_s", "ttft_s", "priority",
          "prompt_tokens", "output_tokens", "received_tokens", "client_timeout_s", "body_hash"]  # fmt: skip
"""Columns of ATTEMPTS that `fold` reads."""


class ObservedClient(msgspec.Struct, frozen=True, kw_only=True):
    """What a log shows of how its clients wait and try again; null where it shows too little."""

    timeout_s: float | None = None
    max_attempts: int | None = None
    backoff_base_s: float | None = None
    backoff_factor: float | None = None
    backoff_jitter: float | None = None
    timeouts: int = 0
    """Timed-out attempts seen."""
    retries: int = 0
    """Retries seen."""


class Groups:
    """The attempts in order of (call, time), and where each call's begin and end."""

    def __init__(self, attempts: pa.Table) -> None:
        n = attempts.num_rows
        start = numeric(attempts, "arrival_s")
        group = attempts["retry_group"]
        if group.null_count == n:
            self.order = np.argsort(start, kind="stable")
            self.size = np.ones(n, np.int64)
        else:
            codes = np.asarray(group.combine_chunks().dictionary_encode().indices.fill_null(-1)).astype(np.int64)
            codes = np.where(codes < 0, np.arange(n) + n, codes)
            order = np.lexsort((start, numeric(attempts, "retry_index", 0.0), codes))
            first = np.flatnonzero(np.diff(codes[order], prepend=-1))
            by_arrival = np.argsort(start[order[first]], kind="stable")
            self.size = np.diff(np.append(first, n))[by_arrival]
            moved = first[by_arrival] - (np.cumsum(self.size) - self.size)
            self.order = order[np.arange(n) + np.repeat(moved, self.size)]
        self.first = np.cumsum(self.size) - self.size
        self.last = self.first + self.size - 1


def numeric(attempts: pa.Table, name: str, missing: float = np.nan) -> Floats:
    """A column as floats."""
    return np.asarray(pc.fill_null(attempts[name].cast(pa.float64()), missing), dtype=np.float64)


def at(table: pa.Table, places: npt.NDArray[np.int64]) -> pa.Table:
    """The rows at `places`; the table itself where those are all its rows in order, which spares a copy."""
    everywhere = len(places) == table.num_rows and bool((places == np.arange(len(places))).all())
    return table if everywhere else table.take(pa.array(places))


def having(attempts: pa.Table, status: str) -> npt.NDArray[np.bool_]:
    """Which attempts ended with `status`."""
    return np.asarray(pc.equal(attempts["status"], status))


def fold(attempts: pa.Table) -> tuple[pa.Table, ObservedClient]:
    """Calls (schema CALLS) in order of arrival, and what is known of the clients.

    A call arrives when its first attempt is sent. Its output is what a whole response holds, where an attempt says so;
    else the most that any attempt received, which is a lower bound (`output_censored`) unless one had it all. Times
    count from the first arrival when the log's clock is absolute, else from the log's own zero.
    """
    groups = Groups(attempts)
    attempts = at(attempts.select(FOLDED), groups.order)
    first = at(attempts, groups.first)
    client = observe_client(attempts, groups)
    start, length = numeric(attempts, "arrival_s"), numeric(attempts, "e2e_s")
    absolute = attempts["arrival_unix_ns"].null_count < attempts.num_rows
    origin = float(start.min()) if absolute else 0.0
    n = len(start)
    delivering = np.minimum.reduceat(np.where(having(attempts, "ok"), np.arange(n), n), groups.first)
    delivered = delivering < n
    delivering[~delivered] = 0
    output, censored = outputs(attempts, groups, delivered)
    ended = start[groups.last] + length[groups.last]
    arrival = start[groups.first]
    left = having(attempts, "cancelled")[groups.last]
    last_status = at(attempts.select(["status"]), groups.last)["status"]
    fields: dict[str, Any] = {
        "call_id": np.arange(len(arrival)),
        "content_id": contents(first),
        "source_call": first["retry_group"],
        "arrival_s": np.maximum(arrival - origin, 0.0),
        "priority": pc.fill_null(first["priority"], 0),
        "prompt_tokens": first["prompt_tokens"],
        "output_tokens": output,
        "output_censored": censored,
        "user_cancel_s": nullable(ended - arrival, left),
        "patience_censored": ~left,
        "client_timeout_s": timeouts(first, client),
        "observed_attempts": groups.size,
        "observed_status": pc.if_else(pa.array(delivered), "ok", last_status),
        "observed_ttft_s": nullable(numeric(attempts, "ttft_s")[delivering], delivered),
        "observed_e2e_s": nullable((start + length)[delivering] - arrival, delivered),
    }
    fields |= {name: first[name] for name in SAME}
    return conform(pa.table(fields), CALLS), client


def nullable(values: Floats, known: npt.NDArray[np.bool_]) -> pa.Array:
    """The values where they are known and numbers, else null."""
    return pa.array(values, mask=~known | np.isnan(values))


def outputs(
    attempts: pa.Table, groups: Groups, delivered: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """(output tokens of each call, whether they are only a lower bound)."""
    whole = np.maximum.reduceat(numeric(attempts, "output_tokens", -1.0), groups.first)
    received = np.maximum.reduceat(numeric(attempts, "received_tokens", 0.0), groups.first)
    known = whole > 0
    tokens = np.where(known, whole, np.maximum(received, 1.0))
    return tokens.astype(np.int64), ~known & ~delivered


def contents(first: pa.Table) -> npt.NDArray[np.int64]:
    """One number for each body hash; calls without one are unlike any other."""
    n = first.num_rows
    if first["body_hash"].null_count == n:
        return np.arange(n)
    codes = np.asarray(pc.fill_null(pc.dictionary_encode(first["body_hash"].combine_chunks()).indices, -1))
    values = np.where(codes >= 0, codes, np.arange(n) + n)
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def timeouts(first: pa.Table, client: ObservedClient) -> pa.ChunkedArray:
    """What each call's client announced, else what the log shows of all."""
    announced = first["client_timeout_s"]
    return announced if client.timeout_s is None else pc.fill_null(announced, client.timeout_s)


def observe_client(attempts: pa.Table, groups: Groups) -> ObservedClient:
    """What attempts in `groups` order show of their clients."""
    start, length = numeric(attempts, "arrival_s"), numeric(attempts, "e2e_s")
    timed_out = length[having(attempts, "timeout") & ~np.isnan(length)]
    number = np.arange(len(start)) - np.repeat(groups.first, groups.size)
    retry = np.flatnonzero(number > 0)
    waits = start[retry] - (start + length)[retry - 1]
    good = waits > 0
    ended = having(attempts, "ok") | having(attempts, "cancelled")
    told = attempts["retry_group"].null_count < attempts.num_rows
    gave_up = groups.size[~ended[groups.last] & told]
    base, factor, jitter = backoff(number[retry][good], waits[good])
    return ObservedClient(
        timeout_s=common_timeout(timed_out),
        max_attempts=common_count(gave_up),
        backoff_base_s=base,
        backoff_factor=factor,
        backoff_jitter=jitter,
        timeouts=len(timed_out),
        retries=len(retry),
    )


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


def common_count(attempts: npt.NDArray[np.int64]) -> int | None:
    """The number of attempts after which calls were given up, when at least 80% of those agree on the largest."""
    if len(attempts) < TIMEOUTS_LEAST:
        return None
    most = int(attempts.max())
    return most if np.mean(attempts == most) >= AGREEING_SHARE else None


def backoff(number: npt.NDArray[np.int64], waits: Floats) -> tuple[float | None, float | None, float | None]:
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
