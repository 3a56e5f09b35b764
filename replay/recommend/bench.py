"""Where policies are tried: a trace, engines and seeds, and the runs that are made of them beneath one directory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from replay.config import Experiment, Sourced
from replay.ingest import Trace
from replay.policies.knobs import Policy
from replay.runner import Store, execute, make_plan
from replay.runner.cells import Cell, Executor, Report
from replay.runner.manifest import BENEATH
from replay.runner.partitions import Parted
from replay.runner.plan import Plan

Progress = Callable[[str], AbstractContextManager[Report]]


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything that stays the same while policies change."""

    experiment: Experiment
    sources: Sourced
    trace: Trace
    root: str
    """The directory of the answer."""
    executor: Callable[[Store], Executor]
    progress: Progress
    own: str
    """The present policy, which is in every run."""

    def plan(self, policies: Sequence[Policy], seeds: int, **settings: Any) -> Plan:
        """The cells of some policies beside the present one, with other settings of the experiment."""
        wanted = [self.own, *(p for p in map(written, policies) if p["name"] != self.own)]
        experiment = replace(self.experiment, policies=wanted, seeds=seeds, thresholds=[], **settings)
        return make_plan(experiment, self.sources, self.trace)

    def run(self, what: str, plan: Plan, place: str | None = None) -> str:
        """Run a plan in `place` beneath the answer's directory, in it if None; returns where."""
        where = self.root if place is None else f"{self.root}/{BENEATH}/{place}"
        store = Store(where)
        with self.progress(f"{what} ({len(plan.cells)} replays)") as told:
            execute(plan, store, self.executor(store), told)
        return where


def written(policy: Policy) -> dict[str, Any]:
    """A policy as an experiment file would have it, every knob said."""
    return dict(msgspec.to_builtins(policy))


def on_traffic(plan: Plan, traffic: Sequence[Sequence[pa.Table]]) -> Plan:
    """A plan in which seed k replays `traffic[k]`, a table for each part of the trace, and waits of its own."""
    parts = len(plan.parts.partitions)
    tables = [table for group in traffic for table in group]
    partitions = [
        replace(part, index=n, name=f"{part.name}, {n // parts}", calls=table.num_rows)
        for n, table in enumerate(tables)
        for part in [plan.parts.partitions[n % parts]]
    ]
    cells = [
        replace(cell, seed=seed, partition=seed * parts + cell.partition)
        for cell in plan.cells
        if cell.seed == 0
        for seed in range(len(traffic))
    ]
    return dataclasses.replace(plan, parts=Parted(partitions, tables), cells=cells)


def with_cells(plan: Plan, cells: Sequence[Cell]) -> Plan:
    """A plan of other cells."""
    return dataclasses.replace(plan, cells=list(cells))
