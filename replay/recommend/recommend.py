"""From a goal to an answer: self-replay, search, the last run, other traffic, engines instead."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from msgspec.structs import replace

from queries import run_query
from replay.config import flat
from replay.errors import BadConfig, BadInput
from replay.policies.catalogue import CATALOGUE
from replay.policies.effect import Traffic
from replay.policies.knobs import Fleet, Policy
from replay.recommend.answer import Answer, Cost, Fared, Interval, Room, Sensed, Standing, Turn
from replay.recommend.bench import Bench, written
from replay.recommend.candidates import Candidate, known_as
from replay.recommend.capacity import replicas_needed
from replay.recommend.changes import Present, Who, allowed
from replay.recommend.goal import Figures, Goal, margin, reached
from replay.recommend.robust import on_resampled_traffic, sensitivity, variants
from replay.recommend.search import Tried, by_policy, finalists, last_run, search, smallest
from replay.report.headline import interval
from replay.report.verdict import doubt

COSTS = (
    ("delivered_call_rate", "share"), ("on_time_rate", "share"), ("undelivered", "count"),
    ("wasted_compute_frac", "share"), ("gpu_s_per_delivered_call", "seconds"), ("retry_amplification", "count"),
    ("survivor_p50_s", "seconds"), ("survivor_p95_s", "seconds"),
)  # fmt: skip
"""Figures of `summary` that a change may move."""
MIDDLE = (2.5, 97.5)
"""Percentiles between which the middle of resampled traffic lies."""
CALLS_HELD = 20_000_000
"""Calls of other traffic that are held in memory at once, and ..."""
RESAMPLES_LEAST = 4
"""... how often traffic is resampled in any case."""
SENSED_SEEDS_MOST = 3
"""Seeds of each variant: they differ in load too, and not in the waits alone."""


def recommend(
    bench: Bench,
    goals: Sequence[Goal],
    can: Sequence[Who],
    *,
    resamples: int = 40,
    anyway: bool = False,
) -> Answer:
    """The smallest change within what `can` be changed that reaches the goals on the bench's trace.

    Raises BadConfig for several profiles or fleets, and BadInput where the replay of the log's own policy disagrees
    with the log, unless `anyway`.
    """
    seeds = bench.experiment.seeds
    bench, said = with_slo(bench)
    plan = bench.plan([], seeds)
    if len(plan.profiles) > 1 or len(plan.fleets) > 1:
        raise BadConfig("recommend: takes one profile and one fleet; give --profile and --replicas once")
    own = plan.policies[0]
    checked = bench.run(f"{own.name} as it is", plan, "self-replay")
    cautions = [*said, *disagreement(checked, own.name, anyway)]
    fleet = plan.fleets[0]
    notices = plan.profiles[0].engine.disconnect
    present = Present(own, own.client.timeout_s or median_timeout(bench), fleet.size, notices)
    now = by_policy(checked, goals)[own.name]
    tried = [] if reached(goals, now) else search(bench, goals, allowed(can), present, seeds)
    run, last = last_run(bench, goals, finalists(tried), seeds)
    resamples, sensed_seeds, said = as_far_as_they_go(bench, resamples, seeds)
    cautions += said
    contenders = [t.candidate.policy for t in smallest(last) or last[:1]]
    resampled = on_resampled_traffic(bench, goals, contenders, resamples) if resamples else {}
    last = sorted(
        last, key=lambda t: (not t.reached, t.candidate.size if t.reached else 0, -holds(goals, t, resampled))
    )
    best = last[0] if last else None
    sensed = sensitivity(bench, goals, [best.candidate.policy] if best else [], sensed_seeds)
    rooms = capacity(bench, goals, own, best, fleet, seeds, already=reached(goals, now))
    found = by_policy(run, goals)
    fared = [standing(goals, t.candidate, present, bench, found, resampled) for t in last]
    return Answer(
        goals=[goal.written for goal in goals],
        can=list(can),
        run=run,
        calls=bench.trace.calls.num_rows,
        tried=len(tried),
        now=standing(goals, Candidate(own, ()), present, bench, found, resampled),
        best=fared[0] if fared else None,
        others=fared[1:],
        costs=costs(run, own.name, best.candidate.policy.name) if best else [],
        possible_delivered=possible(run, "possible_delivered"),
        possible_on_time=possible(run, "possible_on_time"),
        sensitivity=[
            Sensed(variant=variant, policy=policy, replays=len(values),
                   reached=sum(reached(goals, {0: value}) for value in values),
                   values=[mean([v[k] for v in values]) for k in range(len(goals))])
            for variant, by in sensed.items() for policy, values in by.items()
        ],
        capacity=rooms,
        snippet=snippet(best.candidate, own) if best else "",
        cautions=cautions,
    )  # fmt: skip


def with_slo(bench: Bench) -> tuple[Bench, list[str]]:
    """A bench on which "on time" means the same under every policy, also under one that changes timeouts."""
    timeout = median_timeout(bench) if bench.experiment.client.timeout_s is None else bench.experiment.client.timeout_s
    if bench.experiment.slo_s is not None or timeout is None:
        return bench, []
    said = f"on time is within {timeout:g} s of arrival, the timeout that clients have now (--slo-s says otherwise)"
    return dataclasses.replace(bench, experiment=replace(bench.experiment, slo_s=timeout)), [said]


def as_far_as_they_go(bench: Bench, resamples: int, seeds: int) -> tuple[int, int, list[str]]:
    """(resamples, seeds of each variant, what to say of it): fewer where the trace is so long that memory ends."""
    calls = bench.trace.calls.num_rows
    times = min(resamples, max(CALLS_HELD // calls, RESAMPLES_LEAST))
    each = max(min(seeds, SENSED_SEEDS_MOST, CALLS_HELD // (len(variants()) * calls)), 1)
    said = [f"traffic is resampled {times} times, not {resamples}: {calls:,} calls each"] if times < resamples else []
    return times, each, said


def holds(goals: Sequence[Goal], tried: Tried, resampled: Figures) -> float:
    """Share of resampled traffics in which a policy reaches all goals; 0 where it was not tried on any."""
    return share_reached(goals, resampled, tried.candidate.policy.name) or 0.0


def share_reached(goals: Sequence[Goal], resampled: Figures, name: str) -> float | None:
    """The same; null where it was not tried on any."""
    found = [values for place, by_seed in resampled.items() if place[0] == name for values in by_seed.values()]
    good = [reached(goals, {0: values}) for values in found]
    return sum(good) / len(good) if good else None


def disagreement(run: str, own: str, anyway: bool) -> list[str]:
    """What the self-replay gives to think; raises BadInput where it is not to be believed."""
    rows = run_query(run, "self_replay").to_pylist()
    if not rows:
        return [f"the replay of {own} cannot be held against the log: believe the engine's profile, or do not"]
    said = doubt(rows, own)
    if said and not anyway:
        raise BadInput(
            f"{said} A recommendation would rest on a replay that is wrong already; replay query self_replay {run} "
            "shows all of it, docs/recommend.md what to do, and --anyway goes on"
        )
    return [said] if said else []


def median_timeout(bench: Bench) -> float | None:
    """How long clients wait for an attempt, where the trace says it of any."""
    import pyarrow.compute as pc

    timeouts = bench.trace.calls["client_timeout_s"].drop_null()
    return float(pc.quantile(timeouts, 0.5)[0].as_py()) if len(timeouts) else None


def capacity(
    bench: Bench, goals: Sequence[Goal], own: Policy, best: Tried | None, fleet: Fleet, seeds: int, *, already: bool
) -> list[Room]:
    """What more engines would do: under the present policy, and under the nearest where no change is enough."""
    policies = [] if already else [own]
    if best is not None and not best.reached:
        policies.append(best.candidate.policy)
    rooms = [replicas_needed(bench, goals, policy, fleet, min(seeds, SENSED_SEEDS_MOST)) for policy in policies]
    return [Room(policy=r.policy, now=r.now, needed=r.needed, tried_most=r.tried_most) for r in rooms]


def standing(
    goals: Sequence[Goal],
    candidate: Candidate,
    present: Present,
    bench: Bench,
    found: Mapping[str, Mapping[int, Sequence[float | None]]],
    resampled: Figures,
) -> Fared:
    """How a policy fared in the last run, and on resampled traffic."""
    name = candidate.policy.name
    by_seed = found[name]
    others = {place[0]: values for place, values in resampled.items()}.get(name)
    return Fared(
        policy=name,
        known_as=known_as(candidate.policy, present.policy, Traffic.of(bench.trace.calls)),
        turns=turns(candidate, present),
        reached=reached(goals, by_seed),
        standings=[
            Standing(
                goal=goal.written,
                figure=goal.figure,
                number=goal.number,
                percent=goal.threshold.percent,
                seeds=over_seeds([values[k] for values in by_seed.values()]),
                resampled=middle([values[k] for values in others.values()]) if others else None,
                margin=margin([goal], {seed: [values[k]] for seed, values in by_seed.items()}),
            )
            for k, goal in enumerate(goals)
        ],
        holds_in=share_reached(goals, resampled, name),
    )


def turns(candidate: Candidate, present: Present) -> list[Turn]:
    """The changes that make a policy of the present one."""
    before = dict(flat(written(present.policy))) | {"client.timeout_s": present.timeout_s}
    return [
        Turn(
            change=change.name,
            who=change.who,
            effort=change.effort,
            words=change.words,
            settings=(keys := dict(flat(step.knobs))),
            before={key: before.get(key) for key in keys},
        )
        for change, step in candidate.moves
    ]


def finite(values: Sequence[float | None]) -> list[float] | None:
    """The values, where all are there and finite."""
    known = [v for v in values if v is not None and math.isfinite(v)]
    return known if len(known) == len(values) and known else None


def mean(values: Sequence[float | None]) -> float | None:
    known = finite(values)
    return math.fsum(known) / len(known) if known else None


def over_seeds(values: Sequence[float | None]) -> Interval:
    """Mean and bootstrapped interval of the mean."""
    known = finite(values)
    if known is None:
        return Interval(mean=None, low=None, high=None)
    found = interval(known)
    return Interval(mean=found.mean, low=found.low, high=found.high)


def middle(values: Sequence[float | None]) -> Interval:
    """Mean, and where the middle of the values lies."""
    import numpy as np

    known = finite(values)
    if known is None:
        return Interval(mean=None, low=None, high=None)
    low, high = np.percentile(known, MIDDLE).tolist()
    return Interval(mean=mean(known), low=low, high=high)


def costs(run: str, own: str, name: str) -> list[Cost]:
    """What a change moves: figures of the summary, and calls that are delivered later than they are now."""
    rows = {row["policy"]: row for row in run_query(run, "summary").to_pylist()}
    found = [Cost(figure=f, now=plain(rows[own][f]), then=plain(rows[name][f]), kind=kind) for f, kind in COSTS]
    moved = {row["policy"]: row for row in run_query(run, "changed_calls", {"baseline": own}).to_pylist()}[name]
    for figure in ("gained", "lost", "earlier", "later"):
        found.append(Cost(figure=f"calls {figure}", now=None, then=plain(moved[figure]), kind="count"))
    found.append(Cost(figure="later by (median)", now=None, then=plain(moved["later_by_s"]), kind="seconds"))
    return found


def plain(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def possible(run: str, column: str) -> float | None:
    """Share of eligible calls that no policy of the run could have bettered."""
    rows = [r for r in run_query(run, "share_of_possible").to_pylist() if r["phase"] is None]
    return rows[0][column] / rows[0]["calls"] if rows and rows[0]["calls"] else None


def snippet(candidate: Candidate, own: Policy) -> str:
    """The policy as a YAML file: what is changed above the present one, or all of it where that has no name."""
    settings: dict[str, Any] = {"name": candidate.policy.name}
    if own.name in CATALOGUE:
        settings |= {"based_on": own.name, **candidate.knobs}
    else:
        settings |= {k: v for k, v in written(candidate.policy).items() if k != "name"}
    return yaml.safe_dump(settings, sort_keys=False)
