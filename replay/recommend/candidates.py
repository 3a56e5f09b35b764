"""Policies that are one, two or three changes away from the present one, the smallest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from msgspec.structs import replace

from replay.policies.catalogue import CATALOGUE, apply, resolve
from replay.policies.effect import Traffic, effective
from replay.policies.knobs import Policy
from replay.recommend.changes import Change, Present, Step, together

Move = tuple[Change, Step]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy, and how it comes from the present one."""

    policy: Policy
    moves: tuple[Move, ...]

    @property
    def size(self) -> tuple[int, int]:
        """How large a change it is: changes, and those of them that take code. Fewer first, config before code."""
        return len(self.moves), sum(change.effort == "code" for change, _ in self.moves)

    @property
    def knobs(self) -> dict[str, Any]:
        """What is set other than at present."""
        return together([step for _, step in self.moves])


def single_moves(changes: Iterable[Change], present: Present) -> list[Move]:
    """Every step of every change."""
    return [(change, step) for change in changes for step in change.steps(present)]


def candidate(moves: Sequence[Move], present: Policy) -> Candidate:
    """The policy that some moves make of the present one."""
    return Candidate(apply(together([step for _, step in moves]), present, name_of_moves(moves)), tuple(moves))


def name_of_moves(moves: Sequence[Move]) -> str:
    """What a policy is called that some moves make."""
    return "-and-".join(change.name + (f"-{step.name}" if step.name else "") for change, step in moves)


def different(candidates: Iterable[Candidate], present: Policy, traffic: Traffic, seen: set[Policy]) -> list[Candidate]:
    """Candidates that the traffic tells from the present policy, from each other, and from those that were `seen`.

    What they come to is added to `seen`.
    """
    seen.add(core(present, traffic))
    kept = []
    for one in candidates:
        effect = core(one.policy, traffic)
        if effect not in seen:
            seen.add(effect)
            kept.append(one)
    return kept


def core(policy: Policy, traffic: Traffic) -> Policy:
    """What the traffic can see of a policy."""
    return replace(effective(policy, traffic), name="")


def joined(moves: Sequence[Move], base: Sequence[tuple[Move, ...]], present: Policy) -> list[Candidate]:
    """Each of `base` with each of `moves` that is of another change, in the order of both."""
    pairs = sorted(product(range(len(base)), range(len(moves))), key=lambda ij: (ij[0] + ij[1], ij))
    found: dict[str, tuple[Move, ...]] = {}
    for i, j in pairs:
        if all(change is not moves[j][0] for change, _ in base[i]):
            made = tuple(sorted((*base[i], moves[j]), key=lambda move: move[0].name))
            found.setdefault(name_of_moves(made), made)
    return [candidate(made, present) for made in found.values()]


def pairs(moves: Sequence[Move], present: Policy) -> list[Candidate]:
    """All pairs of moves of different changes: those come first whose moves come first among those of their change."""
    place: dict[str, int] = {}
    ranked = []
    for move in moves:
        ranked.append((place.get(move[0].name, 0), move))
        place[move[0].name] = ranked[-1][0] + 1
    chosen = [(a[0] + b[0], (a[1], b[1])) for a, b in combinations(ranked, 2) if a[1][0] is not b[1][0]]
    return [candidate(pair, present) for _, pair in sorted(chosen, key=lambda c: c[0])]


def known_as(policy: Policy, present: Policy, traffic: Traffic) -> str | None:
    """The policy of the catalogue that does the same with this traffic."""
    base = replace(present, name="base", budget=None)
    effect = core(policy, traffic)
    return next((name for name in CATALOGUE if core(resolve(name, base), traffic) == effect), None)
