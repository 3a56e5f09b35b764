"""Runs a study: its scenarios as runs side by side, then its tables, plots and verdicts."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from replay.errors import BadConfig
from replay.files import write_whole
from replay.report.tables import WIDTH
from replay.report.titled import Titled
from replay.runner.cells import Executor
from replay.runner.execution import execute_all
from replay.runner.store import Store
from replay.studies import cancellation, cancellation_plots, overload, overload_plots
from replay.studies.results import Tables, write_results
from replay.studies.scenarios import Scenario, facets_table, plans_of

ABOUT = "study.json"
Report = Callable[[float], None]


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two studies."""

    scenarios: Callable[[Path, bool], list[Scenario]]
    """From the study's directory, and whether it is to be quick."""
    seeds: int
    quick_seeds: int
    tables: Callable[[Path, list[Scenario], Report], Tables]
    plots: Callable[[Mapping[str, pa.Table]], Iterable[Titled]]
    results: tuple[str, ...]
    """Tables that are written as CSV."""
    verdicts: str
    """The table that is printed: what was said, what was found, and whether that holds."""


STUDIES: Mapping[str, Study] = {
    "cancellation": Study(
        scenarios=cancellation.scenarios,
        seeds=cancellation.SEEDS,
        quick_seeds=cancellation.QUICK_SEEDS,
        tables=cancellation.tables_of,
        plots=cancellation_plots.plots,
        results=("summary", "decision_map", "effect_isolation", "cancel_rate_sweep", "laws", "advice"),
        verdicts="verdicts",
    ),
    "overload": Study(
        scenarios=overload.scenarios,
        seeds=overload.SEEDS,
        quick_seeds=overload.QUICK_SEEDS,
        tables=overload.tables_of,
        plots=overload_plots.plots,
        results=("claims", "map", "turning_points", "sweeps"),
        verdicts="claims",
    ),
}


class About(msgspec.Struct, frozen=True):
    """What a study's directory says of itself."""

    study: str
    quick: bool
    seeds: int


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A study that knows its directory and its scenarios."""

    about: About
    root: Path
    scenarios: list[Scenario]

    @property
    def study(self) -> Study:
        return STUDIES[self.about.study]


def prepare(name: str, store: Store, quick: bool, seeds: int | None = None) -> Prepared:
    """The study called `name` in a directory that is new, or holds the same study broken off.

    Measures what the engines can do. Raises BadConfig when the directory holds anything else.
    """
    study = STUDIES[name]
    about = About(name, quick, seeds or (study.quick_seeds if quick else study.seeds))
    store.create()
    content = store.read(ABOUT)
    if content is None and any(store.root.iterdir()):
        raise BadConfig(f"{store.root}: holds files that are not a study's; name another directory")
    if content is not None and content != encoded(about):
        raise BadConfig(f"{store.root}: holds {described(content)}; name another directory, or remove it")
    store.write(ABOUT, encoded(about))
    scenarios = study.scenarios(store.root, quick)
    store.write_table("scenarios.parquet", facets_table(scenarios))
    return Prepared(about=about, root=store.root, scenarios=scenarios)


def described(content: bytes) -> str:
    """The command whose study a directory holds."""
    try:
        held = msgspec.json.decode(content, type=About)
    except msgspec.DecodeError:
        return f"a {ABOUT} that is none of a study"
    return f"replay study {held.study}{' --quick' if held.quick else ''} --seeds {held.seeds}"


def encoded(about: About) -> bytes:
    """The content of the file."""
    return msgspec.json.format(msgspec.json.encode(about), indent=1)


def run(prepared: Prepared, store: Store, executor: Executor, on_progress: Report) -> None:
    """Run what is missing of all scenarios. Raises as `execute`."""
    execute_all(plans_of(prepared.scenarios, prepared.about.seeds), store, executor, on_progress)


def conclude(prepared: Prepared, on_progress: Report) -> Tables:
    """Ask the runs, write `results/` and `plots/`; all tables. Raises BadConfig and BadInput."""
    study, root = prepared.study, prepared.root
    tables = study.tables(root, prepared.scenarios, lambda share: on_progress(0.7 * share))
    write_results(root, tables, study.results)
    drawn(root, study, tables)
    return tables


def drawn(root: Path, study: Study, tables: Tables) -> None:
    """The plots of a study, as PNG files."""
    from replay.report.plots_titled import titled_png  # matplotlib takes half a second to import

    place = root / "plots"
    place.mkdir(exist_ok=True)
    for titled in study.plots(tables):
        write_whole(place / f"{titled.name}.png", titled_png(titled))


def verdicts(prepared: Prepared, tables: Tables) -> list[dict[str, Any]]:
    """What the study was to find out: `claim, said, found, verdict, where_it_holds`."""
    rows: list[dict[str, Any]] = tables[prepared.study.verdicts].to_pylist()
    return rows


def in_words(rows: Iterable[Mapping[str, Any]]) -> str:
    """Verdicts for people: the claim, what was said, what was found, where it holds."""
    parts = []
    for row in rows:
        parts.append(f"{row['verdict'].upper():20}{row['claim']}")
        lines = [f"said: {row['said']}", f"found: {row['found']}"]
        if row["where_it_holds"]:
            lines.append(f"holds at: {row['where_it_holds']}")
        parts += [textwrap.fill(line, WIDTH, initial_indent=" " * 20, subsequent_indent=" " * 22) for line in lines]
    return "\n".join(parts)
