"""A cell: one simulation, the unit of work, of retry and of resume."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec
import pyarrow as pa

from replay.engine import simulate
from replay.policies.knobs import Fleet, Policy
from replay.profiles.profile import Profile
from replay.runner.store import Store


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on one fleet of one profile, with one seed."""

    policy: Policy
    profile: Profile
    fleet: Fleet
    seed: int

    @property
    def key(self) -> str:
        """Its hive partition, the same in every table."""
        return f"policy={self.policy.name}/profile={self.profile_key}/fleet={self.fleet.name}/seed={self.seed}"

    @property
    def profile_key(self) -> str:
        """The profile's name as a partition has it."""
        return re.sub(r"[^\w.-]", "_", self.profile.name)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Where a simulation ends, and how often it is sampled."""

    until_s: float | None
    drain_s: float | None
    timeline_interval_s: float


@dataclass(frozen=True, slots=True)
class CellReport:
    """That a cell's tables are written, and what that took."""

    key: str
    calls: int
    seconds: float


Report = Callable[[float], None]


class Executor(Protocol):
    """Where cells run: in this process, or on a cluster. Cells in, Parquet in the store out."""

    def run(self, cells: list[Cell], calls: pa.Table, limits: Limits, on_progress: Report) -> Iterator[CellReport]:
        """Run the cells; yields the report of each as soon as its tables are written."""
        ...


TABLES = ("calls", "attempts", "executions", "timeline", "replicas")


def run_cell(
    cell: Cell, calls: pa.Table, limits: Limits, store: Store, on_progress: Report | None = None
) -> CellReport:
    """Simulate a cell and write its tables. Raises RunFailed, BadInput and BadConfig."""
    began = time.perf_counter()
    results = simulate(
        calls,
        cell.policy,
        cell.profile,
        cell.fleet,
        cell.seed,
        until_s=limits.until_s,
        drain_s=limits.drain_s,
        timeline_interval_s=limits.timeline_interval_s,
        on_progress=on_progress,
    )
    for name in TABLES:
        store.write_table(f"{name}/{cell.key}/part-0.parquet", getattr(results, name))
    return CellReport(cell.key, calls.num_rows, time.perf_counter() - began)
