"""The tables of `replay validate --points`."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Sequence

from replay.calibrate.points import Figure
from replay.report.tables import WIDTH, grid, text

ID_WIDTH = 60
"""Characters of a point's id that are shown, from its end."""


def points_text(figures: Sequence[Figure]) -> str:
    """Every figure with its error, the medians of each group, and what was not predicted, with the reason."""
    parts = []
    for group in dict.fromkeys(f.group for f in figures):
        rows = [row(f) for f in figures if f.group == group and f.error is not None]
        if rows:
            parts.append(grid(["point", "figure", "measured", "predicted", "error"], rows, title=group))
    summary = medians(figures)
    if summary:
        heads = ["group", "figure", "points", "median", "mean", "bias"]
        parts.append(grid(heads, summary, title="Absolute errors: median and mean; bias is the mean with its sign"))
    left = left_out(figures)
    if left:
        parts.append("\n".join(["Not predicted:", *left]))
    return "\n\n".join(parts)


def row(figure: Figure) -> list[str]:
    """A figure as text."""
    name = figure.id if len(figure.id) <= ID_WIDTH else f"...{figure.id[3 - ID_WIDTH :]}"
    return [name, figure.figure, text(figure.measured), text(figure.predicted), f"{figure.error:+.1%}"]


def medians(figures: Sequence[Figure]) -> list[list[str]]:
    """Errors by group and figure, over points that are no overload."""
    errors: dict[tuple[str, str], list[float]] = {}
    for f in figures:
        if f.error is not None and not f.overload:
            errors.setdefault((f.group, f.figure), []).append(f.error)
    return [
        [
            group,
            name,
            str(len(found)),
            f"{statistics.median(map(abs, found)):.1%}",
            f"{statistics.mean(map(abs, found)):.1%}",
            f"{statistics.mean(found):+.1%}",
        ]
        for (group, name), found in errors.items()
    ]


def left_out(figures: Sequence[Figure]) -> list[str]:
    """Each reason, with the points that it holds for."""
    points: dict[str, list[str]] = {}
    for f in figures:
        if f.reason is not None:
            names = points.setdefault(f.reason, [])
            if f.id not in names:
                names.append(f.id)
    lines = []
    for reason, names in points.items():
        few = ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
        lines.append(textwrap.fill(f"- {reason}: {few}", WIDTH, subsequent_indent="  ", break_long_words=False))
    return lines
