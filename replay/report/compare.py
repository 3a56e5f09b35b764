"""What one policy changes next to another, or one run next to an earlier one: differences, paired seed by seed.

Replays with the same seed have the same calls and the same random waits, so that their figures may be subtracted. The
interval is of the mean difference over seeds (bootstrap over pairs, percentile, 95%). It tells the luck of the waits
apart from the policy; it does not tell how far the engine's model is off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from queries import run_query, run_sql
from replay.errors import BadConfig, UnknownName

LEVEL = 0.95
"""Of the intervals."""
RESAMPLES = 9999
"""As scipy.stats.bootstrap has it by default."""
Key = tuple[str, str, str]
"""Policy, profile, fleet."""


class Figure(msgspec.Struct, frozen=True):
    """A figure that is compared: a column of the query `seeds`, its name for people, how it is written."""

    column: str
    label: str
    kind: Literal["share", "seconds", "count"]


FIGURES = (
    Figure("delivered_call_rate", "delivered", "share"),
    Figure("on_time_rate", "on time", "share"),
    Figure("survivor_p95_s", "latency p95 s", "seconds"),
    Figure("wasted_compute_frac", "wasted share", "share"),
    Figure("wasted_gpu_s", "wasted GPU s", "seconds"),
    Figure("attempts", "attempts", "count"),
)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of one policy less that of the baseline. Shares are in 0 to 1, times in seconds."""

    policy: str
    profile: str
    fleet: str
    baseline: str
    """The policy, or the run, that is subtracted."""
    figure: str
    seeds: int
    """Pairs of replays."""
    value: float | None
    """Mean over seeds; null where it is infinite: too many calls undelivered."""
    baseline_value: float | None
    difference: float | None
    """Mean over pairs; null where either is infinite."""
    low: float | None
    """Ends of the interval; null for one pair."""
    high: float | None


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Single calls under one policy beside the same under the baseline: means over seeds (query `changed_calls`)."""

    policy: str
    profile: str
    fleet: str
    gained: float
    """Delivered, and not under the baseline."""
    lost: float
    earlier: float
    """Delivered under both, by more than 0.1 s."""
    later: float
    later_by_s: float | None
    """Median of how much; null where none is later."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All differences, and what to keep in mind when reading them."""

    of: Literal["policies", "runs"]
    baseline: str
    """The policy, or the run, that is subtracted."""
    cautions: list[str]
    differences: list[Difference]
    calls: list[Moved] = []
    """Which calls fare otherwise; of policies of one run."""


def compare(run: str, baseline: str | None = None) -> Comparison:
    """Every policy of a run against one: `baseline`, else the log's own, else the first.

    Raises UnknownName for a policy that the run does not have, BadConfig when there is no other, and BadInput.
    """
    policies = [row["policy"] for row in run_sql(run, "SELECT policy FROM policies ORDER BY position").to_pylist()]
    own = run_sql(run, "SELECT as_logged FROM run")["as_logged"][0].as_py()
    chosen = baseline or own or policies[0]
    if chosen not in policies:
        raise UnknownName.of("policy", chosen, policies)
    if len(policies) == 1:
        raise BadConfig(f"{run}: has one policy, {chosen}; name another run to compare it with")
    replays = seeds_of(run)
    differences = [
        difference
        for key, mine in replays.items()
        if key[0] != chosen
        for difference in between(key, mine, replays.get((chosen, key[1], key[2]), {}), chosen)
    ]
    return Comparison(
        of="policies",
        baseline=chosen,
        cautions=few_seeds(differences),
        differences=differences,
        calls=moved_calls(run, chosen),
    )


def moved_calls(run: str, baseline: str) -> list[Moved]:
    """Which calls fare otherwise than under the baseline, policy by policy."""
    rows = run_query(run, "changed_calls", {"baseline": baseline}).to_pylist()
    return [msgspec.convert(row, Moved) for row in rows if row["policy"] != baseline]


def compare_runs(run: str, other: str) -> Comparison:
    """Every policy that two runs have in common: in `other`, less the same in `run`.

    Raises BadConfig when they replay different traces or have no policy in common, and BadInput.
    """
    from replay.report.same import different_settings

    cautions = different_settings(run, other)
    before, after = seeds_of(run), seeds_of(other)
    pairs = common(before, after)
    if not pairs:
        raise BadConfig(f"{other}: has no policy on the same profile and fleet as {run}; there is nothing to compare")
    differences = [d for old, new in pairs for d in between(new, after[new], before[old], run)]
    left = sorted({key[0] for key in (*before, *after)} - {new[0] for _, new in pairs})
    cautions += [f"not in both runs, and left out: {', '.join(left)}"] if left else []
    cautions += few_seeds(differences)
    return Comparison(of="runs", baseline=run, cautions=cautions, differences=differences)


def common(before: Mapping[Key, Any], after: Mapping[Key, Any]) -> list[tuple[Key, Key]]:
    """Which policy of one run stands beside which of the other.

    Where each run has one profile and fleet, these may differ: to compare them is then the point.
    """
    if len({key[1:] for key in before}) == len({key[1:] for key in after}) == 1:
        olds = {key[0]: key for key in before}
        return [(olds[new[0]], new) for new in after if new[0] in olds]
    return [(key, key) for key in after if key in before]


def seeds_of(run: str) -> dict[Key, dict[int, dict[str, float]]]:
    """The figures of each replay, by policy, profile and fleet, then by seed."""
    found: dict[Key, dict[int, dict[str, float]]] = {}
    for row in run_query(run, "seeds").to_pylist():
        found.setdefault((row["policy"], row["profile"], row["fleet"]), {})[row["seed"]] = row
    return found


def between(
    key: Key, mine: Mapping[int, Mapping[str, Any]], theirs: Mapping[int, Mapping[str, Any]], baseline: str
) -> list[Difference]:
    """The difference of each figure over the seeds that both have."""
    seeds = sorted(mine.keys() & theirs.keys())
    found = []
    for figure in FIGURES:
        pairs = [(mine[seed][figure.column], theirs[seed][figure.column]) for seed in seeds]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        if not known:
            continue
        gaps = [float(a - b) for a, b in known] if all(map(math.isfinite, (x for pair in known for x in pair))) else []
        low, high = interval(gaps)
        found.append(
            Difference(
                policy=key[0],
                profile=key[1],
                fleet=key[2],
                baseline=baseline,
                figure=figure.column,
                seeds=len(known),
                value=mean([a for a, _ in known]),
                baseline_value=mean([b for _, b in known]),
                difference=mean(gaps),
                low=low,
                high=high,
            )
        )
    return found


def mean(values: Sequence[float]) -> float | None:
    """The mean; None where there is none, or it is infinite."""
    return math.fsum(values) / len(values) if values and all(map(math.isfinite, values)) else None


def interval(gaps: Sequence[float]) -> tuple[float | None, float | None]:
    """The bootstrap interval of the mean of paired differences; none for fewer than two."""
    if len(gaps) < 2:
        return None, None
    if min(gaps) == max(gaps):
        return gaps[0], gaps[0]
    import numpy as np
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.asarray(gaps),),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        random_state=np.random.default_rng(0),
    ).confidence_interval
    return float(found.low), float(found.high)


def few_seeds(differences: Sequence[Difference]) -> list[str]:
    """That there is no interval, where there is none."""
    least = min((d.seeds for d in differences), default=0)
    if least == 1:
        return ["one seed: the differences have no interval; replay with --seeds 5 or more"]
    return [f"{least} seeds: the intervals are rough; --seeds 5 or more are better"] if 1 < least < 5 else []
