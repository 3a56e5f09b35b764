"""The answer: the smallest change that reaches a goal, what it costs and how sure it is; or that there is none."""

from __future__ import annotations

from typing import Any

import msgspec

Figure = dict[str, float | None]


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over several replays; null where it is infinite, or there is none."""

    mean: float | None
    low: float | None
    high: float | None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a policy."""

    change: str
    who: str
    """client, gateway or engine."""
    effort: str
    """config or code."""
    words: str
    settings: dict[str, Any]
    """Dotted keys, and what they are set to."""
    before: dict[str, Any]
    """What they are at present."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a policy fares on one goal."""

    goal: str
    figure: str
    number: float
    percent: bool
    seeds: Interval
    """Mean over seeds, and its bootstrapped 95% interval."""
    resampled: Interval | None
    """The same over resampled traffic: its mean, and the middle 95% of it."""
    margin: float
    """How far the seed that fares worst is beyond the number, as a share of it; negative: it misses it."""


class Fared(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that was replayed with all seeds."""

    policy: str
    known_as: str | None
    """The policy of the catalogue that does the same on this traffic."""
    turns: list[Turn]
    """The changes that make it; none for the present policy."""
    reached: bool
    standings: list[Standing]
    holds_in: float | None
    """Share of resampled traffics in which it reaches all goals; null where that was not tried."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """A figure as it is, and as it would be: means over seeds."""

    figure: str
    now: float | None
    then: float | None
    kind: str
    """share, seconds or count."""


class Sensed(msgspec.Struct, frozen=True, kw_only=True):
    """The goals where one thing is other than it was."""

    variant: str
    policy: str
    replays: int
    reached: int
    """Replays in which all goals are reached."""
    values: list[float | None]
    """The figure of each goal, mean over seeds."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas that reach the goal under one policy."""

    policy: str
    now: int
    needed: int | None
    tried_most: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What `replay recommend` says."""

    goals: list[str]
    can: list[str]
    run: str
    calls: int
    tried: int
    """Policies that were tried."""
    now: Fared
    best: Fared | None
    """The smallest change that reaches the goal; where none does, the nearest. null: nothing could be changed."""
    others: list[Fared]
    """Other changes that were replayed with all seeds, the best first."""
    costs: list[Cost]
    possible_delivered: float | None
    """Share of eligible calls that any policy could deliver at most, and ..."""
    possible_on_time: float | None
    """... on time."""
    sensitivity: list[Sensed]
    capacity: list[Room]
    snippet: str
    """The policy as YAML, for `--policy`; empty where there is none."""
    cautions: list[str]

    @property
    def reached(self) -> bool:
        return self.best is not None and self.best.reached
