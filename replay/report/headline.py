"""The figures that the page puts first: who delivers most, by how much, how sure that is, and what was wasted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replay.report.scenes import Found, Scene, Shown
from replay.report.verdict import SAME
from replay.report.words import listed, percent

CONFIDENCE = 0.95
RESAMPLES = 9_999
WELL = 0.5
"""Whoever delivers less than this share of calls is no good news."""
NAMED = 3
"""As many policies are named on a card."""
FEW = 2
"""So many seeds or fewer have a range; of more, the mean is bootstrapped."""


@dataclass(frozen=True, slots=True)
class Number:
    """A figure in a sentence, and the cell of a query that it is: `query`.`column` where policy, profile and fleet are
    these."""

    text: str
    value: float
    query: str
    column: str
    policy: str
    profile: str
    fleet: str


@dataclass(frozen=True, slots=True)
class Derived:
    """A figure in a sentence that is worked out of several rows of a query."""

    text: str
    query: str


Said = Sequence[str | Number | Derived]
"""A sentence whose figures can be told from its words."""


@dataclass(frozen=True, slots=True)
class Card:
    """One headline number with what it counts."""

    number: Number | Derived
    words: str
    good: bool | None
    """Whether it is good news; None: neither."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds, and how far it may be off."""

    mean: float
    low: float
    high: float

    def text(self, scale: str = "%") -> str:
        """The interval in brackets; empty where all seeds agree."""
        low, high = (f"{100 * v:.1f}" for v in (self.low, self.high))
        return "" if low == high else f" [{low}{scale} to {high}{scale}]"


def interval(values: Sequence[float]) -> Interval:
    """The mean of a figure over seeds, with its bootstrapped 95% interval, or its range where seeds are few.

    Percentile bootstrap of the mean (Efron 1979) by scipy.stats.bootstrap, always with the same resamples.
    """
    mean = sum(values) / len(values)
    low, high = min(values), max(values)
    if len(values) <= FEW or low == high:
        return Interval(mean, low, high)
    import numpy as np
    from scipy.stats import bootstrap

    found = bootstrap(
        (values,), np.mean, n_resamples=RESAMPLES, confidence_level=CONFIDENCE, method="percentile", rng=0
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high))


def how_sure(seeds: int) -> str:
    """What the brackets are."""
    if seeds == 1:
        return "One seed: how much of this is luck cannot be told; --seeds 5 would."
    kind = "Ranges" if seeds <= FEW else "95% intervals by bootstrap"
    return f"{kind} over {seeds:,} seeds, which differ in the waits of clients, not in the traffic."


def rates(found: Found, scene: Scene, policy: str) -> dict[int, float]:
    """A policy's delivered rate by seed."""
    rows = scene.rows(found["seeds"], policy)
    return {r["seed"]: r["delivered_call_rate"] for r in rows if r["delivered_call_rate"] is not None}


def rate(scene: Scene, one: Shown, policy: str) -> Number:
    """A policy's delivered rate as a figure of a sentence."""
    value = one.delivered or 0.0
    return Number(percent(value), value, "summary", "delivered_call_rate", policy, scene.profile, scene.fleet)


def contest(scene: Scene, own: str | None) -> tuple[Shown, Shown | None]:
    """The policy that delivers most, and the one beside it: the log's own, else the one that delivers least."""
    best, last = scene.shown[0], scene.shown[-1]
    mine = next((s for s in scene.shown if s.own), None)
    if mine is not None and (mine.delivered or 0.0) >= (best.delivered or 0.0) - SAME:
        best, mine = mine, None
    other = mine or last
    alike = other is not mine and (best.delivered or 0.0) - (other.delivered or 0.0) < SAME
    return best, None if other is best or alike else other


def name_of(one: Shown, own: str | None) -> str:
    """The name under which it is spoken of."""
    return own if one.own and own is not None else one.policy


def surety(found: Found, scene: Scene, own: str | None) -> Said:
    """The delivered rates of the best and of the log's own with their intervals, and their difference, seed by seed."""
    best, other = contest(scene, own)
    if best.delivered is None:
        return ()
    mine = rates(found, scene, name_of(best, own))
    said: list[str | Number | Derived] = [f"{name_of(best, own)} delivers ", rate(scene, best, name_of(best, own))]
    said.append(f"{interval(list(mine.values())).text()} of calls")
    if other is not None and other.delivered is not None:
        theirs = rates(found, scene, name_of(other, own))
        said += [f", {name_of(other, own)} ", rate(scene, other, name_of(other, own))]
        said.append(interval(list(theirs.values())).text())
        more = interval([mine[seed] - theirs[seed] for seed in mine if seed in theirs] or [0.0])
        if more.low != 0 or more.high != 0:
            said += [": ", Derived(f"{100 * more.mean:.1f}", "seeds"), f" points{more.text('')} apart"]
    return [*said, "."]


def cards(found: Found, scene: Scene, own: str | None) -> list[Card]:
    """Three or four headline numbers of a scene."""
    best, other = contest(scene, own)
    made = []
    if best.delivered is not None:
        if best.own:
            own_too = ", the log's own; none delivers more"
        else:
            own_too = ", the most" if other else "; none delivers more"
        words = f"of calls are delivered with {name_of(best, own)}{own_too if len(scene.shown) > 1 else ''}"
        made.append(Card(rate(scene, best, name_of(best, own)), words, True if best.delivered >= WELL else None))
    if other is not None and other.delivered is not None:
        kind = "the log's own" if other.own else "the least"
        words = f"with {name_of(other, own)}, {kind}"
        made.append(Card(rate(scene, other, name_of(other, own)), words, None))
    return [*made, *wasted(found, scene, best if best.own or other is None else other, own), *came_back(found, scene)]


def wasted(found: Found, scene: Scene, one: Shown, own: str | None) -> list[Card]:
    """The share of GPU time that a policy wasted."""
    policy = name_of(one, own)
    cards = []
    for row in scene.rows(found["wasted_compute"], policy):
        share = row["wasted_compute_frac"]
        if share is None:
            continue
        total = row["busy_gpu_s"]
        number = Number(percent(share), share, "wasted_compute", "wasted_compute_frac", policy, *place(row))
        cards.append(Card(number, f"of {total:,.0f} GPU-seconds wasted by {policy}", False if share > 0.1 else None))
    return cards


def place(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["profile"], row["fleet"]


def came_back(found: Found, scene: Scene) -> list[Card]:
    """How many policies recover from the overload."""
    rows = [r for r in scene.rows(found["recovery"]) if r["recovered_share"] is not None]
    if not rows:
        return []
    back = [r["policy"] for r in rows if r["recovered_share"] == 1]
    which = f": {listed(back)}" if 0 < len(back) <= NAMED else ""
    number = Derived(f"{len(back)} of {len(rows)}", "recovery")
    return [Card(number, f"policies recover after the overload{which}", None)]
