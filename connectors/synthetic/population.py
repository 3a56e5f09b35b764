"""Who sends, and when: one process for all, or clients that send apart, each with its share of the rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from connectors.synthetic.arrivals import (
    Rate,
    RateUntil,
    calls_until,
    daily,
    first_calls,
    modulated,
    overloaded,
    periodic_bursts,
    random_bursts,
)
from connectors.synthetic.draws import Floats, stream
from connectors.synthetic.gaps import Gaps
from connectors.synthetic.laws import Lognormal
from connectors.synthetic.options import CV_MOST, Traffic
from trace_schema.errors import BadConfig


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When calls arrive (or sessions begin), in order."""

    times_s: Floats
    client: npt.NDArray[np.int64] | None
    """Whose each is, from 0; None where clients are not told apart."""


def arrivals_of(traffic: Traffic) -> Arrivals:
    """When calls arrive, or sessions begin, and whose they are. Raises BadConfig when none does, or too many."""
    rate, seed = rate_of(traffic), traffic.seed
    if traffic.calls is not None:
        if traffic.clients is not None:
            return first_of_all(rate, client_shares(traffic), client_gaps(traffic), traffic.calls, seed)
        gaps = Gaps.of_cv(traffic.arrival_family, traffic.arrival_cv)
        return Arrivals(first_calls(rate, traffic.rate_per_s, traffic.calls, gaps, seed), None)
    end_s = traffic.duration_s
    assert end_s is not None
    if traffic.clients is not None:
        made = all_until(rate, client_shares(traffic), client_gaps(traffic), end_s, seed)
    else:
        gaps = Gaps.of_cv(traffic.arrival_family, traffic.arrival_cv)
        made = Arrivals(calls_until(rate(end_s), end_s, gaps, seed), None)
    if not len(made.times_s):
        raise BadConfig(f"no call arrives in {end_s:g} s: raise duration_s or rate_per_s, or take another seed")
    return made


def rate_of(traffic: Traffic) -> RateUntil:
    """The rate of all clients together."""

    def rate(until_s: float) -> Rate:
        shape = Rate(np.zeros(1), np.array([traffic.rate_per_s]))
        if traffic.overload_s is not None:
            phases = (traffic.overload_start_s, traffic.overload_s, traffic.overload_factor, traffic.recovery_factor)
            shape = shape.times(overloaded(*phases))
        if traffic.burst_every_s is not None:
            law = (traffic.burst_every_s, traffic.burst_s, traffic.burst_factor, traffic.quiet_factor, until_s)
            random = traffic.burst_law == "random"
            shape = shape.times(random_bursts(*law, traffic.seed) if random else periodic_bursts(*law))
        if traffic.states is not None:
            shape = shape.times(modulated(traffic.states, until_s, traffic.seed))
        if traffic.daily_swing is not None:
            shape = shape.times(daily(traffic.daily_period_s, traffic.daily_swing, traffic.daily_peak_s, until_s))
        return shape

    return rate


def client_shares(traffic: Traffic) -> Floats:
    """The share of the rate that each client has."""
    assert traffic.clients is not None
    weights = np.arange(1, traffic.clients + 1, dtype=np.float64) ** -traffic.client_skew
    return np.asarray(weights / weights.sum())


def client_gaps(traffic: Traffic) -> list[Gaps]:
    """The law of gaps of each client."""
    assert traffic.clients is not None
    if traffic.client_cv is None:
        return [Gaps.of_cv(traffic.arrival_family, traffic.arrival_cv)] * traffic.clients
    drawn = traffic.client_cv.draw(stream(traffic.seed, "cv of clients"), traffic.clients)
    return [Gaps.of_cv(traffic.arrival_family, float(cv)) for cv in np.minimum(drawn, CV_MOST)]


def client_factors(traffic: Traffic, what: str) -> Floats:
    """The factor of each client's lengths, 1 on average."""
    assert traffic.clients is not None
    return Lognormal(1.0, traffic.client_spread).draw(stream(traffic.seed, f"{what} of clients"), traffic.clients)


def all_until(rate: RateUntil, shares: Floats, gaps: Sequence[Gaps], end_s: float, seed: int) -> Arrivals:
    """All arrivals of all clients before `end_s`."""
    together = rate(end_s)
    times = [
        calls_until(together.scaled(float(share)), end_s, law, seed, f"client {k}, ")
        for k, (share, law) in enumerate(zip(shares, gaps, strict=True))
    ]
    merged, whose = np.concatenate(times), np.repeat(np.arange(len(times)), [len(t) for t in times])
    order = np.argsort(merged, kind="stable")
    return Arrivals(merged[order], whose[order])


def first_of_all(rate: RateUntil, shares: Floats, gaps: Sequence[Gaps], n: int, seed: int) -> Arrivals:
    """The first `n` arrivals of all clients."""
    end_s = n / float(rate(1.0).per_s.max())
    while True:
        if rate(end_s).expected(end_s) >= n:
            made = all_until(rate, shares, gaps, end_s, seed)
            if len(made.times_s) >= n:
                whose = None if made.client is None else made.client[:n]
                return Arrivals(made.times_s[:n], whose)
        end_s *= 1.5
