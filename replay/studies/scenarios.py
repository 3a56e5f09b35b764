"""A scenario: traffic, engine and policies of one run of a study, and what it stands for. From scenarios to plans."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from replay.config import layered, log_settings
from replay.ingest import Trace, made_trace
from replay.runner.partitions import Parted, Partition
from replay.runner.plan import Plan, make_plan

Facet = str | float | bool | None


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a study."""

    name: str
    facets: Mapping[str, Facet]
    """What it stands for: the columns by which results are told apart, the same for all scenarios of a study."""
    workload: str
    traffic: Mapping[str, Any]
    """Options of the workload that differ from its own; each seed has traffic of its own."""
    settings: Mapping[str, Any]
    """Those of an experiment file."""

    @property
    def run(self) -> str:
        """Its run directory, below that of the study."""
        return f"scenario={self.name}"

    def trace(self, seed: int) -> Trace:
        """Its traffic under a seed."""
        return made_trace(f"synthetic:{self.workload}", {**self.traffic, "seed": seed})


def plans_of(scenarios: Sequence[Scenario], seeds: int) -> dict[str, Plan]:
    """The plan of each scenario by its run; all have one list of calls, in which every scenario and seed has its place.

    Raises BadConfig.
    """
    calls: list[pa.Table] = []
    return {scenario.run: plan_of(scenario, seeds, calls) for scenario in scenarios}


def plan_of(scenario: Scenario, seeds: int, calls: list[pa.Table]) -> Plan:
    """The plan of one scenario, whose traffic is appended to `calls`."""
    first = len(calls)
    traces = [scenario.trace(seed) for seed in range(seeds)]
    about = traces[0].about
    experiment, sources = layered(
        [
            ("workload", log_settings(about.client, about.added)),
            ("study", {**scenario.settings, "seeds": seeds, "uncensor": "none"}),
        ]
    )
    together = Trace(in_one([trace.calls for trace in traces]), about)
    plan = make_plan(experiment, sources, together)
    calls += [spoken_of(trace.calls) for trace in traces]
    parts = [
        Partition(index=first + seed, name=f"seed {seed}", calls=trace.calls.num_rows)
        for seed, trace in enumerate(traces)
    ]
    cells = [msgspec.structs.replace(cell, partition=first + cell.seed, run=scenario.run) for cell in plan.cells]
    return dataclasses.replace(plan, parts=Parted(parts, calls), cells=cells)


def in_one(tables: Sequence[pa.Table]) -> pa.Table:
    """The calls of all seeds as one table, in which no two have one number or one content."""
    moved, before = [], 0
    for table in tables:
        for name in ("call_id", "content_id"):
            place = table.column_names.index(name)
            table = table.set_column(place, table.schema.field(name), pc.add(table[name], before))
        moved.append(table)
        before += table.num_rows
    return pa.concat_tables(moved)


def spoken_of(calls: pa.Table) -> pa.Table:
    """The columns in which a table of calls says anything: hundreds of them lie in memory at once."""
    return calls.select([name for name in calls.column_names if calls[name].null_count < calls.num_rows])


def facets_table(scenarios: Sequence[Scenario]) -> pa.Table:
    """A row for each scenario: its name, its place, and what it stands for."""
    rows = [{"scenario": one.name, "position": place, **one.facets} for place, one in enumerate(scenarios)]
    return pa.Table.from_pylist(rows)
