"""Runs plans: the cells that their run directories do not hold yet, and the manifests that remember them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import msgspec
import pyarrow as pa

from replay.censoring import Drawn
from replay.engine.kernel import source_digest
from replay.errors import UserError
from replay.runner.about import describe_run
from replay.runner.cells import TABLES, Cell, CellReport, Executor, Limits, Report
from replay.runner.manifest import Manifest, open_manifest
from replay.runner.plan import Plan
from replay.runner.store import Store

MANIFEST_INTERVAL_S = 1.0
"""The manifest is written at most so often: it holds a line for each cell. Cells are whole without it."""


def execute(plan: Plan, store: Store, executor: Executor, on_progress: Report) -> None:
    """Run the cells that the store does not hold yet.

    Raises UserError from the first cell that fails; what was finished before stays finished.
    """
    execute_all({"": plan}, store, executor, on_progress)


def execute_all(plans: Mapping[str, Plan], store: Store, executor: Executor, on_progress: Report) -> None:
    """The same for several runs at once, each in a directory of the store; the cells of each name it as their run.

    The plans agree in their limits, and have one list of calls, which their cells number. What was possible is asked of
    a run alone: for hundreds of seeds it takes longer than their replays. Raises as `execute`.
    """
    store.create()
    opened = {run: open_run(plan, Store(str(store.root / run)), len(plans) == 1) for run, plan in plans.items()}
    todo = [cell for run, plan in plans.items() for cell in opened[run].missing_of(plan)]
    first = next(iter(plans.values()))
    limits = Limits(
        until_s=first.experiment.until_s,
        drain_s=first.experiment.drain_s,
        timeline_interval_s=first.experiment.timeline_interval_s,
    )
    reports = executor.run(todo, first.parts.calls, limits, on_progress)
    try:
        for report in reports:
            opened[report.run].note(report)
            if report.error is not None:
                raise report.error
    finally:
        if isinstance(reports, Generator):
            reports.close()
        with suppress(UserError):  # a full disk takes neither; the first error is the one to tell
            for run in opened.values():
                run.save()


@dataclass(slots=True)
class OpenRun:
    """A run directory at work: its manifest, which follows the reports within a second."""

    store: Store
    manifest: Manifest
    saved: float
    behind: bool = False
    """Whether the file lacks a report."""

    def missing_of(self, plan: Plan) -> list[Cell]:
        """The cells of its plan that are not done."""
        missing = set(self.manifest.missing())
        return [cell for cell in plan.cells if cell.key in missing]

    def note(self, report: CellReport) -> None:
        """Remember what became of a cell."""
        self.behind = True
        if report.error is not None:
            self.manifest.failed[report.key] = str(report.error)
            return
        self.manifest.done[report.key] = round(report.seconds, 3)
        if time.monotonic() - self.saved > MANIFEST_INTERVAL_S:
            self.save()

    def save(self) -> None:
        """Write the manifest, where there is something new in it."""
        if self.behind:
            self.manifest.save(self.store)
            self.saved, self.behind = time.monotonic(), False


def open_run(plan: Plan, store: Store, bounded: bool) -> OpenRun:
    """The run directory of a plan, with what it says of itself. Raises BadConfig when it holds another run."""
    store.create()
    manifest = open_manifest(store, fresh_manifest(plan))
    manifest.done = {key: manifest.done.get(key, 0.0) for key in manifest.cells if is_written(key, store)}
    manifest.save(store)
    describe_run(plan, store, bounded)
    return OpenRun(store, manifest, time.monotonic())


def is_written(key: str, store: Store) -> bool:
    """Whether all tables of a cell are in the store."""
    return all(store.holds_table(f"{name}/{key}.parquet") for name in TABLES)


def fresh_manifest(plan: Plan) -> Manifest:
    """The manifest of a run of which nothing is done."""
    settings = {
        "cells": {
            "policies": plan.policies,
            "profiles": plan.profiles,
            "fleets": plan.fleets,
            "seeds": plan.experiment.seeds,
            "parts": plan.parts.partitions,
        },
        "limits": [plan.experiment.until_s, plan.experiment.drain_s, plan.experiment.timeline_interval_s],
        "uncensor": plan.experiment.uncensor if plan.drawn != Drawn() else "none",
        "run": [plan.experiment.slo_s, plan.experiment.warmup_s, plan.phases],
    }
    return Manifest(
        version=f"{package_version()} (engine {source_digest()})",
        trace_sha256=table_digest(plan.trace.calls),
        settings=hashlib.sha256(msgspec.json.encode(settings)).hexdigest(),
        cells=[cell.key for cell in plan.cells],
    )


def package_version() -> str:
    try:
        return version("llm-traffic-replay")
    except PackageNotFoundError:
        return "unknown"


def table_digest(table: pa.Table) -> str:
    """sha256 of a table's content."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema.remove_metadata()) as writer:
        writer.write_table(table.replace_schema_metadata(None).combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()
