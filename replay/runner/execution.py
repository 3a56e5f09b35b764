"""Runs a plan: the cells that its run directory does not hold yet, and the manifest that remembers them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import msgspec
import pyarrow as pa

from replay.censoring import Drawn
from replay.engine.kernel import source_digest
from replay.errors import UserError
from replay.runner.about import describe_run
from replay.runner.cells import TABLES, Executor, Limits, Report
from replay.runner.manifest import Manifest, open_manifest
from replay.runner.plan import Plan
from replay.runner.store import Store

MANIFEST_INTERVAL_S = 1.0
"""The manifest is written at most so often: it holds a line for each cell. Cells are whole without it."""


def execute(plan: Plan, store: Store, executor: Executor, on_progress: Report) -> None:
    """Run the cells that the store does not hold yet.

    Raises UserError from the first cell that fails; what was finished before stays finished.
    """
    store.create()
    manifest = open_manifest(store, fresh_manifest(plan))
    manifest.done = {key: manifest.done.get(key, 0.0) for key in manifest.cells if is_written(key, store)}
    manifest.save(store)
    describe_run(plan, store)
    missing = set(manifest.missing())
    todo = [cell for cell in plan.cells if cell.key in missing]
    limits = Limits(
        until_s=plan.experiment.until_s,
        drain_s=plan.experiment.drain_s,
        timeline_interval_s=plan.experiment.timeline_interval_s,
    )
    reports = executor.run(todo, plan.parts.calls, limits, on_progress)
    saved = time.monotonic()
    try:
        for report in reports:
            if report.error is not None:
                manifest.failed[report.key] = str(report.error)
                raise report.error
            manifest.done[report.key] = round(report.seconds, 3)
            if time.monotonic() - saved > MANIFEST_INTERVAL_S:
                manifest.save(store)
                saved = time.monotonic()
    finally:
        if isinstance(reports, Generator):
            reports.close()
        with suppress(UserError):  # a full disk takes neither; the first error is the one to tell
            manifest.save(store)


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
