"""A client went away: had its user left, or had it waited long enough? A log of connections writes the same for both.

A cancelled attempt timed out when its client tried again, when it lasted as long as the client said that it would wait,
or when it lasted as long as others that were cancelled: timeouts end at one value, users leave whenever they like.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trace_schema.fold.clients import common_timeout
from trace_schema.fold.groups import Groups, having
from trace_schema.fold.units import Floats, Mask, coarseness, numeric

CLUSTER_LEAST = 3
"""Cancelled durations that make a cluster."""
CHANCE_LOG, WINDOWS_FREE = -8.5, 20
"""Log of the bound on a cluster's probability, were its durations spread like those around it; it is the lower the more
durations there are beyond so many, each of which begins a window that might look like a cluster by chance (Bonferroni).
"""
TIMEOUTS_MOST = 8
"""Clusters that are looked for: clients of so many kinds."""
SHORTEST_S = 0.02
"""Nobody waits so short a time."""
ANNOUNCED_SHARE = 0.95
"""A client's clock starts before a gateway's: the first part of the way to it counts too."""


class Departures(msgspec.Struct, frozen=True, kw_only=True):
    """What became of attempts whose clients went away."""

    left: int = 0
    """Users who left."""
    timed_out: int = 0
    """Attempts that a log calls cancelled, and that timed out."""
    untold: int = 0
    """Attempts of which it cannot be told: the log does not say how long they lasted."""
    timeouts_s: list[float] = []
    """Where cancelled durations cluster."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Durations that end at one value."""

    low_s: float
    high_s: float
    timeout_s: float

    def holds(self, seconds: Floats) -> Mask:
        return np.asarray((seconds >= self.low_s) & (seconds <= self.high_s))


def told_apart(attempts: pa.Table, groups: Groups) -> tuple[pa.Table, Departures]:
    """`attempts` in `groups` order, those of them that timed out with that status, and the count of both."""
    gone = having(attempts, "cancelled")
    by_client = np.asarray(pc.is_in(attempts["cancel_reason"], value_set=pa.array(["client_disconnect", None])))
    gone &= by_client
    if not gone.any():
        return attempts, Departures()
    length = numeric(attempts, "e2e_s")
    last = np.zeros(len(length), bool)
    last[groups.last] = True
    found = clusters(length[gone])
    announced = numeric(attempts, "client_timeout_s")
    waited = ~last | (length >= waiting_least(announced, found)) | within(found, length)
    timed_out = gone & waited
    untold = gone & ~waited & np.isnan(length)
    told = Departures(
        left=int((gone & ~timed_out & ~untold).sum()),
        timed_out=int(timed_out.sum()),
        untold=int(untold.sum()),
        timeouts_s=sorted(cluster.timeout_s for cluster in found),
    )
    mask = pa.array(timed_out)
    for name, value in (("status", "timeout"), ("cancel_reason", "client_timeout")):
        place = attempts.column_names.index(name)
        attempts = attempts.set_column(place, attempts.schema.field(name), pc.if_else(mask, value, attempts[name]))
    return attempts, told


def waiting_least(announced: Floats, found: Iterable[Cluster]) -> Floats:
    """How long those who announced a timeout wait at least: as long as the attempts that cluster at it."""
    least = ANNOUNCED_SHARE * announced
    for cluster in found:
        near = np.abs(announced - cluster.timeout_s) <= (1.0 - ANNOUNCED_SHARE) * announced
        least = np.where(near, np.maximum(least, cluster.low_s), least)
    return least


def within(found: Iterable[Cluster], seconds: Floats) -> Mask:
    """Which durations are in one of the clusters."""
    held = np.zeros(len(seconds), bool)
    for cluster in found:
        held |= cluster.holds(seconds)
    return held


def clusters(seconds: Floats) -> list[Cluster]:
    """Where durations cluster as timeouts do, the surest first.

    A window of 1% and 30 ms, and no less than the log's own step, holds at least three, and more than chance allows:
    with k in it, and m expected from those within a factor of two around it, P(X >= k) <= exp(k - m - k ln(k / m)),
    which is Chernoff's bound for a Poisson variable. A cluster then takes what ends up to 5% and 200 ms later: gateways
    under load notice late.
    """
    rest = np.sort(seconds[seconds > SHORTEST_S])
    step = coarseness(rest)
    found: list[Cluster] = []
    while len(rest) >= CLUSTER_LEAST and len(found) < TIMEOUTS_MOST:
        width = np.maximum(0.01 * rest + 0.03, step)
        # Of a coarse log, one step: the next one lies a whole width away.
        reach = np.where(width > step, width, 0.5 * step)
        inside = np.searchsorted(rest, rest + reach, side="right") - np.arange(len(rest))
        low, high = rest / 2.0, 2.0 * rest + width
        around = np.searchsorted(rest, high, side="right") - np.searchsorted(rest, low) - inside
        expected = (around + 1.0) * width / (high - low - width)
        crowded = (inside >= CLUSTER_LEAST) & (inside > expected)
        chance = np.where(crowded, inside - expected - inside * np.log(inside / expected), 0.0)
        surest = int(np.argmin(chance))
        if chance[surest] > CHANCE_LOG - max(np.log(len(rest) / WINDOWS_FREE), 0.0):
            break
        first = float(rest[surest])
        members = rest[(rest >= first) & (rest <= first + width[surest])]
        cluster = Cluster(first - float(width[surest]), 1.05 * first + 0.2, common_timeout(members) or round(first, 3))
        found.append(cluster)
        rest = rest[~cluster.holds(rest)]
    return found
