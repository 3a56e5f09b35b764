"""Draws charts with matplotlib: as SVG for the page, wide and narrow, and as PNG."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from replay.report.charts import INK, LINE, MUTED, NEUTRAL, SHADE, Bar, Bars, Chart, Key, Panel, Panels, compact

WIDE, NARROW = 1040, 350
"""Widths of a chart in px: on a desk, and on a phone."""
FONT = 12.5
LETTER = 7.0
"""Width of an average letter of that size, in px, on the generous side."""
HEADROOM = 1.04
"""How far an axis reaches beyond its highest value."""
STYLE: dict[Any, Any] = {
    "font.size": FONT,
    "font.family": "sans-serif",
    "text.parse_math": False,
    "svg.fonttype": "none",
    "text.color": INK,
    "lines.solid_capstyle": "round",
}


def svg(chart: Chart, name: str, width: int) -> str:
    """A chart as an SVG element to put into a page, in the page's fonts and neutral colours.

    Equal charts give equal text. `name` keeps the ids of several in one page apart.
    """
    sink = io.StringIO()
    with rc_context({**STYLE, "svg.hashsalt": f"{name} {width}"}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        draw(chart, width).savefig(sink, format="svg", transparent=True, metadata=nothing)
    text = sink.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--font)", text)
    text = re.sub(
        r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true" focusable="false">', text
    )
    for colour, variable in NEUTRAL.items():
        text = text.replace(colour, f"var({variable})")
    return text.strip()


def png(chart: Chart) -> bytes:
    """A chart as a PNG file, at twice its size for sharp screens."""
    sink = io.BytesIO()
    with rc_context(STYLE):
        draw(chart, WIDE).savefig(sink, format="png", dpi=144, facecolor="white", metadata={"Software": None})
    return sink.getvalue()


def draw(chart: Chart, width: int) -> Figure:
    """A chart as a figure so many px wide."""
    return draw_panels(chart, width) if isinstance(chart, Panels) else draw_bars(chart, width)


def sheet(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure, and axes over all of it whose units are px from its upper left corner."""
    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    return figure, axes


def short(text: str, room: float) -> str:
    """A text cut to a room in px."""
    most = max(int(room / LETTER), 4)
    return text if len(text) <= most else text[: most - 1] + "…"


def fitting(texts: Sequence[str], room: float) -> str:
    """The first text that fits a room, the last one cut if none does."""
    return next((text for text in texts if LETTER * len(text) <= room), short(texts[-1], room))


def key_rows(key: Sequence[Key], width: float) -> list[list[tuple[float, Key]]]:
    """The entries of a key in rows that fit, each with its place."""
    rows: list[list[tuple[float, Key]]] = [[]]
    x = 0.0
    for entry in key:
        needed = 34 + LETTER * len(entry.label)
        if x + needed > width and rows[-1]:
            rows.append([])
            x = 0.0
        rows[-1].append((x, entry))
        x += needed
    return [row for row in rows if row]


def draw_key(axes: Axes, rows: list[list[tuple[float, Key]]], left: float) -> None:
    """The key at the top of a sheet."""
    for n, row in enumerate(rows):
        y = 10 + 18 * n
        for x, entry in row:
            at = left + x
            if entry.kind == "area":
                axes.add_patch(Rectangle((at, y - 5), 14, 10, facecolor=entry.colour, alpha=entry.opacity, linewidth=0))
            else:
                dashes = (0, (3, 2)) if entry.kind == "dashes" else "-"
                axes.plot([at, at + 14], [y, y], color=entry.colour, linewidth=1.8, linestyle=dashes)
            axes.text(at + 20, y, entry.label, color=MUTED, va="center_baseline")


def columns_of(count: int, width: int) -> int:
    """How many panels stand side by side."""
    if width < WIDE:
        return 1 if count <= 2 else 2
    return max(count, 1) if count <= 4 else 3 if count in (5, 6, 9) else 4


def draw_panels(chart: Panels, width: int) -> Figure:
    """Small charts in rows."""
    count = len(chart.panels)
    columns = columns_of(count, width)
    rows = math.ceil(count / columns)
    unlike = len({panel.top for panel in chart.panels}) > 1
    left, gap, head, tall = 38, 40 if unlike else 22, 40, 92 if width >= WIDE else 74
    key = key_rows(chart.key, width - 8)
    top = 18 * len(key) + 8
    each = (width - left - 10 - gap * (columns - 1)) / columns
    height = top + rows * (head + tall + 12) + 22
    figure, page = sheet(width, height)
    draw_key(page, key, 4)
    for n, panel in enumerate(chart.panels):
        x, y = left + (n % columns) * (each + gap), top + (n // columns) * (head + tall + 12) + head
        room = each + 10
        page.add_patch(Rectangle((x, y - 32), 9, 9, facecolor=panel.colour, linewidth=0))
        page.text(x + 14, y - 27.5, fitting(panel.titles, room - 14), weight="bold", va="center_baseline")
        page.text(x, y - 12, fitting(panel.notes, room), color=MUTED, va="center_baseline")
        frame = Frame(page, x, y, each, tall, chart.end_s, panel.top)
        draw_panel(frame, chart, panel)
        if n % columns == 0 or panel.top != chart.panels[n - 1].top:
            draw_values(frame, panel)
        if n + columns >= count:
            draw_times(frame)
    return figure


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a small chart lies on the sheet, in px, and what its sides stand for.

    All charts of a figure are drawn into one pair of axes: a pair for each would take ten times as long.
    """

    page: Axes
    left: float
    top: float
    width: float
    height: float
    end_s: float
    most: float

    def x(self, times: Iterable[float]) -> list[float]:
        return [self.left + t / self.end_s * self.width for t in times]

    def y(self, values: Iterable[float]) -> list[float]:
        return [self.top + self.height * (1 - v / (self.most * HEADROOM)) for v in values]

    def clip(self, artist: Artist) -> None:
        """Cut what is drawn at the sides."""
        right, bottom = self.left + self.width, self.top + self.height
        corners = [
            (self.left, self.top),
            (right, self.top),
            (right, bottom),
            (self.left, bottom),
            (self.left, self.top),
        ]
        artist.set_clip_path(Path(corners), self.page.transData)


def draw_panel(frame: Frame, chart: Panels, panel: Panel) -> None:
    """A small chart without its numbers."""
    page, bottom = frame.page, frame.top + frame.height
    if chart.overload is not None:
        start, end = frame.x(min(t, chart.end_s) for t in chart.overload)
        page.add_patch(Rectangle((start, frame.top), end - start, frame.height, facecolor=SHADE, linewidth=0, zorder=0))
    for level in frame.y(value_ticks(panel)):
        page.plot([frame.left, frame.left + frame.width], [level, level], color=LINE, linewidth=0.7, zorder=0.5)
    page.plot([frame.left, frame.left + frame.width], [bottom, bottom], color=LINE, linewidth=0.9, zorder=4)
    for layer in panel.layers:
        x, y = frame.x(layer.x), frame.y(layer.y)
        artist: Artist
        if layer.kind == "area":
            low = frame.y(layer.low if layer.low is not None else [0.0] * len(x))
            artist = page.fill_between(x, low, y, color=layer.colour, alpha=layer.opacity, linewidth=0, zorder=2)
        else:
            dashes, thick = ((0, (3, 2)), 1.2) if layer.kind == "dashes" else ("-", 1.8)
            (artist,) = page.plot(
                x, y, color=layer.colour, alpha=layer.opacity, linewidth=thick, linestyle=dashes, zorder=3
            )
        if max(layer.x, default=0.0) > frame.end_s or any(v > frame.most * HEADROOM for v in layer.y):
            frame.clip(artist)


def value_ticks(panel: Panel) -> list[float]:
    """Round values of a panel's y axis."""
    if panel.share:
        return [0.0, 0.5, 1.0]
    ticks = MaxNLocator(2, integer=panel.top >= 2, steps=[1, 2, 5, 10]).tick_values(0, panel.top)
    return [t for t in ticks if 0 <= t <= panel.top * HEADROOM]


def draw_values(frame: Frame, panel: Panel) -> None:
    """The numbers of the y axis."""
    ticks = value_ticks(panel)
    for value, y in zip(ticks, frame.y(ticks), strict=True):
        words = f"{value:.0%}" if panel.share else f"{value:,.6g}"
        frame.page.text(frame.left - 5, y, words, color=MUTED, ha="right", va="center_baseline")


def draw_times(frame: Frame) -> None:
    """The numbers of the time axis."""
    seconds, unit = (1.0, "s") if frame.end_s <= 600 else (60.0, "min") if frame.end_s <= 10_800 else (3600.0, "h")
    bottom = frame.top + frame.height
    last = frame.end_s / seconds
    for value in MaxNLocator(4, steps=[1, 2, 3, 5, 6, 10]).tick_values(0, last):
        if 0 <= value <= last:
            (x,) = frame.x([value * seconds])
            frame.page.plot([x, x], [bottom, bottom + 3], color=LINE, linewidth=0.8)
            words = f"{value:g} {unit}" if value == 0 else f"{value:g}"
            side = "right" if x > frame.left + frame.width - LETTER else "center"
            frame.page.text(x, bottom + 12, words, color=MUTED, ha=side, va="center_baseline")


def draw_bars(chart: Bars, width: int) -> Figure:
    """Bars in rows: beside their labels where there is room, else below them."""
    beside = width >= WIDE
    left, right = (208.0, width - 196.0) if beside else (4.0, width - 6.0)
    key = key_rows(chart.key, width - 8)
    top = 18 * len(key) + (14 if beside else 8)
    step, thick = (27, 18) if beside else (42, 15)
    height = top + step * len(chart.bars) + (40 if chart.axis else 24)
    figure, page = sheet(width, height)
    draw_key(page, key, 4)
    per = (right - left) / chart.top if chart.top > 0 else 0.0
    draw_scale(page, chart, left, per, top - 2, top + step * len(chart.bars) + 2, lines=beside)
    for at, colour in chart.rules:
        x = left + at * per
        page.plot([x, x], [top - 2, top + step * len(chart.bars) + 2], color=colour, linewidth=1.8, zorder=3)
    for n, bar in enumerate(chart.bars):
        y = top + step * n + (0 if beside else 22)
        draw_bar(page, bar, left, y, thick, per)
        label_y = y + thick / 2 if beside else y - 9
        page.add_patch(Rectangle((4, label_y - 4.5), 9, 9, facecolor=bar.colour, linewidth=0))
        weight = "bold" if bar.strong else "normal"
        room = left - 26 if beside else width - 34 - LETTER * len(bar.note)
        page.text(18, label_y, short(bar.label, room), weight=weight, va="center_baseline")
        note_x, side = (right + 12, "left") if beside else (right, "right")
        page.text(note_x, label_y, bar.note, color=MUTED, ha=side, va="center_baseline")
    return figure


def draw_bar(page: Axes, bar: Bar, left: float, y: float, thick: float, per: float) -> None:
    """One row of parts, with their figures where these fit."""
    x = left
    for part in bar.parts:
        long = part.value * per
        if long > 0:
            page.add_patch(Rectangle((x, y), max(long - 0.8, 0.4), thick, facecolor=part.colour, linewidth=0))
        if long > LETTER * len(part.words) + 10:
            letters = "#ffffff" if dark(part.colour) else "#11151d"
            page.text(x + 6, y + thick / 2, part.words, color=letters, va="center_baseline", fontsize=FONT - 1)
        x += long
    if bar.whisker is not None:
        low, high = (left + v * per for v in bar.whisker)
        page.plot([low, high], [y + thick / 2] * 2, color=INK, linewidth=1.4, zorder=4)
        for end in (low, high):
            page.plot([end, end], [y + thick / 2 - 4, y + thick / 2 + 4], color=INK, linewidth=1.4, zorder=4)
    if bar.mark is not None:
        at = left + bar.mark * per
        page.plot([at, at], [y - 3, y + thick + 3], color=INK, linewidth=2.2, solid_capstyle="butt")


def dark(colour: str) -> bool:
    """Whether white letters are read better on a colour than black ones, by its relative luminance (WCAG 2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] < 0.19


def draw_scale(page: Axes, chart: Bars, left: float, per: float, top: float, bottom: float, lines: bool) -> None:
    """Round values below the bars, and what they count; with `lines` up to the bars."""
    if per <= 0:
        return
    ticks = (
        [0.0, 0.25, 0.5, 0.75, 1.0] if chart.share else list(MaxNLocator(5 if lines else 3).tick_values(0, chart.top))
    )
    for value in (t for t in ticks if 0 <= t <= chart.top * 1.001):
        x = left + value * per
        page.plot([x, x], [top if lines else bottom - 4, bottom], color=LINE, linewidth=0.7, zorder=0)
        words = f"{value:.0%}" if chart.share else compact(value)
        side = "left" if value == 0 else "right" if x > left + chart.top * per - 30 else "center"
        page.text(x, bottom + 11, words, color=MUTED, ha=side, va="center_baseline")
    if chart.axis:
        page.text(left, bottom + 27, chart.axis, color=MUTED, va="center_baseline")
