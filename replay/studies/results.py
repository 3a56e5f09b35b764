"""From the runs of a study to its tables: a query on each, means with bootstrap intervals, and SQL over all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from queries import run_query
from queries.studies import ask
from replay.files import write_whole
from replay.machine import available_cpus
from replay.report.compare import interval
from replay.report.tables import render
from replay.studies.scenarios import Scenario, facets_table

Tables = dict[str, pa.Table]


def gathered(root: Path, scenarios: Sequence[Scenario], query: str, on_progress: Callable[[float], None]) -> pa.Table:
    """The rows of a named query on every run of a study, with the column `scenario`."""
    with ThreadPoolExecutor(available_cpus()) as pool:
        asked = pool.map(lambda scenario: run_query(str(root / scenario.run), query), scenarios)
        found = []
        for scenario, rows in zip(scenarios, asked, strict=True):
            found.append(rows.append_column("scenario", pa.array([scenario.name] * rows.num_rows, pa.string())))
            on_progress(len(found) / len(scenarios))
    return pa.concat_tables(found)


def over_seeds(values: pa.Table) -> pa.Table:
    """`scenario, policy, figure, value` of each seed as means with their bootstrap intervals.

    A mean is null where a value is infinite; so is the interval, and that of one seed alone.
    """
    groups: dict[tuple[str, str, str], list[float]] = {}
    for row in values.to_pylist():
        if row["value"] is not None:
            groups.setdefault((row["scenario"], row["policy"], row["figure"]), []).append(float(row["value"]))
    rows = []
    for (scenario, policy, figure), found in groups.items():
        finite = all(map(math.isfinite, found))
        low, high = interval(found) if finite else (None, None)
        mean = math.fsum(found) / len(found) if finite else None
        rows.append((scenario, policy, figure, len(found), mean, low, high))
    names = ("scenario", "policy", "figure", "seeds", "mean", "low", "high")
    kinds = (pa.string(), pa.string(), pa.string(), pa.int32(), pa.float64(), pa.float64(), pa.float64())
    columns = zip(*rows, strict=True)
    return pa.table({n: pa.array(c, k) for n, k, c in zip(names, kinds, columns, strict=True)})


def basis(scenarios: Sequence[Scenario], replays: pa.Table, policies: Sequence[str], figures: str) -> Tables:
    """The tables that the SQL of a study begins with."""
    tables = {
        "scenarios": facets_table(scenarios),
        "policies": pa.table({"policy": list(policies), "position": pa.array(range(len(policies)), pa.int32())}),
        "replays": replays,
    }
    tables["figures"] = over_seeds(ask(figures, tables))
    return tables


def write_results(root: Path, tables: Mapping[str, pa.Table], names: Iterable[str]) -> list[Path]:
    """Tables as CSV files of `results/`, each whole or not at all; their paths. Raises BadConfig."""
    place = root / "results"
    place.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in names:
        path = place / f"{name}.csv"
        write_whole(path, f"{render(tables[name], 'csv')}\n".encode())
        paths.append(path)
    return paths
