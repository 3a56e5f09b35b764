"""Who is in the picture: for each profile and fleet of a run its policies, best first, those that fare alike once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replay.report.charts import OWN, PALETTE
from replay.report.words import percent

Rows = Sequence[Mapping[str, Any]]
Found = Mapping[str, Rows]
"""The rows of each query."""

ALIKE = 0.01
"""Policies share a panel when each of their headline figures agrees within this: of rates their difference, of all
others the difference relative to the larger."""
MOST_PANELS = 16
"""Panels of all scenes together in one chart over time; each scene has at least four."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Policies that fare alike, drawn as the first of them."""

    policies: tuple[str, ...]
    colour: str
    own: bool
    delivered: float | None
    recovered: tuple[str, ...]
    """Whether service came back under it, in a few words, and in fewer; empty where there is nothing to say."""

    @property
    def policy(self) -> str:
        """The one whose figures are drawn."""
        return self.policies[0]

    @property
    def short_label(self) -> str:
        """Its name, and how many more fare like it."""
        more = len(self.policies) - 1
        return f"{self.policy} + {more} alike" if more else self.policy

    @property
    def labels(self) -> tuple[str, ...]:
        """The same, before it with the names of the others, and with a word on whether one is the log's own."""
        names = dict.fromkeys((" = ".join(self.policies), self.short_label))
        return (*(f"{n}, the log's own" for n in names if self.own), *names)


@dataclass(frozen=True, slots=True)
class Scene:
    """One profile and fleet of a run."""

    profile: str
    fleet: str
    shown: tuple[Shown, ...]
    """Best first: by delivered calls, then by least waste."""
    most_panels: int

    @property
    def name(self) -> str:
        return f"{self.profile}, {self.fleet}"

    def rows(self, rows: Rows, policy: str | None = None) -> Rows:
        """Those of this scene, of one policy or of all."""
        mine = (r for r in rows if r["profile"] == self.profile and r["fleet"] == self.fleet)
        return [r for r in mine if policy is None or r["policy"] == policy]

    def in_panels(self) -> tuple[Shown, ...]:
        """Those with a panel of their own: all, or where they are too many the log's own, the best and the worst."""
        if len(self.shown) <= self.most_panels:
            return self.shown
        own = next((s for s in self.shown if s.own), None)
        chosen = [*([own] if own else []), self.shown[-1]]
        chosen += [s for s in self.shown if s not in chosen][: self.most_panels - len(chosen)]
        return tuple(s for s in self.shown if s in chosen)


def scenes(found: Found, own: str | None) -> list[Scene]:
    """The scenes of a run, in the order of its summary."""
    policies = list(dict.fromkeys(r["policy"] for r in found["summary"]))
    others = [p for p in policies if p != own]
    colours = {p: PALETTE[k % len(PALETTE)] for k, p in enumerate(others)} | ({own: OWN} if own else {})
    groups = list(dict.fromkeys((r["profile"], r["fleet"]) for r in found["summary"]))
    most = max(4, MOST_PANELS // max(len(groups), 1))
    return [Scene(p, f, tuple(shown(found, own, colours, p, f)), most) for p, f in groups]


def shown(found: Found, own: str | None, colours: Mapping[str, str], profile: str, fleet: str) -> list[Shown]:
    """The policies of a scene, best first."""
    scene = Scene(profile, fleet, (), 0)
    together: list[list[Mapping[str, Any]]] = []
    rows = sorted(scene.rows(found["summary"]), key=lambda r: r["policy"] != own)
    for row in rows:
        met = next((t for t in together if alike(figures(found, scene, t[0]), figures(found, scene, row))), None)
        if met is None:
            together.append([row])
        else:
            met.append(row)
    together.sort(key=lambda t: (-(t[0]["delivered_call_rate"] or 0.0), t[0]["wasted_compute_frac"] or 0.0))
    came_back = {r["policy"]: recovered(r) for r in scene.rows(found["recovery"])}
    return [
        Shown(
            tuple(r["policy"] for r in rows),
            colours[rows[0]["policy"]],
            own in [r["policy"] for r in rows],
            rows[0]["delivered_call_rate"],
            came_back.get(rows[0]["policy"], ()),
        )
        for rows in together
    ]


def figures(found: Found, scene: Scene, row: Mapping[str, Any]) -> dict[str, float | None]:
    """The figures in which policies that are shown as one agree."""
    policy = row["policy"]
    named = {key: value for key, value in row.items() if key not in ("policy", "profile", "fleet", "group", "label")}
    for phase in scene.rows(found["delivered_by_phase"], policy):
        named |= {f"{phase['phase']}_rate": phase["delivered_call_rate"], f"{phase['phase']}_on": phase["on_time_rate"]}
    for came_back in scene.rows(found["recovery"], policy):
        named["recovered_rate"] = came_back["recovered_share"]
    return named


def alike(one: Mapping[str, float | None], other: Mapping[str, float | None]) -> bool:
    """Whether two policies fare alike in each figure."""
    return one.keys() == other.keys() and all(close(key, one[key], other[key]) for key in one)


def close(key: str, a: float | None, b: float | None) -> bool:
    """Whether two values of a figure are one to the eye."""
    if a is None or b is None or not (math.isfinite(a) and math.isfinite(b)):
        return a == b
    return abs(a - b) <= ALIKE * (1.0 if key.endswith(("_rate", "_on", "_frac")) else max(abs(a), abs(b)))


def recovered(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of `recovery` in a few words, and in fewer."""
    share, after = row["recovered_share"], row["recovery_time_s"]
    if share is None:
        return ("recovery cannot be told", "cannot be told")
    if share == 0:
        return ("✗ does not recover", "✗ no recovery")
    if share < 1:
        return (f"recovers in {percent(share)} of seeds", f"in {percent(share)} of seeds")
    if after == 0:
        return ("✓ recovers at once", "✓ at once")
    return (f"✓ recovers after {after:,.1f} s", f"✓ after {after:,.1f} s")
