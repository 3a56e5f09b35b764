"""From an experiment and a trace to a run directory: plan the cells, run those that are missing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import yaml

from queries import views_sql
from replay.config import Experiment, Sourced, other_clients, phases_of, policies_of, profile_of
from replay.engine.kernel import source_digest
from replay.errors import UserError
from replay.ingest import Trace
from replay.phases import Phase
from replay.policies.catalogue import CATALOGUE
from replay.policies.knobs import Policy
from replay.profiles.profile import Profile
from replay.runner.cells import TABLES, Cell, Executor, Limits, Report
from replay.runner.manifest import Manifest, open_manifest
from replay.runner.store import Store

OBSERVED = ("call_id", "arrival_s", "observed_attempts", "observed_status", "observed_ttft_s", "observed_e2e_s")


@dataclass(frozen=True, slots=True)
class Plan:
    """The cells of a run, and what they share."""

    experiment: Experiment
    sources: Sourced
    trace: Trace
    policies: list[Policy]
    profile: Profile
    phases: list[Phase]
    cells: list[Cell]
    other_clients: list[str]
    """Where the clients are not those of the log, whose own policy is then not compared with it."""


def make_plan(experiment: Experiment, sources: Sourced, trace: Trace) -> Plan:
    """Every policy with every seed, the log's own policy first. Raises BadConfig and BadInput."""
    others = other_clients(experiment.client, trace.client)
    if others:
        experiment = msgspec.structs.replace(experiment, as_logged=None)
    policies, profile = policies_of(experiment), profile_of(experiment)
    cells = [
        Cell(policy=policy, profile=profile, fleet=experiment.fleet, seed=seed)
        for policy in policies
        for seed in range(experiment.seeds)
    ]
    phases = phases_of(experiment, trace.phases)
    return Plan(experiment, sources, trace, policies, profile, phases, cells, others)


def execute(plan: Plan, store: Store, executor: Executor, on_progress: Report) -> None:
    """Run the cells that the store does not hold yet.

    Raises UserError from the first cell that fails; what was finished before stays finished.
    """
    store.create()
    manifest = open_manifest(store, fresh_manifest(plan))
    manifest.done = {key: seconds for key, seconds in manifest.done.items() if is_written(key, store)}
    manifest.save(store)
    describe_run(plan, store)
    todo = [cell for cell in plan.cells if cell.key in set(manifest.missing())]
    limits = Limits(
        until_s=plan.experiment.until_s,
        drain_s=plan.experiment.drain_s,
        timeline_interval_s=plan.experiment.timeline_interval_s,
    )
    reports = executor.run(todo, plan.trace.calls, limits, on_progress)
    for cell in todo:
        try:
            report = next(reports)
        except UserError as error:
            manifest.failed[cell.key] = str(error)
            with suppress(UserError):  # a full disk takes neither; the first error is the one to tell
                manifest.save(store)
            raise
        manifest.done[report.key] = round(report.seconds, 3)
        manifest.save(store)


def is_written(key: str, store: Store) -> bool:
    """Whether all tables of a cell are in the store."""
    return all(store.holds_table(f"{name}/{key}/part-0.parquet") for name in TABLES)


def fresh_manifest(plan: Plan) -> Manifest:
    """The manifest of a run of which nothing is done."""
    settings = {
        "cells": [msgspec.to_builtins(cell) for cell in plan.cells],
        "limits": [plan.experiment.until_s, plan.experiment.drain_s, plan.experiment.timeline_interval_s],
        "run": [plan.experiment.slo_s, plan.experiment.warmup_s, msgspec.to_builtins(plan.phases)],
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


def describe_run(plan: Plan, store: Store) -> None:
    """Write what the queries need beside the cells: run, policies, phases, observed; and the settings for people."""
    experiment = plan.experiment
    columns: Mapping[str, tuple[Any, pa.DataType]] = {
        "as_logged": (plan.policies[0].name if experiment.as_logged is not None else None, pa.string()),
        "slo_s": (experiment.slo_s, pa.float64()),
        "until_s": (run_cut(plan), pa.float64()),
        "warmup_s": (experiment.warmup_s, pa.float64()),
        "seeds": (experiment.seeds, pa.int32()),
    }
    store.write_table("run.parquet", pa.table({k: pa.array([v], t) for k, (v, t) in columns.items()}))
    summaries = [CATALOGUE[p.name].summary if p.name in CATALOGUE else "" for p in plan.policies]
    store.write_table(
        "policies.parquet",
        pa.table(
            {
                "policy": [p.name for p in plan.policies],
                "position": pa.array(range(len(plan.policies)), pa.int32()),
                "summary": summaries,
            }
        ),
    )
    store.write_table(
        "phases.parquet",
        pa.table(
            {
                "phase": [p.name for p in plan.phases],
                "start_s": pa.array([p.start_s for p in plan.phases], pa.float64()),
                "end_s": pa.array([p.end_s for p in plan.phases], pa.float64()),
            }
        ),
    )
    store.write_table("profiles.parquet", profiles_table(plan.cells))
    store.write_table("observed.parquet", plan.trace.calls.select(list(OBSERVED)).replace_schema_metadata(None))
    settings = {key: {"value": value, "source": source} for key, (value, source) in plan.sources.items()}
    store.write("config.resolved.yaml", yaml.safe_dump(settings, sort_keys=True).encode())
    store.write("views.sql", views_sql().encode())


def profiles_table(cells: list[Cell]) -> pa.Table:
    """The engines of a run, under the names of their partitions, with where their step times come from."""
    profiles = {cell.profile_key: cell.profile for cell in cells}
    return pa.table(
        {
            "profile": list(profiles),
            "source": [p.source for p in profiles.values()],
            "error": [p.error for p in profiles.values()],
            "num_blocks": pa.array([p.engine.num_blocks for p in profiles.values()], pa.int64()),
            "block_size": pa.array([p.engine.block_size for p in profiles.values()], pa.int32()),
        }
    )


def run_cut(plan: Plan) -> float | None:
    """The second at which the simulations are cut, null when they end by themselves."""
    experiment = plan.experiment
    cuts = [experiment.until_s] if experiment.until_s is not None else []
    if experiment.drain_s is not None:
        cuts.append(float(np.asarray(plan.trace.calls["arrival_s"])[-1]) + experiment.drain_s)
    return min(cuts, default=None)
