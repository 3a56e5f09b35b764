"""The search: one change before two, two before three, until a policy reaches the goal.

One change is tried in every step of the table. Of two, all pairs are tried as far as the traffic is small enough; of
three, what one more change makes of the pairs that came nearest. Seeds that a search leaves out are made up for by the
last run, in which the smallest of what it found are replayed with all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from replay.policies.effect import Traffic
from replay.policies.knobs import Policy
from replay.recommend.bench import Bench
from replay.recommend.candidates import (
    Candidate,
    Move,
    candidate,
    different,
    joined,
    name_of_moves,
    pairs,
    single_moves,
)
from replay.recommend.changes import Change, Present
from replay.recommend.goal import Goal, figures, margin, reached, shortfall

CALLS_PER_STAGE = 10_000_000
"""Calls that a stage of the search replays at most, and in any case ..."""
LEAST, MOST = 40, 400
"""... so many policies, but no more than that."""
WIDTH = 6
"""Pairs that a third change is added to."""
FINALISTS = 5
"""Policies in the last run, beside the present one."""
DEPTH = 3
WORDS = {1: "one change", 2: "two changes", 3: "three changes"}


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate, and how it fared."""

    candidate: Candidate
    reached: bool
    margin: float
    shortfall: float

    @property
    def rank(self) -> tuple[bool, tuple[int, int], float]:
        """Those that reach the goal first, the smallest change first, then by margin; the others by what is missing."""
        if self.reached:
            return False, self.candidate.size, -self.margin
        return True, (0, 0), self.shortfall


def search(bench: Bench, goals: Sequence[Goal], changes: Sequence[Change], present: Present, seeds: int) -> list[Tried]:
    """What was tried, the best first: it ends with the first stage in which a policy reaches the goal."""
    traffic = Traffic.of(bench.trace.calls)
    seen: set[Policy] = set()
    moves = single_moves(changes, present)
    one = different([candidate([m], present.policy) for m in moves], present.policy, traffic, seen)
    calls = bench.trace.calls.num_rows
    tried = stage(bench, goals, one, 1, max(1, min(seeds, CALLS_PER_STAGE // (calls * max(len(one), 1)))))
    best = [*tried]
    while not any(t.reached for t in tried) and tried and len(tried[0].candidate.moves) < DEPTH:
        depth = len(tried[0].candidate.moves) + 1
        ranked = in_order(moves, tried if depth == 2 else best)
        wanted = pairs(ranked, present.policy) if depth == 2 else thirds(tried, ranked, present.policy)
        room = max(LEAST, min(MOST, CALLS_PER_STAGE // calls))
        tried = stage(bench, goals, different(wanted, present.policy, traffic, seen)[:room], depth, 1)
        best += tried
    return sorted(best, key=lambda t: t.rank)


def in_order(moves: Sequence[Move], tried: Sequence[Tried]) -> list[Move]:
    """Moves, those first that came nearest to the goal by themselves; the ones that did nothing alone, last."""
    alone = {t.candidate.policy.name: t.shortfall for t in tried if len(t.candidate.moves) == 1}
    return sorted(moves, key=lambda move: alone.get(name_of_moves([move]), float("inf")))


def thirds(tried: Sequence[Tried], moves: Sequence[Move], present: Policy) -> list[Candidate]:
    """The pairs that came nearest, each with one change more."""
    nearest = sorted(tried, key=lambda t: t.shortfall)[:WIDTH]
    return joined(moves, [t.candidate.moves for t in nearest], present)


def stage(bench: Bench, goals: Sequence[Goal], candidates: Sequence[Candidate], depth: int, seeds: int) -> list[Tried]:
    """Candidates of so many changes, replayed."""
    if not candidates:
        return []
    plan = bench.plan([c.policy for c in candidates], seeds)
    run = bench.run(f"trying {WORDS[depth]}", plan, f"{depth}-{WORDS[depth].split()[1]}")
    return judged(goals, candidates, by_policy(run, goals))


def by_policy(run: str, goals: Sequence[Goal]) -> dict[str, dict[int, list[float | None]]]:
    """The figure of each goal by policy and seed, in a run of one profile and fleet."""
    return {policy: by_seed for (policy, _, _), by_seed in figures(run, goals).items()}


def judged(
    goals: Sequence[Goal], candidates: Sequence[Candidate], found: Mapping[str, Mapping[int, Sequence[float | None]]]
) -> list[Tried]:
    """How candidates fared."""
    tried = []
    for c in candidates:
        mine = found[c.policy.name]
        tried.append(Tried(c, reached(goals, mine), margin(goals, mine), shortfall(goals, mine)))
    return tried


def finalists(tried: Sequence[Tried]) -> list[Candidate]:
    """Those that are replayed with all seeds: the smallest that reach the goal, and the best of each set of changes."""
    kept: dict[frozenset[str], Candidate] = {}
    for t in tried:
        kept.setdefault(frozenset(change.name for change, _ in t.candidate.moves), t.candidate)
    chosen = [t.candidate for t in smallest(tried)][:FINALISTS]
    return [*chosen, *(c for c in kept.values() if c not in chosen)][: max(FINALISTS, len(chosen))]


def smallest(tried: Sequence[Tried]) -> list[Tried]:
    """Of those that reach the goal, all that are as small a change as any."""
    good = [t for t in tried if t.reached]
    least = min((t.candidate.size for t in good), default=None)
    return [t for t in good if t.candidate.size == least]


def last_run(
    bench: Bench, goals: Sequence[Goal], candidates: Sequence[Candidate], seeds: int
) -> tuple[str, list[Tried]]:
    """The run that the answer is of: finalists beside the present policy, with all seeds; the best first."""
    plan = bench.plan([c.policy for c in candidates], seeds)
    run = bench.run("the best of them, with all seeds", plan)
    found = by_policy(run, goals)
    return run, sorted(judged(goals, candidates, found), key=lambda t: t.rank)
