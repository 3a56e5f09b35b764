"""Tables for people and programs: one renderer for query results, and the report of a run."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from queries import run_query

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("table", "csv", "json", "markdown")
WIDTH = 110
Row = Sequence[str]


def render(table: pa.Table, format: str = "table") -> str:
    """A query's result as text: table, csv, json or markdown."""
    names, rows = table.column_names, [list(row.values()) for row in table.to_pylist()]
    if format == "json":
        return json.dumps([dict(zip(names, map(plain, row), strict=True)) for row in rows], indent=1)
    if format == "csv":
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        writer.writerows([names, *rows])
        return sink.getvalue().rstrip("\n")
    texts = [[text(value) for value in row] for row in rows]
    if format == "markdown":
        lines = [names, ["---"] * len(names), *texts]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return grid(names, texts)


def plain(value: Any) -> Any:
    """A value that JSON has: infinity and NaN become null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def text(value: Any) -> str:
    """A value in few characters."""
    if value is None:
        return "-"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "never" if value > 0 else str(value)
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def grid(names: Sequence[str], rows: Iterable[Row], title: str = "") -> str:
    """Aligned columns: words to the left, figures to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    rows = [list(row) for row in rows]
    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, title_style="bold")
    for k, name in enumerate(names):
        words = all(not row[k][:1].isdigit() and row[k] not in ("-", "never") for row in rows)
        table.add_column(name, justify="left" if words and k == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    sink = io.StringIO()
    widths = (
        [max(len(n), *(len(r[k]) for r in rows), 0) for k, n in enumerate(names)] if rows else [len(n) for n in names]
    )
    console = Console(
        file=sink, width=max(WIDTH, sum(widths) + 3 * len(widths) + 2), color_system=None, markup=False, highlight=False
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in sink.getvalue().strip("\n").splitlines())


REPORTED = ("self_replay", "delivered_by_phase", "wasted_compute", "counter_gap", "recovery")
"""The queries behind `report`."""


def report(run: str) -> str:
    """The answer that a run gives: who was served, what the GPU's time went into, what the counter hid, recovery."""
    sections: list[Callable[[str], str]] = [self_replay, delivered, gpu_time, counter, recovery]
    return "\n\n".join(part for part in (section(run) for section in sections) if part)


def report_data(run: str) -> dict[str, Any]:
    """The same for a program: the result of each query behind the report."""
    return {name: json.loads(render(run_query(run, name), "json")) for name in REPORTED}


def spread(mean: float | None, low: float | None, high: float | None, digits: int = 3) -> str:
    """A mean with its range over seeds, which is left out where all seeds agree."""
    if mean is None or low is None or high is None:
        return "-"
    if f"{low:.{digits}f}" == f"{high:.{digits}f}":
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} [{low:.{digits}f}-{high:.{digits}f}]"


def self_replay(run: str) -> str:
    """Predicted against observed for the log's own policy; empty when the run was not told which that is."""
    rows = run_query(run, "self_replay").to_pylist()
    if not rows:
        return ""
    own = run_policy(run)
    cells = []
    for r in rows:
        digits = 3 if r["figure"].startswith("delivered") else 1
        predicted = spread(r["predicted"], r["low"], r["high"], digits)
        cells.append([r["figure"], f"{r['observed']:.{digits}f}", predicted])
    return grid(["", "in the log", f"replayed as {own}"], cells, "The log's own policy: observed and predicted")


def run_policy(run: str) -> str:
    """The policy that the log was recorded under."""
    from queries import run_sql

    return str(run_sql(run, "SELECT as_logged FROM run")["as_logged"][0].as_py())


def delivered(run: str) -> str:
    """Delivered calls by policy and phase."""
    rows = run_query(run, "delivered_by_phase").to_pylist()
    phases = list(dict.fromkeys(r["phase"] for r in rows))
    cells = {}
    for r in rows:
        rate = spread(r["delivered_call_rate"], r["delivered_call_rate_low"], r["delivered_call_rate_high"])
        cells[r["policy"], r["phase"]] = rate
    policies = list(dict.fromkeys(r["policy"] for r in rows))
    lines = [[p, *(cells.get((p, phase), "-") for phase in phases)] for p in policies]
    counts = {r["phase"]: r["calls"] for r in rows}
    heads = [f"{phase} ({counts[phase]:,} calls)" for phase in phases]
    return grid(["policy", *heads], lines, "Delivered calls, as a share of those that arrived: mean [range over seeds]")


def gpu_time(run: str) -> str:
    """GPU time by policy and purpose; causes of waste that no policy has are left out."""
    rows = run_query(run, "wasted_compute").to_pylist()
    causes = ["abandoned", "post_cancel", "duplicate", "recompute", "poll", "held_slot", "unresolved"]
    causes = [c for c in causes if any(r[f"{c}_gpu_s"] >= 0.05 for r in rows)]
    lines = [
        [
            r["policy"],
            *(f"{r[f'{c}_gpu_s']:.1f}" for c in ("busy", "useful", *causes)),
            f"{r['salvaged_gpu_s']:.1f}",
            spread(r["wasted_compute_frac"], r["wasted_compute_frac_low"], r["wasted_compute_frac_high"], 2),
        ]
        for r in rows
    ]
    heads = ["policy", "busy", "useful", *(c.replace("_", " ") for c in causes), "(salvaged)", "wasted share"]
    return grid(heads, lines, "GPU time in seconds: useful, and wasted by cause")


def counter(run: str) -> str:
    """The engine's prompt-token counter against the truth."""
    lines = [
        [
            r["policy"],
            text(r["computed_prompt_tokens"]),
            text(r["counter_prompt_tokens"]),
            f"{r['counter_shortfall']:.0%}" if r["counter_shortfall"] is not None else "-",
            f"{r['prefill_progress_at_abort']:.0%}" if r["prefill_progress_at_abort"] is not None else "-",
        ]
        for r in run_query(run, "counter_gap").to_pylist()
    ]
    heads = ["policy", "computed", "counter shows", "work it missed", "prompt done at abort"]
    return grid(heads, lines, "Prompt tokens: computed, and what the engine's counter shows (cached ones included)")


def recovery(run: str) -> str:
    """Whether and when service came back; empty when the run has no overload."""
    rows = run_query(run, "recovery").to_pylist()
    lines = [
        [
            r["policy"],
            f"{r['recovered_share']:.0%} of seeds",
            "not seen" if r["recovery_time_s"] is None else f"{r['recovery_time_s']:.1f}",
            f"{r['delivered_call_rate']:.3f}",
        ]
        for r in rows
    ]
    if not lines:
        return ""
    title = f"Recovery: on time again as before the overload, observed for {rows[0]['observed_s']:.0f} s after it"
    return grid(["policy", "recovered", "after s", "delivered since the overload began, however late"], lines, title)
