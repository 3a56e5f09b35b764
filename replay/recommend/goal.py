"""Goals: figures of a run that are to be reached, such as `delivered_call_rate >= 0.99, wasted_compute_frac <= 0.1`.

They are written as thresholds are (`replay.report.thresholds`), which say what fails a run; a goal says what it should
come to, in every replay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queries import answer, bound, connect, load, run_query
from queries.blank import columns
from replay.errors import BadConfig
from replay.report.thresholds import OPERATORS, Threshold, parse_all

Place = tuple[str, str, str]
"""Policy, profile, fleet."""
Figures = dict[Place, dict[int, list[float | None]]]
"""The figure of each goal, by seed."""
FAR = 10.0
"""A figure that is infinite, or that there is none of, is taken to be so many times the goal away from it."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure that is to be reached."""

    threshold: Threshold

    @property
    def written(self) -> str:
        return self.threshold.written

    @property
    def figure(self) -> str:
        return self.threshold.figure

    @property
    def number(self) -> float:
        return self.threshold.number

    @property
    def higher(self) -> bool:
        """Whether more of it is better."""
        return ">" in self.threshold.op

    def holds(self, value: float | None) -> bool:
        return value is not None and OPERATORS[self.threshold.op](value, self.number)

    def margin(self, value: float | None) -> float:
        """How far a value is on the right side of the goal, as a share of its number; negative on the wrong side."""
        scale = abs(self.number) or 1.0
        if value is None or math.isinf(value):
            return -FAR
        beyond = value - self.number if self.higher else self.number - value
        return max(beyond / scale if self.threshold.op != "==" else -abs(beyond) / scale, -FAR)

    def worst(self, values: Sequence[float | None]) -> float | None:
        """The value that is farthest from the goal."""
        return min(values, key=self.margin)


def parse(written: str) -> list[Goal]:
    """Goals that commas keep apart. Raises BadConfig and UnknownName for what is no figure."""
    parts = [part for part in written.split(",") if part.strip()]
    if not parts:
        raise BadConfig("goal: is empty; such as 'delivered_call_rate >= 0.99, wasted_compute_frac <= 0.1'")
    try:
        thresholds = parse_all(parts)
    except BadConfig as error:
        raise BadConfig(str(error).replace("threshold", "goal", 1)) from error
    for threshold in thresholds:
        if threshold.policy is not None:
            raise BadConfig(f"goal {threshold.written!r}: names a policy; a goal is for the policy that is looked for")
        if threshold.op == "!=":
            raise BadConfig(f"goal {threshold.written!r}: != is no goal; use one of < <= > >= ==")
        if "policy" not in columns(threshold.query)[threshold.query]:
            raise BadConfig(f"goal {threshold.written!r}: {threshold.query} tells no policies apart")
    return [Goal(threshold) for threshold in thresholds]


def figures(run: str, goals: Sequence[Goal]) -> Figures:
    """The figure of each goal in each replay of a finished run: of several rows, the one farthest from it."""
    found: Figures = {}
    quick = set(columns("seeds")["seeds"])
    for k, goal in enumerate(goals):
        of_replays = goal.threshold.query == "summary" and goal.threshold.column in quick
        rows = run_query(run, "seeds").to_pylist() if of_replays else seed_by_seed(run, goal.threshold.query)
        grouped: dict[tuple[Place, int], list[float | None]] = {}
        for row in rows:
            place = (row["policy"], row["profile"], row["fleet"])
            value = row[goal.threshold.column]
            grouped.setdefault((place, row["seed"]), []).append(None if value is None else float(value))
        for (place, seed), values in grouped.items():
            found.setdefault(place, {}).setdefault(seed, [None] * len(goals))[k] = goal.worst(values)
    return found


def seed_by_seed(run: str, name: str) -> list[dict[str, Any]]:
    """The rows of a query on each seed of a run alone, with the seed."""
    query = load(name)
    values = bound(query, {})
    rows = []
    with connect(run) as connection:
        seeds = [s for (s,) in connection.execute("SELECT DISTINCT seed FROM replicas ORDER BY seed").fetchall()]
        connection.execute(
            "CREATE OR REPLACE MACRO cells(name) AS TABLE SELECT * FROM read_parquet(place(name || '/**/*.parquet'), "
            "hive_partitioning = true, hive_types = {'policy': VARCHAR, 'profile': VARCHAR, 'fleet': VARCHAR, "
            "'seed': BIGINT}) WHERE seed = getvariable('only_seed')"
        )
        for seed in seeds:
            connection.execute("SET VARIABLE only_seed = $seed", {"seed": seed})
            rows += [{**row, "seed": seed} for row in answer(connection, run, query, values).to_pylist()]
    return rows


def reached(goals: Sequence[Goal], by_seed: Mapping[int, Sequence[float | None]]) -> bool:
    """Whether all goals are reached with every seed."""
    return all(goal.holds(value) for values in by_seed.values() for goal, value in zip(goals, values, strict=True))


def margin(goals: Sequence[Goal], by_seed: Mapping[int, Sequence[float | None]]) -> float:
    """The smallest margin of any goal with any seed."""
    return min(goal.margin(value) for values in by_seed.values() for goal, value in zip(goals, values, strict=True))


def shortfall(goals: Sequence[Goal], by_seed: Mapping[int, Sequence[float | None]]) -> float:
    """How far a policy is from the goals: what is missing of each, summed, mean over seeds; 0 where it reaches them."""
    missing = [
        sum(max(-goal.margin(value), 0.0) for goal, value in zip(goals, values, strict=True))
        for values in by_seed.values()
    ]
    return sum(missing) / len(missing)
