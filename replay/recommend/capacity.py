"""How many engines would do what a change of policy does not: replicas, by bisection under one policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from replay.policies.knobs import Fleet, Policy
from replay.recommend.bench import Bench
from replay.recommend.goal import Goal, figures, reached

TIMES_MOST = 16
"""More than so many times the engines are not asked for."""
AT_ONCE = 4
"""Sizes of a fleet that are tried in one run."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What engines alone would do, under one policy."""

    policy: str
    now: int
    needed: int | None
    """Replicas that reach the goal; null: not even `tried_most` do."""
    tried_most: int


def replicas_needed(bench: Bench, goals: Sequence[Goal], policy: Policy, fleet: Fleet, seeds: int) -> Capacity:
    """The fewest replicas of the run's profile that reach the goal under a policy, beside the others of the fleet.

    More replicas are taken to serve no worse. Sizes are tried a few at a time between the largest that is known to be
    too small, and the smallest that is known to do.
    """
    low, high, most = fleet.replicas, None, TIMES_MOST * fleet.replicas
    while high is None or high - low > 1:
        sizes = between(low, high, most)
        if not sizes:
            break
        enough = tried(bench, goals, policy, fleet, sizes, seeds)
        good = [n for n in sizes if enough[n]]
        high = min(good, default=high)
        low = max((n for n in sizes if high is None or n < high), default=low)
    return Capacity(policy.name, fleet.replicas, high, high or low)


def between(low: int, high: int | None, most: int) -> list[int]:
    """Sizes to try: doubling while none is known to do, evenly between the two that are known otherwise."""
    if high is None:
        return [n for n in (low * 2 ** (k + 1) for k in range(AT_ONCE)) if n <= most]
    gap = high - low
    return sorted({low + max(gap * k // (AT_ONCE + 1), 1) for k in range(1, AT_ONCE + 1)} - {low, high})


def tried(
    bench: Bench, goals: Sequence[Goal], policy: Policy, fleet: Fleet, sizes: Sequence[int], seeds: int
) -> dict[int, bool]:
    """Whether each size of the fleet reaches the goal."""
    fleets = {replace(fleet, replicas=n).name: n for n in sizes}
    plan = bench.plan([policy], seeds, fleet=[replace(fleet, replicas=n) for n in sizes])
    place = f"capacity-{policy.name}-{sizes[0]}-{sizes[-1]}"
    found = figures(bench.run(f"{policy.name} on {sizes[0]} to {sizes[-1]} replicas", plan, place), goals)
    return {fleets[f]: reached(goals, by_seed) for (name, _, f), by_seed in found.items() if name == policy.name}
