"""Charts that say their finding: a title and a line below it, over bars, lines or a map of cells. Nobody draws here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replay.report.charts import Bars


@dataclass(frozen=True, slots=True)
class Line:
    """A series with its label at its end, and a band from `low` to `high`, where there is one; NaN is a gap."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A line across a chart at a value of x, and what is there."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines on one pair of axes."""

    lines: tuple[Line, ...]
    x_axis: str
    y_axis: str
    marks: tuple[Mark, ...] = ()
    share: bool = False
    """Values are shares, shown in percent from 0 to 100."""
    x_share: bool = False
    y_share: bool = False
    """Values are shares too, on a scale of their own."""
    log_x: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A map of cells: a value in 0 to 1 for each row and column, None where there is none; and its words."""

    title: str
    values: tuple[tuple[float | None, ...], ...]
    words: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Heat:
    """Maps side by side that have their rows and columns in common; red is 0, blue is 1."""

    fields: tuple[Field, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    x_axis: str
    note: str
    """What the words in the cells are."""


@dataclass(frozen=True, slots=True)
class Titled:
    """A chart under the sentence that it shows."""

    name: str
    """Of its file."""
    title: str
    subtitle: str
    chart: Bars | Lines | Heat
