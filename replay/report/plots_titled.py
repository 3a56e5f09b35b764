"""Draws charts under their titles as PNG, with matplotlib: bars as the page has them, lines, maps of cells."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from replay.report.charts import INK, LINE, MUTED, Bars, compact
from replay.report.plots import FONT, LETTER, STYLE, WIDE, draw_bars
from replay.report.titled import Field, Heat, Line, Lines, Titled

TITLE_FONT = 17.0
TITLE_LETTERS = 100
"""Letters of a title, and of a subtitle, that fit a line."""
SUBTITLE_LETTERS = 140
BOLD_LETTER = 8.4
"""Width of an average bold letter, in px, on the generous side."""
LINES_HEIGHT = 470
"""Of a chart of lines, in px."""
HEAT_HEAD, ROW_HEIGHT, HEAT_FOOT = 34, 27, 46
"""Of a map: above its rows, a row, below them."""
DOTS_PER_INCH = 144
SHADES = LinearSegmentedColormap.from_list("served", ["#b2182b", "#f4a582", "#f7f7f7", "#92c5de", "#2166ac"])
"""From none to all: ColorBrewer's RdBu, which colour-blind eyes tell apart."""
EMPTY = "#e4e7ec"


def titled_png(titled: Titled) -> bytes:
    """A chart and its title as a PNG file, at twice its size for sharp screens."""
    sink = io.BytesIO()
    with rc_context(STYLE):
        figure = drawn(titled)
        figure.savefig(sink, format="png", dpi=DOTS_PER_INCH, facecolor="white", metadata={"Software": None})
    return sink.getvalue()


def drawn(titled: Titled) -> Figure:
    """The figure of a chart, with room above it for its title."""
    title = textwrap.wrap(titled.title, TITLE_LETTERS)
    below = textwrap.wrap(titled.subtitle, SUBTITLE_LETTERS)
    head = 14 + 24 * len(title) + 18 * len(below) + 10
    if isinstance(titled.chart, Bars):
        figure = draw_bars(titled.chart, WIDE)
        tall = figure.get_figheight() * 72
        figure.axes[0].set_position((0, 0, 1, tall / (tall + head)))
    elif isinstance(titled.chart, Lines):
        tall = LINES_HEIGHT
        figure = Figure(dpi=72)
        draw_lines(figure, titled.chart, tall, head)
    else:
        tall = HEAT_HEAD + ROW_HEIGHT * len(titled.chart.rows) + HEAT_FOOT
        figure = Figure(dpi=72)
        draw_heat(figure, titled.chart, tall, head)
    figure.set_size_inches(WIDE / 72, (tall + head) / 72)
    y = 14.0
    for text in title:
        figure.text(14 / WIDE, 1 - y / (tall + head), text, fontsize=TITLE_FONT, weight="bold", va="top")
        y += 24
    for text in below:
        figure.text(14 / WIDE, 1 - (y + 2) / (tall + head), text, fontsize=FONT, color=MUTED, va="top")
        y += 18
    return figure


def draw_lines(figure: Figure, chart: Lines, tall: float, head: float) -> None:
    """Lines with their labels at their right ends, as far apart as they must be to be read."""
    room = BOLD_LETTER * max(len(line.label) for line in chart.lines) + 24
    height = tall + head
    axes = figure.add_axes((74 / WIDE, 52 / height, (WIDE - 74 - room) / WIDE, (tall - 74) / height))
    for line in chart.lines:
        axes.plot(line.x, line.y, color=line.colour, linewidth=2.2, linestyle=(0, (4, 2)) if line.dashed else "-",
                  marker="o", markersize=4.5, zorder=3)  # fmt: skip
        if line.low is not None and line.high is not None:
            axes.fill_between(line.x, line.low, line.high, color=line.colour, alpha=0.15, linewidth=0, zorder=2)
    if chart.log_x:
        axes.set_xscale("log")
        axes.set_xticks(sorted({x for line in chart.lines for x in line.x}))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, 0) if chart.x_share else FuncFormatter(lambda x, _: f"{x:g}"))
    if chart.share:
        axes.set_ylim(-0.02, 1.04)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, 0))
    else:
        axes.set_ylim(min(0.0, axes.get_ylim()[0]))
        axes.yaxis.set_major_formatter(
            PercentFormatter(1.0) if chart.y_share else FuncFormatter(lambda y, _: compact(y))
        )
    plain(axes)
    axes.set_xlabel(chart.x_axis, color=MUTED)
    axes.set_ylabel(chart.y_axis, color=MUTED)
    for mark in chart.marks:
        axes.axvline(mark.x, color=INK, linewidth=1.2, linestyle=(0, (1, 2)), zorder=1)
        axes.annotate(f" {mark.label}", (mark.x, 1.0), xycoords=("data", "axes fraction"), va="bottom", color=INK)
    label_ends(axes, chart.lines, tall - 74)


def plain(axes: Axes) -> None:
    """A frame that does not ask to be looked at."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(LINE)
    axes.tick_params(colors=MUTED, length=3)
    axes.grid(axis="y", color=LINE, linewidth=0.7)
    axes.set_axisbelow(True)


def label_ends(axes: Axes, lines: Sequence[Line], height: float) -> None:
    """Each line's label beside its last point, moved apart where they would lie on each other."""
    low, high = axes.get_ylim()
    per = (high - low) / height
    step = 17 * per
    ends = sorted((next((y for y in reversed(line.y) if math.isfinite(y)), low), n) for n, line in enumerate(lines))
    places: list[float] = []
    for y, _ in ends:
        places.append(max(y, places[-1] + step) if places else y)
    over = max(places[-1] - high, 0.0)
    places[-1] -= over
    for n in range(len(places) - 2, -1, -1):
        places[n] = min(places[n], places[n + 1] - step)
    for (_, n), place in zip(ends, places, strict=True):
        axes.annotate(lines[n].label, (1.0, place), xycoords=("axes fraction", "data"), xytext=(10, 0),
                      textcoords="offset points", color=lines[n].colour, weight="bold", va="center",
                      annotation_clip=False)  # fmt: skip


def draw_heat(figure: Figure, chart: Heat, tall: float, head: float) -> None:
    """Maps side by side; each cell has its words."""
    left = LETTER * max(map(len, chart.rows)) + 22
    gap = 14
    wide = (WIDE - left - 14 - gap * (len(chart.fields) - 1)) / len(chart.fields)
    height = tall + head
    for n, field in enumerate(chart.fields):
        x = left + n * (wide + gap)
        axes = figure.add_axes((x / WIDE, HEAT_FOOT / height, wide / WIDE, ROW_HEIGHT * len(chart.rows) / height))
        draw_field(axes, field, chart)
        axes.set_yticks(range(len(chart.rows)), chart.rows if n == 0 else [""] * len(chart.rows))
    figure.text(
        (left + (WIDE - left) / 2) / WIDE, 8 / height, f"{chart.x_axis}; {chart.note}", color=MUTED, ha="center"
    )


def draw_field(axes: Axes, field: Field, chart: Heat) -> None:
    """One map."""
    axes.set_xlim(-0.5, len(chart.columns) - 0.5)
    axes.set_ylim(len(chart.rows) - 0.5, -0.5)
    for row, values in enumerate(field.values):
        for column, value in enumerate(values):
            colour = EMPTY if value is None else SHADES(value)
            axes.add_patch(cell(row, column, colour))
            letters = "#ffffff" if value is not None and abs(value - 0.5) > 0.34 else INK
            axes.text(column, row, field.words[row][column], ha="center", va="center", color=letters, fontsize=FONT - 2)
    axes.set_xticks(range(len(chart.columns)), chart.columns)
    axes.set_title(field.title, fontsize=FONT, weight="bold", loc="left", pad=8)
    axes.tick_params(colors=MUTED, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def cell(row: int, column: int, colour: Any) -> Rectangle:
    """A cell of a map, with a thin gap around it."""
    return Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, facecolor=colour, linewidth=0)
