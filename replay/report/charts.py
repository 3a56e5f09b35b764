"""What a chart is, before anybody draws it: panels over time, or bars in rows, in numbers, words and colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

INK, MUTED, LINE, SHADE, OWN = "#1d2433", "#5d6678", "#d5dae3", "#f0ead9", "#3f4b66"
"""Neutral colours, which the page replaces by its own, so that a chart follows a dark page."""
NEUTRAL = {INK: "--ink", MUTED: "--muted", LINE: "--line", SHADE: "--shade", OWN: "--own"}
"""The page's name of each."""
PALETTE = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#44aa99", "#999933", "#aa4499",
    "#cc6677", "#117733", "#6a7fd1", "#a6761d",
)  # fmt: skip
"""Colours of policies, told apart by colour-blind eyes: those of Okabe and Ito (2008), then Tol's muted scheme."""
USEFUL, UNRESOLVED = "#3b78b5", "#b4bac6"
WASTE = {
    "abandoned": "#d95f0e",
    "post_cancel": "#f7bd4b",
    "duplicate": "#7f2704",
    "recompute": "#c78bc4",
    "poll": "#807dba",
    "held_slot": "#54278f",
}
"""Colours of the causes of waste: apart from each other in lightness too."""
WAITED = ("#08306b", "#1b5fa5", "#4a90c6", "#82b6dc", "#b3d2ea", "#dbe8f4")
"""Colours of waits, the longer the lighter."""
NEVER = "#d95f0e"


@dataclass(frozen=True, slots=True)
class Layer:
    """One series of a panel: an area above `low` (or zero), a line, or dashes; values are NaN where there is none."""

    kind: Literal["area", "line", "dashes"]
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    opacity: float = 1.0
    low: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of a chart's key."""

    kind: Literal["area", "line", "dashes"]
    colour: str
    label: str
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Panel:
    """A small chart over time of one policy, or of several that fare alike."""

    titles: tuple[str, ...]
    """Whose it is; the longest of them that fits is shown."""
    notes: tuple[str, ...]
    """What it comes to, in a few words, or in fewer."""
    colour: str
    layers: tuple[Layer, ...]
    top: float
    """Upper end of its y axis."""
    share: bool = False
    """Its values are shares, shown in percent."""


@dataclass(frozen=True, slots=True)
class Panels:
    """Small charts side by side on equal axes."""

    panels: tuple[Panel, ...]
    key: tuple[Key, ...]
    end_s: float
    """Right end of the time axis, which begins at 0."""
    overload: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a bar, and its figure in words."""

    value: float
    colour: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """A row: lengths one after the other, each with its colour; a mark; words at the end."""

    label: str
    note: str
    colour: str
    strong: bool
    """To be seen first: the log's own policy."""
    parts: tuple[Part, ...]
    mark: float | None = None
    whisker: tuple[float, float] | None = None
    """An interval around its end."""


@dataclass(frozen=True, slots=True)
class Bars:
    """Rows of bars on one scale."""

    bars: tuple[Bar, ...]
    key: tuple[Key, ...]
    top: float
    """Right end of the scale, which begins at 0."""
    axis: str
    """What the scale counts."""
    share: bool = False
    rules: tuple[tuple[float, str], ...] = ()
    """Lines across all rows: where, and their colour."""


Chart = Panels | Bars


def compact(value: float) -> str:
    """A figure in few letters: 918k, 2.52M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:,.3g}" if abs(value) < 1e3 else f"{value:,.0f}"
