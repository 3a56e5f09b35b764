"""A comparison for people: a sentence for each policy, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pyarrow as pa

from replay.report.compare import FIGURES, Comparison, Difference, Figure
from replay.report.tables import grid, render, text
from replay.report.verdict import SAME
from replay.report.words import listed, paragraphs

EQUAL = 0.01
"""Amounts that differ by a smaller share are called equal."""
TABLES = {
    "What users had": ("delivered_call_rate", "on_time_rate", "survivor_p95_s"),
    "What it cost": ("wasted_compute_frac", "wasted_gpu_s", "attempts"),
}
LEGEND = "(shares in points; mean over seeds [95% interval]; never: too many calls were not delivered)"
BY_COLUMN = {figure.column: figure for figure in FIGURES}


def sentences(comparison: Comparison) -> list[str]:
    """What each policy changes, one sentence for each."""
    other = comparison.baseline if comparison.of == "policies" else f"in {comparison.baseline}"
    return [said(name, rows, other) for name, rows in policies(comparison)]


def policies(comparison: Comparison) -> list[tuple[str, dict[str, Difference]]]:
    """The differences of each policy by figure, under a name that no two have."""
    many = len({(d.profile, d.fleet) for d in comparison.differences}) > 1
    groups = groupby(comparison.differences, key=lambda d: (d.policy, d.profile, d.fleet))
    return [
        (f"{policy} ({profile}, {fleet})" if many else policy, {d.figure: d for d in rows})
        for (policy, profile, fleet), rows in groups
    ]


def said(name: str, rows: dict[str, Difference], other: str) -> str:
    """One policy against another, or against itself in another run.

    Such as "coalesce delivers 53 points more than cancel [52 to 53] and wastes 80% less GPU time."
    """
    parts = []
    if (d := rows.get("delivered_call_rate")) is not None and d.difference is not None:
        parts.append(delivers(d, other))
    if (d := rows.get("wasted_gpu_s")) is not None:
        parts.append(wastes(d))
    if (d := rows.get("survivor_p95_s")) is not None and d.difference is not None and d.baseline_value:
        parts.append(waits(d))
    return f"{name} {listed(parts)}." if parts else f"{name} cannot be compared: no call counts."


def delivers(d: Difference, other: str) -> str:
    """Of delivered calls, in points."""
    assert d.difference is not None
    points = 100 * d.difference
    if abs(d.difference) < SAME and (d.low is None or d.high is None or max(abs(d.low), abs(d.high)) < SAME):
        return f"delivers as many calls as {other}"
    if d.low is not None and d.high is not None and d.low <= 0 <= d.high:
        return f"delivers about as many calls as {other}{ends(d, 100)}"
    more = "more" if points > 0 else "fewer"
    return f"delivers {number(abs(points))} points {more} than {other}{ends(d, 100)}"


def wastes(d: Difference) -> str:
    """Of wasted GPU time, as a share of the baseline's."""
    value, base = d.value or 0.0, d.baseline_value or 0.0
    if base <= 0:
        return "wastes no GPU time either" if value <= 0 else f"wastes {text(value)} GPU-seconds instead of none"
    ratio = value / base
    if abs(ratio - 1) < EQUAL:
        return "wastes as much GPU time"
    if ratio >= 2:
        return f"wastes {text(float(f'{ratio:.2g}'))} times the GPU time"
    if value <= 0:
        return "wastes no GPU time"
    return f"wastes {whole(abs(ratio - 1))} {'more' if ratio > 1 else 'less'} GPU time"


def waits(d: Difference) -> str:
    """Of the latency of those who stay."""
    assert d.difference is not None
    assert d.baseline_value is not None
    if abs(d.difference) < EQUAL * d.baseline_value:
        return "lets users wait as long (p95)"
    longer = "longer" if d.difference > 0 else "shorter"
    return f"lets users wait {text(float(f'{abs(d.difference):.2g}'))} s {longer} (p95){ends(d, 1)}"


def whole(share: float) -> str:
    """A share in percent, never rounded to all."""
    return f"{share:.0%}" if share < 0.995 else f"{share:.1%}"


def number(points: float) -> str:
    """Points: whole ones, unless they are few."""
    return f"{points:.0f}" if abs(points) >= 10 else f"{points:.1f}"


def ends(d: Difference, scale: float) -> str:
    """The interval of a difference, without signs where both ends have the same; empty where it has no width."""
    if d.low is None or d.high is None:
        return ""
    amounts = [scale * d.low, scale * d.high]
    if max(amounts) <= 0 or min(amounts) >= 0:
        amounts = sorted(map(abs, amounts))
    low, high = map(number, amounts)
    return "" if low == high else f" [{low} to {high}]"


def comparison_text(comparison: Comparison) -> str:
    """A comparison as a page: cautions, sentences, tables."""
    cautions = [f"Caution: {line}." for line in comparison.cautions]
    tables = [
        grid(["policy", *map(label, columns)], table_rows(comparison, columns), f"{title}, {less(comparison)}")
        for title, columns in TABLES.items()
    ]
    parts = [paragraphs(cautions), paragraphs(sentences(comparison)), *tables, LEGEND, moved(comparison)]
    return "\n\n".join(part for part in parts if part)


def moved(comparison: Comparison) -> str:
    """How many calls fare better, and how many worse; empty for two runs."""
    if not comparison.calls:
        return ""
    many = len({(m.profile, m.fleet) for m in comparison.calls}) > 1
    rows = [
        [
            f"{m.policy} ({m.profile}, {m.fleet})" if many else m.policy,
            *(text(round(n, 1)) for n in (m.gained, m.lost, m.earlier, m.later)),
            "-" if m.later_by_s is None else f"{m.later_by_s:,.1f} s",
        ]
        for m in comparison.calls
    ]
    title = f"Which calls, beside {comparison.baseline}: delivered or not, and of those delivered under both"
    return grid(["policy", "gained", "lost", "earlier", "later", "later by (median)"], rows, title)


def comparison_markdown(comparison: Comparison) -> str:
    """The same as Markdown."""
    every = [c for columns in TABLES.values() for c in columns]
    rows = table_rows(comparison, every)
    heads = ["policy", *map(label, every)]
    table = pa.table({head: [row[k] for row in rows] for k, head in enumerate(heads)})
    lines = [f"- Caution: {line}." for line in comparison.cautions] + [f"- {s}" for s in sentences(comparison)]
    return "\n".join([*lines, "", render(table, "markdown"), "", f"Figures, {less(comparison)} {LEGEND}"])


def less(comparison: Comparison) -> str:
    """What is subtracted, as the title of a table ends."""
    return f"less that {'with' if comparison.of == 'policies' else 'in'} {comparison.baseline}"


def label(column: str) -> str:
    """A figure's name for people."""
    return BY_COLUMN[column].label


def table_rows(comparison: Comparison, columns: Sequence[str]) -> list[list[str]]:
    """A row for each policy, a cell for each figure."""
    return [
        [name, *(cell(rows[c], BY_COLUMN[c]) if c in rows else "-" for c in columns)]
        for name, rows in policies(comparison)
    ]


def cell(d: Difference, figure: Figure) -> str:
    """A difference with its interval; where a latency is infinite, what it was and what it is."""
    if d.difference is None:
        if d.value is None and d.baseline_value is None:
            return "never → never"
        return " → ".join("never" if x is None else f"{x:,.1f}" for x in (d.baseline_value, d.value))
    shown = signed(d.difference, figure)
    if d.low is None or d.high is None:
        return shown
    low, high = signed(d.low, figure), signed(d.high, figure)
    return shown if low == high else f"{shown} [{low} to {high}]"


def signed(value: float, figure: Figure) -> str:
    """A difference with its sign; nought has none."""
    scale, digits = {"share": (100, 1), "seconds": (1, 1), "count": (1, 0)}[figure.kind]
    shown = f"{scale * value:+,.{digits}f}"
    return shown[1:] if not shown.strip("+-0.,") else shown
