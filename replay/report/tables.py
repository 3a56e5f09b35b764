"""Tables for people and programs: one renderer for query results, and the report of a run."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from queries import run_query

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("table", "csv", "json", "markdown")
WIDTH = 100
"""Columns of a page, where the terminal does not say."""
GROUP = ("profile", "fleet")
"""Columns that people need not see where all rows agree."""
Row = Sequence[str]


def render(table: pa.Table, format: str = "table") -> str:
    """A query's result as text: table, csv, json or markdown."""
    names = distinct(table.column_names)
    rows = [list(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
    if format == "json":
        return json.dumps([dict(zip(names, map(plain, row), strict=True)) for row in rows], indent=1)
    if format == "csv":
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        writer.writerows([names, *rows])
        return sink.getvalue().rstrip("\n")
    names, rows = without_constant(names, rows)
    texts = [[text(value) for value in row] for row in rows]
    if format == "markdown":
        lines = [names, ["---"] * len(names), *texts]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    turned = [list(column) for column in zip(names, *texts, strict=True)]
    page = shutil.get_terminal_size((WIDTH, 0)).columns
    if rows and width(names, texts) > max(page, width(turned[0], turned[1:])):
        return grid(turned[0], turned[1:])
    return grid(names, texts)


def without_constant(names: list[str], rows: list[list[Any]]) -> tuple[list[str], list[list[Any]]]:
    """The table without the columns of GROUP in which all rows agree."""
    kept = [k for k, name in enumerate(names) if name not in GROUP or len({row[k] for row in rows}) > 1]
    return [names[k] for k in kept], [[row[k] for k in kept] for row in rows]


def width(names: Sequence[str], rows: Sequence[Row]) -> int:
    """Characters that a grid takes."""
    return sum(max(len(row[k]) for row in (names, *rows)) + 3 for k in range(len(names)))


def distinct(names: Sequence[str]) -> list[str]:
    """Names of columns, the second `end_s` of a join being `end_s_2`."""
    return [f"{name}_{n}" if (n := names[: k + 1].count(name)) > 1 else name for k, name in enumerate(names)]


def plain(value: Any) -> Any:
    """A value that JSON has: infinity and NaN become null, what it has no word for becomes text."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def text(value: Any) -> str:
    """A value in few characters."""
    if value is None:
        return "-"
    if isinstance(value, (Decimal, list, Mapping)):
        value = plain(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return "never" if value > 0 else str(value)
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return " ".join(str(value).split("\n"))


def grid(names: Sequence[str], rows: Iterable[Row], title: str = "") -> str:
    """Aligned columns: words to the left, figures to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    rows = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for k, name in enumerate(names):
        words = not any(row[k].lstrip("-")[:1].isdigit() or row[k] in ("-", "never") for row in rows)
        table.add_column(name, justify="left" if words else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    sink = io.StringIO()
    page = width(names, rows) + 2
    console = Console(file=sink, width=page, color_system=None, markup=False, highlight=False)
    console.print(table)
    lines = [title] if title else []
    return "\n".join([*lines, *(line.rstrip() for line in sink.getvalue().strip("\n").splitlines())]).strip("\n")


REPORTED = ("summary", "self_replay", "delivered_by_phase", "wasted_compute", "counter_gap", "recovery")
"""The queries behind `report`."""
Rows = list[dict[str, Any]]
Answers = dict[str, Rows]
"""The rows of each query of REPORTED."""


def answers(run: str) -> Answers:
    """Ask a run all that is reported, with each policy named so that no two rows are taken for the same."""
    found: Answers = {name: run_query(run, name).to_pylist() for name in REPORTED}
    groups = {(r["profile"], r["fleet"]) for r in found["summary"]}
    for row in (row for rows in found.values() for row in rows):
        group = f"{row['profile']}, {row['fleet']}" if len(groups) > 1 else ""
        row["group"] = group
        row["label"] = f"{row.get('policy', row.get('figure'))}" + (f" ({group})" if group else "")
    return found


def report(run: str) -> str:
    """The answer that a run gives: who was served, what the GPU's time went into, what the counter hid, recovery."""
    found, own = answers(run), run_policy(run)
    parts = [
        paragraphs([*unfinished(run), *verdict(found, own)]),
        self_replay(found["self_replay"], own),
        delivered(found["delivered_by_phase"]),
        gpu_time(found["wasted_compute"]),
        counter(found["counter_gap"]),
        recovery(found["recovery"]),
    ]
    return "\n\n".join(part for part in parts if part)


def report_data(run: str) -> dict[str, Any]:
    """The same for a program: the verdict, and the result of each query behind the report."""
    tables = {name: json.loads(render(run_query(run, name), "json")) for name in REPORTED}
    return {"verdict": [*unfinished(run), *verdict(answers(run), run_policy(run))], **tables}


def unfinished(run: str) -> list[str]:
    """That replays are missing, where some are: their policies have fewer seeds, or no row at all."""
    from queries import run_sql

    (row,) = run_sql(
        run,
        "SELECT seeds * (SELECT count(*) FROM policies) AS planned, "
        "(SELECT count(DISTINCT (policy, profile, fleet, seed)) FROM replicas) AS done FROM run",
    ).to_pylist()
    if row["done"] >= row["planned"]:
        return []
    return [
        f"The run is not finished: {row['done']:,} of {row['planned']:,} replays are in; run it again for the rest."
    ]


def paragraphs(sentences: Iterable[str]) -> str:
    """Each sentence wrapped to the width of a page."""
    return "\n".join(textwrap.fill(sentence, WIDTH, subsequent_indent="  ") for sentence in sentences)


SAME = 0.005
"""Rates closer than this are called equal."""
AGREES = 0.05
"""A replay of the log's own policy that is farther off a rate than this is pointed out."""


def verdict(found: Answers, own: str | None) -> list[str]:
    """What a run comes to, in a few sentences; for each profile and fleet in it."""
    sentences = []
    for group in dict.fromkeys(r["group"] for r in found["summary"]):
        mine = {name: [r for r in rows if r["group"] == group] for name, rows in found.items()}
        said = [served(mine["summary"], own), came_back(mine["recovery"]), wasted(mine["wasted_compute"], own)]
        said += [doubt(mine["self_replay"], own), cut(mine["summary"])]
        sentences += [f"{group}: {s}" if group else s for s in said if s]
    return sentences


def served(rows: Rows, own: str | None) -> str:
    """Which policies deliver most, beside the log's own."""
    rates = {r["policy"]: r["delivered_call_rate"] for r in rows if r["delivered_call_rate"] is not None}
    if not rates:
        return ""
    top = max(rates.values())
    best = [policy for policy, rate in rates.items() if rate >= top - SAME]
    if len(best) == len(rates) > 1:
        return f"Every policy delivers as many calls: {percent(top)}."
    beside = ""
    if own in rates:
        beside = f" ({own} is the log's own)" if own in best else f"; {own}, the log's own, {percent(rates[own])}"
    return f"{listed(best)} {'delivers' if len(best) == 1 else 'deliver'} most calls: {percent(top)}{beside}."


def came_back(rows: Rows) -> str:
    """Which policies are on time again after the overload."""
    seen = [r for r in rows if r["recovered_share"] is not None]
    if not seen:
        return f"Recovery cannot be told: {too_little(rows)}." if rows else ""
    always = [r["policy"] for r in seen if r["recovered_share"] == 1]
    never = [r["policy"] for r in seen if r["recovered_share"] == 0]
    some = [f"{r['policy']} ({percent(r['recovered_share'])} of seeds)" for r in seen if 0 < r["recovered_share"] < 1]
    parts = [f"with {listed(always)}"] if always else []
    parts += [f"sometimes with {listed(some)}"] if some else []
    parts += [f"not with {listed(never)}"] if never else []
    return f"After the overload, service recovers {', '.join(parts)}."


def too_little(rows: Rows) -> str:
    """Why recovery has no answer."""
    after = f"{rows[0]['observed_calls']:,} calls in the {rows[0]['observed_s']:.0f} s after the overload"
    return f"no call came before the overload, or {after} are too few"


def wasted(rows: Rows, own: str | None) -> str:
    """What the log's own policy wasted, and what for; what all policies did where the log's own is not known."""
    rows = [r for r in rows if r["wasted_compute_frac"] is not None]
    mine = next((r for r in rows if r["policy"] == own), None)
    if mine is not None:
        waste = {c: mine[f"{c}_gpu_s"] for c in CAUSES}
        total, most = sum(waste.values()), max(waste, key=lambda c: waste[c])
        because = f", most of it {CAUSES[most]}" if total > 0 else ""
        share, busy = percent(mine["wasted_compute_frac"]), mine["busy_gpu_s"]
        return f"{own} wasted {share} of its GPU time ({total:,.0f} of {busy:,.0f} s){because}."
    if not rows:
        return ""
    low = min(rows, key=lambda r: r["wasted_compute_frac"])
    high = max(rows, key=lambda r: r["wasted_compute_frac"])
    if high["wasted_compute_frac"] - low["wasted_compute_frac"] < SAME:
        return f"Every policy wastes {percent(high['wasted_compute_frac'])} of its GPU time."
    return (
        f"{low['policy']} wastes least GPU time, {percent(low['wasted_compute_frac'])}; "
        f"{high['policy']} most, {percent(high['wasted_compute_frac'])}."
    )


CAUSES = {
    "abandoned": "on requests whose client gave up",
    "post_cancel": "on requests that nobody was waiting for any more",
    "duplicate": "on responses that another request had delivered",
    "recompute": "on tokens computed again after preemptions",
    "poll": "on checks whether clients were still there",
    "held_slot": "on batch slots kept after an abort",
}
"""Causes of waste, as a sentence ends."""


def doubt(rows: Rows, own: str | None) -> str:
    """Where the replay of the log's own policy is farthest off the log; empty where it is near."""
    rates = [r for r in rows if r["figure"].startswith("delivered")]
    off = [
        r for r in rates if abs(r["predicted"] - r["observed"]) > AGREES and not r["low"] <= r["observed"] <= r["high"]
    ]
    if not off:
        return ""
    worst = max(off, key=lambda r: abs(r["predicted"] - r["observed"]))
    return (
        f"Caution: replayed as {own}, {worst['figure']} is {worst['predicted']:.3f} where the log has "
        f"{worst['observed']:.3f}; trust no smaller difference between policies."
    )


def cut(rows: Rows) -> str:
    """How many calls had not ended when the run was cut."""
    most = max(rows, key=lambda r: r["unresolved"], default=None)
    if most is None or most["unresolved"] == 0:
        return ""
    return (
        f"The run was cut: up to {most['unresolved']:,.0f} calls ({most['policy']}) had not ended, and count as lost."
    )


def percent(share: float) -> str:
    """A share in percent, which is 0 or 100 only where it is all or nothing."""
    whole = f"{share:.0%}"
    return f"{share:.1%}" if whole in ("0%", "100%") and 0 < share < 1 else whole


def listed(names: Sequence[str]) -> str:
    """Names as in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def spread(mean: float | None, low: float | None, high: float | None, digits: int = 3) -> str:
    """A mean with its range over seeds, which is left out where all seeds agree."""
    if mean is None or low is None or high is None:
        return "-"
    if f"{low:.{digits}f}" == f"{high:.{digits}f}":
        return f"{mean:,.{digits}f}"
    return f"{mean:,.{digits}f} [{low:,.{digits}f} to {high:,.{digits}f}]"


def self_replay(rows: Rows, own: str | None) -> str:
    """Predicted against observed for the log's own policy; empty when the run was not told which that is."""
    if not rows:
        return ""
    cells = []
    for r in rows:
        name = r["figure"]
        digits = 3 if name.startswith("delivered") else 0 if name == "attempts" else 1
        predicted = spread(r["predicted"], r["low"], r["high"], digits)
        cells.append([r["label"], f"{r['observed']:,.{digits}f}", predicted])
    title = "The log's own policy: observed, and predicted as mean [range over seeds]"
    return grid(["figure", "in the log", f"replayed as {own}"], cells, title)


def run_policy(run: str) -> str | None:
    """The policy that the log was recorded under, where the run was told."""
    from queries import run_sql

    name: str | None = run_sql(run, "SELECT as_logged FROM run")["as_logged"][0].as_py()
    return name


def delivered(rows: Rows) -> str:
    """Delivered calls by policy and phase."""
    phases = list(dict.fromkeys(r["phase"] for r in rows))
    cells = {}
    for r in rows:
        rate = spread(r["delivered_call_rate"], r["delivered_call_rate_low"], r["delivered_call_rate_high"])
        cells[r["label"], r["phase"]] = rate
    labels = list(dict.fromkeys(r["label"] for r in rows))
    lines = [[p, *(cells.get((p, phase), "-") for phase in phases)] for p in labels]
    counts = {r["phase"]: r["calls"] for r in rows}
    heads = [f"{phase} ({counts[phase]:,} calls)" for phase in phases]
    title = "Delivered calls, as a share of those that arrived in each phase: mean [range over seeds]"
    return grid(["policy", *heads], lines, title)


def gpu_time(rows: Rows) -> str:
    """GPU time by policy and purpose; causes of waste that no policy has are left out."""
    causes = [c for c in (*CAUSES, "unresolved") if any(r[f"{c}_gpu_s"] >= 0.05 for r in rows)]
    if any(r["salvaged_gpu_s"] >= 0.05 for r in rows):
        causes.insert(causes.index("abandoned") + 1, "abandoned_net")
    lines = [
        [
            r["label"],
            *(f"{r[f'{c}_gpu_s']:,.1f}" for c in ("busy", "useful", *causes)),
            spread(r["wasted_compute_frac"], r["wasted_compute_frac_low"], r["wasted_compute_frac_high"], 2),
        ]
        for r in rows
    ]
    names = ["(net of reuse)" if c == "abandoned_net" else c.replace("_", " ") for c in causes]
    heads = ["policy", "busy", "useful", *names, "wasted share"]
    return grid(heads, lines, "GPU time in seconds: useful, and wasted by cause")


def counter(rows: Rows) -> str:
    """The engine's prompt-token counter against the truth."""
    lines = [
        [
            r["label"],
            text(r["computed_prompt_tokens"]),
            text(r["counter_prompt_tokens"]),
            f"{r['counter_shortfall']:.0%}" if r["counter_shortfall"] is not None else "-",
            f"{r['prefill_progress_at_abort']:.0%}" if r["prefill_progress_at_abort"] is not None else "-",
        ]
        for r in rows
    ]
    heads = ["policy", "computed", "counter shows", "work it missed", "prompt done at abort"]
    return grid(heads, lines, "Prompt tokens: computed, and what the engine's counter shows (cached ones included)")


def recovery(rows: Rows) -> str:
    """Whether and when service came back; empty when the run has no overload."""
    if not rows:
        return ""
    lines = [
        [
            r["label"],
            "cannot be told" if r["recovered_share"] is None else f"{r['recovered_share']:.0%} of seeds",
            "never seen" if r["recovery_time_s"] is None else f"{r['recovery_time_s']:.1f} s",
            f"{r['delivered_call_rate']:.3f}",
        ]
        for r in rows
    ]
    title = f"Recovery: on time again as before the overload; observed for {rows[0]['observed_s']:.0f} s after its end"
    return grid(["policy", "recovered", "after (median)", "delivered since it began, however late"], lines, title)
