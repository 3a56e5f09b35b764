"""The report as one HTML page that needs nothing else, and its figures as PNG files beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa

from queries import load, run_query, run_sql, views_sql
from replay.errors import BadConfig
from replay.files import write_whole
from replay.report import figures, headline, thresholds
from replay.report.answer import ask, labelled, run_policy, unfinished
from replay.report.background import assumptions, command, manifest, self_replay, settings
from replay.report.headline import Number
from replay.report.plots import NARROW, WIDE, png, svg
from replay.report.scenes import Found, Scene, recovered, scenes
from replay.report.sections import Figure, Section, Story, sections
from replay.report.tables import plain, text
from replay.report.thresholds import Judgement
from replay.report.verdict import Answers, verdict
from replay.report.words import percent

OVER_TIME = ("delivered_over_time", "queue_over_time", "retries_over_time")
DRAWN = (*OVER_TIME, "survivor_latency", "survivor_latency_curve", "seeds")
"""The queries behind the page, besides those behind the printed report."""


def write_page(run: str, output: str | None = None, judgements: Sequence[Judgement] | None = None) -> Path:
    """Write the report of a run as HTML to `output` (default: report.html in the run), and its figures beside it.

    `judgements` are those of thresholds, by default those that the run ended with. The figures are PNG files in the
    directory `plots` of the run, or `NAME_files` beside a page NAME.html. Equal runs give equal bytes. Returns the
    page's path. Raises BadInput for what is no run, and BadConfig where nothing can be written.
    """
    page = Path(output) if output is not None else Path(run) / "report.html"
    beside = page.with_name(f"{page.stem}_files") if output is not None else Path(run) / "plots"
    html, parts = build(run, thresholds.saved(run) if judgements is None else judgements)
    try:
        beside.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadConfig(f"{beside}: cannot be made: {error.strerror}") from error
    for figure in (figure for part in parts for figure in part.figures):
        write_whole(beside / f"{figure.name}.png", png(figure.chart))
    write_whole(page, html.encode())
    return page


def build(run: str, judged: Sequence[Judgement]) -> tuple[str, list[Section]]:
    """The page's text, and its sections with figures. Raises BadInput."""
    tables = ask(run) | {name: run_query(run, name) for name in DRAWN}
    found = labelled(tables)
    own = run_policy(run)
    all_scenes = scenes(found, own)
    phases = run_sql(run, "SELECT * FROM phases ORDER BY start_s").to_pylist()
    seeds = len({row["seed"] for row in found["seeds"]})
    (about,) = run_sql(run, "SELECT * FROM run").to_pylist()
    parts = sections(Story(found, all_scenes, phases, own, seeds, about["slo_s"]))
    replay_check = self_replay(found["self_replay"], own)
    made = manifest(run)
    words = {
        "headline": next(iter(verdict(found, own)), "No replay has ended yet."),
        "notices": unfinished(run),
        "thresholds": thresholds.lines(judged),
        "breached": any(j.breached for j in judged),
        "scenes": [
            {
                "name": scene.name if len(all_scenes) > 1 else "",
                "sentences": sentences(found, scene, own)[0 if n else 1 :],
                "surety": headline.surety(found, scene, own),
                "cards": headline.cards(found, scene, own),
            }
            for n, scene in enumerate(all_scenes)
        ],
        "how_sure": headline.how_sure(seeds),
        "sections": parts,
        "policies": table_of_policies(found, all_scenes, run, own),
        "own": own,
        "self_replay": replay_check,
        "assumptions": assumptions(run, found, seeds),
        "tables": {name: embedded(table) for name, table in tables.items()},
        "queries": [load(name) for name in sorted(tables)],
        "views": views_sql(),
        "version": made.get("version", "unknown"),
        "trace_sha256": made.get("trace_sha256"),
        "command": command(run),
        "settings": settings(run),
    }
    return rendered(words), parts


def sentences(found: Answers, scene: Scene, own: str | None) -> list[str]:
    """The verdict on one scene."""
    mine = {name: [{**row, "group": ""} for row in scene.rows(rows)] for name, rows in found.items()}
    return verdict(mine, own)


def rendered(words: Mapping[str, Any]) -> str:
    """The template filled in; whatever a run holds is escaped."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def drawn(figure: Figure, width: int) -> Markup:
        return Markup(svg(figure.chart, figure.name, width))  # matplotlib escapes the words that it writes

    environment = Environment(autoescape=True, trim_blocks=True, undefined=StrictUndefined)
    environment.filters |= {"exact": exact, "short": text, "drawn": drawn}
    environment.globals |= {"WIDE": WIDE, "NARROW": NARROW}
    template = (files(__package__) / "page.html.jinja").read_text()
    return environment.from_string(template).render(words) + "\n"


def embedded(table: pa.Table) -> dict[str, Any]:
    """A query's result as the page holds it."""
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return {"columns": table.column_names, "rows": [list(row) for row in rows]}


def exact(value: Any) -> str:
    """A value with every digit, as CSV has it."""
    if value is None:
        return ""
    return str(value) if isinstance(value, float) else str(plain(value))


COLUMNS = (
    ("delivered", "delivered_call_rate", "share"),
    ("on time", "on_time_rate", "share"),
    ("GPU time wasted", "wasted_compute_frac", "share"),
    ("p50", "survivor_p50_s", "seconds"),
    ("p95", "survivor_p95_s", "seconds"),
    ("attempts per call", "retry_amplification", "number"),
    ("counter misses", "counter_shortfall", "share"),
    ("GPU-s per delivered call", "gpu_s_per_delivered_call", "number"),
    ("stranded KV block-s", "stranded_kv_block_s", "number"),
    ("p99", "survivor_p99_s", "seconds"),
    ("undelivered", "undelivered", "number"),
)
"""Columns of the table of policies: head, column of `summary`, kind."""


def table_of_policies(found: Found, all_scenes: Sequence[Scene], run: str, own: str | None) -> dict[str, Any]:
    """Every policy with its headline figures, best first in each scene."""
    about = {r["policy"]: r.get("summary") or "" for r in run_sql(run, "SELECT * FROM policies").to_pylist()}
    recovers = bool(found["recovery"])
    made = []
    for scene in all_scenes:
        came_back = {r["policy"]: recovered(r)[1] for r in scene.rows(found["recovery"])}
        rows = []
        for one in scene.shown:
            for policy in one.policies:
                (row,) = scene.rows(found["summary"], policy)
                cells: list[str | Number] = [figure_of(row, column, kind) for _, column, kind in COLUMNS]
                if recovers:
                    cells.insert(2, came_back.get(policy, ""))
                rows.append(
                    {
                        "name": policy + (" (the log's own)" if policy == own else ""),
                        "words": about.get(policy, ""),
                        "own": policy == own,
                        "best": one is scene.shown[0],
                        "colour": one.colour,
                        "cells": cells,
                    }
                )
        made.append({"name": scene.name if len(all_scenes) > 1 else "", "rows": rows})
    heads = [head for head, _, _ in COLUMNS]
    if recovers:
        heads.insert(2, "recovery")
    return {"columns": ["policy", *heads], "scenes": made}


def figure_of(row: Mapping[str, Any], column: str, kind: str) -> str | Number:
    """A cell of the table of policies; a dash where there is no figure."""
    value = row[column]
    if value is None:
        return "–"
    if kind == "share":
        shown = percent(value)
    elif kind == "seconds":
        shown = figures.wait(value)
    else:
        shown = text(value if not math.isfinite(value) or abs(value) < 100 else round(value))
    return Number(shown, value, "summary", column, row["policy"], row["profile"], row["fleet"])
