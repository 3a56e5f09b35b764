"""What a run directory says of itself beside its cells: what the queries need, and the settings for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from msgspec.structs import asdict

from queries import views_sql
from replay.policies.catalogue import CATALOGUE
from replay.runner.ceiling import Counted, cuts_steps, possible_table
from replay.runner.cells import Cell
from replay.runner.plan import Plan
from replay.runner.store import Store

OBSERVED = (
    "call_id", "arrival_s", "model", "deployment", "tenant", "client", "session_id", "observed_attempts",
    "observed_status", "observed_ttft_s", "observed_e2e_s",
)  # fmt: skip
"""What the trace says of each call that its outcomes do not: who sent it, and what the log saw."""


def describe_run(plan: Plan, store: Store, bounded: bool = True) -> None:
    """Write what the queries need beside the cells: run, policies, phases, observed; and the settings for people.

    `bounded`: ask what was possible too.
    """
    experiment = plan.experiment
    columns: Mapping[str, tuple[Any, pa.DataType]] = {
        "as_logged": (plan.policies[0].name if experiment.as_logged is not None else None, pa.string()),
        "slo_s": (experiment.slo_s, pa.float64()),
        "until_s": (run_cut(plan), pa.float64()),
        "warmup_s": (experiment.warmup_s, pa.float64()),
        "seeds": (experiment.seeds, pa.int32()),
        "replays": (len(plan.cells), pa.int32()),
        "closed_turns": (waiting_turns(plan.trace.calls), pa.int64()),
        **{f"drawn_{what}": (count, pa.int64()) for what, count in asdict(plan.drawn).items()},
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
                "cuts_steps": [cuts_steps(p) for p in plan.policies],
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
    counted = Counted(plan.phases, experiment.slo_s, run_cut(plan), experiment.warmup_s)
    store.write_table("possible.parquet", possible_table(plan.cells if bounded else [], plan.parts.calls, counted))
    store.write_table("observed.parquet", plan.trace.calls.select(list(OBSERVED)).replace_schema_metadata(None))
    settings = {key: {"value": value, "source": source} for key, (value, source) in plan.sources.items()}
    store.write("config.resolved.yaml", yaml.safe_dump(settings, sort_keys=True).encode())
    store.write("views.sql", views_sql().encode())


def waiting_turns(calls: pa.Table) -> int:
    """Calls that come when the turn before has ended, and its user has thought about it."""
    return int(calls.num_rows - calls["think_time_s"].null_count)


def profiles_table(cells: list[Cell]) -> pa.Table:
    """The engines of a run, under the names of their partitions, with where their step times come from."""
    profiles = {cell.profile_key: cell.profile for cell in cells}
    return pa.table(
        {
            "profile": list(profiles),
            "source": [p.source for p in profiles.values()],
            "error": [p.error for p in profiles.values()],
            "weakness": [p.weakness for p in profiles.values()],
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
