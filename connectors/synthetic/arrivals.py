"""When calls arrive: a renewal process of unit rate, run along a rate that changes with time.

The k-th arrival comes when the integral of the rate reaches the k-th arrival of the process of unit rate, so that the
rate alone says how many calls arrive; with exponential gaps it is a Poisson process of that rate (the time change of
Cinlar, Introduction to Stochastic Processes, ch. 4), with others one as bursty or as even as their cv says. Another
rate moves the arrivals and draws nothing anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from connectors.synthetic.draws import Floats, stream
from connectors.synthetic.gaps import Gaps
from trace_schema.errors import BadConfig

PERIODS_MOST = 5_000_000
"""More bursts than this are a mistake."""
CALLS_MOST = 100_000_000
STEPS_A_DAY = 288
"""Steps in which a daily curve is drawn: five minutes each, of a day."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Arrivals per second, constant from each of `starts_s` (the first is 0) to the next; the last goes on for ever."""

    starts_s: Floats
    per_s: Floats

    def scaled(self, factor: float) -> Rate:
        return Rate(self.starts_s, factor * self.per_s)

    def times(self, other: Rate) -> Rate:
        """The product of two rates."""
        starts = np.union1d(self.starts_s, other.starts_s)
        return Rate(starts, self.at(starts) * other.at(starts))

    def at(self, times_s: Floats) -> Floats:
        return self.per_s[np.searchsorted(self.starts_s, times_s, side="right") - 1]

    @property
    def arrived(self) -> Floats:
        """The integral of the rate up to each of `starts_s`."""
        return np.concatenate([[0.0], np.cumsum(self.per_s[:-1] * np.diff(self.starts_s))])

    def expected(self, until_s: float) -> float:
        """The integral of the rate up to `until_s`."""
        k = int(np.searchsorted(self.starts_s, until_s, side="right")) - 1
        return float(self.arrived[k] + self.per_s[k] * (until_s - self.starts_s[k]))

    def when(self, counts: Floats) -> Floats:
        """When its integral reaches each of the increasing `counts`; in a stretch without arrivals, at its end."""
        arrived = self.arrived
        k = np.searchsorted(arrived, counts, side="right") - 1
        return np.asarray(self.starts_s[k] + (counts - arrived[k]) / self.per_s[k])


RateUntil = Callable[[float], Rate]
"""The rate, right up to the given second at least."""


def overloaded(start_s: float, length_s: float, factor: float, factor_after: float) -> Rate:
    """1 before an overload, `factor` during it, `factor_after` from its end on."""
    return Rate(np.array([0.0, start_s, start_s + length_s]), np.array([1.0, factor, factor_after]))


def periodic_bursts(every_s: float, burst_s: float, factor: float, quiet: float, until_s: float) -> Rate:
    """`quiet`, but `factor` in the last `burst_s` of every `every_s`."""
    periods = np.arange(count_of(until_s / every_s)) * every_s
    return Rate(
        np.stack([periods, periods + (every_s - burst_s)], axis=1).ravel(),
        np.tile([quiet, factor], len(periods)),
    )


def random_bursts(every_s: float, burst_s: float, factor: float, quiet: float, until_s: float, seed: int) -> Rate:
    """The same with exponential lengths of quiet and burst: a Markov-modulated (on/off) process.

    Fischer and Meier-Hellstern, The Markov-modulated Poisson process (MMPP) cookbook, 1993.
    """
    n, end_s = 16, 0.0
    while end_s < until_s:
        n = count_of(max(2.0 * n, until_s / every_s))
        calm = (every_s - burst_s) * stream(seed, "quiet").standard_exponential(n)
        burst = burst_s * stream(seed, "bursts").standard_exponential(n)
        ends = np.cumsum(np.stack([calm, burst], axis=1).ravel())
        end_s = float(ends[-1])
    return Rate(np.concatenate([[0.0], ends[:-1]]), np.tile([quiet, factor], n))


class States:
    """States of traffic: the factor of the rate in each, and how long it lasts on average."""

    def __init__(self, factors: tuple[float, ...], stays_s: tuple[float, ...]) -> None:
        self.factors = factors
        self.stays_s = stays_s

    @classmethod
    def of(cls, written: Any) -> States:
        """The states that a text says, such as 1@60,4@10,0.2@30. Raises ValueError."""
        if isinstance(written, States):
            return written
        try:
            pairs = [tuple(map(float, part.split("@"))) for part in str(written).split(",")]
            factors, stays_s = zip(*pairs, strict=True)
        except ValueError:
            raise ValueError(f"{written!r} is not FACTOR@SECONDS for each state, such as 1@60,4@10,0.2@30") from None
        if len(factors) < 2 or not all(0.0 <= f <= 1e6 for f in factors) or not all(0.0 < s <= 1e9 for s in stays_s):
            raise ValueError(f"{written!r}: two states at least, factors from 0 to 1e6, seconds above 0")
        if not any(factors):
            raise ValueError(f"{written!r}: no call ever arrives")
        return cls(factors, stays_s)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, States) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return ",".join(f"{f:.12g}@{s:.12g}" for f, s in zip(self.factors, self.stays_s, strict=True))


def modulated(states: States, until_s: float, seed: int) -> Rate:
    """A Markov chain of states, each with its factor: it stays exponentially long, and moves to any other alike.

    With exponential gaps the arrivals are an MMPP (Fischer and Meier-Hellstern). The chain begins with a state as
    likely as the share of time that it takes.
    """
    stays_s = np.asarray(states.stays_s, dtype=np.float64)
    shares = stays_s / stays_s.sum()
    first = int(np.searchsorted(np.cumsum(shares), stream(seed, "first state").random(), side="right"))
    first = min(first, len(shares) - 1)
    n, end_s = 16, 0.0
    while end_s < until_s:
        n = count_of(max(2.0 * n, until_s / stays_s.mean()))
        moves = 1 + (stream(seed, "states").random(n) * (len(shares) - 1)).astype(np.int64)
        moves[0] = 0
        visited = (first + np.cumsum(moves)) % len(shares)
        ends = np.cumsum(stays_s[visited] * stream(seed, "stays").standard_exponential(n), dtype=np.float64)
        end_s = float(ends[-1])
    return Rate(np.concatenate([[0.0], ends[:-1]]), np.asarray(states.factors, dtype=np.float64)[visited])


def daily(period_s: float, swing: float, peak_s: float, until_s: float) -> Rate:
    """1 + swing cos(2 pi (t - peak) / period), in `STEPS_A_DAY` steps a period, each at its mean."""
    step_s = period_s / STEPS_A_DAY
    edges = step_s * np.arange(count_of(until_s / step_s) + 1, dtype=np.float64)
    turn = 2.0 * np.pi / period_s
    mean = np.diff(np.sin(turn * (edges - peak_s))) / (turn * step_s)
    return Rate(edges[:-1], np.maximum(1.0 + swing * mean, 0.0))


def count_of(periods: float) -> int:
    """Enough periods. Raises BadConfig for too many."""
    if periods > PERIODS_MOST:
        raise BadConfig(f"there would be {periods:.3g} bursts, at most {PERIODS_MOST:,}: make them longer or rarer")
    return int(periods) + 2


def first_calls(rate_until: RateUntil, per_s: float, n: int, gaps: Gaps, seed: int, who: str = "") -> Floats:
    """The first `n` arrivals; `per_s` is a guess at their rate, `who` tells one client's draws from another's."""
    counts = unit_arrivals(n, gaps, seed, who)
    horizon_s = float(counts[-1]) / per_s
    rate = rate_until(horizon_s)
    while rate.expected(horizon_s) <= counts[-1]:
        horizon_s *= 2.0
        rate = rate_until(horizon_s)
    return rate.when(counts)


def calls_until(rate: Rate, duration_s: float, gaps: Gaps, seed: int, who: str = "") -> Floats:
    """All arrivals before `duration_s`. Raises BadConfig when there are too many."""
    expected = rate.expected(duration_s)
    if expected > CALLS_MOST:
        raise BadConfig(f"about {expected:.3g} calls would arrive in {duration_s:g} s, at most {CALLS_MOST:,}")
    n = int(expected + 6.0 * max(gaps.cv, 1.0) * expected**0.5) + 64
    counts = unit_arrivals(n, gaps, seed, who)
    while counts[-1] <= expected:
        n *= 2
        counts = unit_arrivals(n, gaps, seed, who)
    return np.minimum(rate.when(counts[counts < expected]), np.nextafter(duration_s, 0.0))


def unit_arrivals(n: int, gaps: Gaps, seed: int, who: str) -> Floats:
    """The first `n` arrivals of a stationary renewal process of rate 1 with these gaps."""
    return gaps.arrivals(n, stream(seed, f"{who}arrivals"), stream(seed, f"{who}first arrival"))
