"""The report of a run: its verdict, and a table for each question."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from queries import run_query, run_sql
from replay.censoring import Drawn, in_words
from replay.report.tables import grid, render, text
from replay.report.verdict import CAUSES, Answers, Rows, verdict
from replay.report.words import paragraphs, spread

if TYPE_CHECKING:
    import pyarrow as pa

REPORTED = (
    "summary",
    "self_replay",
    "delivered_by_phase",
    "share_of_possible",
    "wasted_compute",
    "counter_gap",
    "recovery",
)
"""The queries behind `report`."""


def ask(run: str) -> dict[str, pa.Table]:
    """The result of each query behind a report."""
    return {name: run_query(run, name) for name in REPORTED}


def labelled(tables: Mapping[str, pa.Table]) -> Answers:
    """The rows of each table, with each policy named so that no two are taken for the same."""
    found: Answers = {name: table.to_pylist() for name, table in tables.items()}
    groups = {(r["profile"], r["fleet"]) for r in found["summary"]}
    for row in (row for rows in found.values() for row in rows):
        group = f"{row['profile']}, {row['fleet']}" if len(groups) > 1 else ""
        row["group"] = group
        row["label"] = f"{row.get('policy', row.get('figure'))}" + (f" ({group})" if group else "")
    return found


def report(run: str) -> str:
    """The answer that a run gives: who was served, what the GPU's time went into, what the counter hid, recovery."""
    found, own = labelled(ask(run)), run_policy(run)
    parts = [
        paragraphs([*unfinished(run), *verdict(found, own), *cut_short(run)]),
        self_replay(found["self_replay"], own),
        delivered(found["delivered_by_phase"]),
        beside_the_possible(found["share_of_possible"]),
        gpu_time(found["wasted_compute"]),
        counter(found["counter_gap"]),
        recovery(found["recovery"]),
    ]
    return "\n\n".join(part for part in parts if part)


def report_data(run: str) -> dict[str, Any]:
    """The same for a program: the verdict, and the result of each query behind the report."""
    tables = ask(run)
    sentences = [*unfinished(run), *verdict(labelled(tables), run_policy(run))]
    rows = {name: json.loads(render(table, "json")) for name, table in tables.items()}
    return {"verdict": sentences, "drawn": msgspec.to_builtins(drawn_for(run)), **rows}


def unfinished(run: str) -> list[str]:
    """That replays are missing, where some are: their policies have fewer seeds, or no row at all."""
    (row,) = run_sql(
        run,
        "SELECT replays AS planned, (SELECT count(*) FROM glob(place('replicas/**/*.parquet'))) AS done FROM run",
    ).to_pylist()
    if row["done"] >= row["planned"]:
        return []
    return [
        f"The run is not finished: {row['done']:,} of {row['planned']:,} replays are in; run it again for the rest."
    ]


def drawn_for(run: str) -> Drawn:
    """What the log cut short, and the run filled in."""
    (row,) = run_sql(run, "SELECT * FROM run").to_pylist()
    return Drawn(**{name: row.get(f"drawn_{name}", 0) for name in Drawn.__struct_fields__})


def cut_short(run: str) -> list[str]:
    """The same in sentences; none where nothing was."""
    return [f"{said[0].upper()}{said[1:]}." for said in in_words(drawn_for(run))]


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
    return grid(["policy", *heads], lines, title) + too_long(rows)


def too_long(rows: Rows) -> str:
    """How many calls can never run; empty where all can."""
    most: dict[str, int] = {}
    for r in rows:
        most[r["phase"]] = max(most.get(r["phase"], 0), r["too_long"])
    count = sum(most.values())
    if count == 0:
        return ""
    return f"\n{count:,} calls do not fit the model or the KV pool: they are rejected, and not counted"


def beside_the_possible(rows: Rows) -> str:
    """What each policy delivers of what any policy could."""
    lines = [
        [
            r["label"],
            text(round(r["delivered"], 1)),
            text(r["possible_delivered"]),
            spread(r["share_delivered"], r["share_delivered_low"], r["share_delivered_high"]),
            text(round(r["on_time"], 1)),
            text(r["possible_on_time"]),
            spread(r["share_on_time"], r["share_on_time_low"], r["share_on_time_high"]),
        ]
        for r in rows
        if r["phase"] is None
    ]
    if not lines:
        return ""
    heads = ["policy", "delivered", "possible", "share", "on time", "possible", "share"]
    return grid(
        heads, lines, "Beside the best that was possible: no policy with clients as patient delivers more calls"
    )


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
