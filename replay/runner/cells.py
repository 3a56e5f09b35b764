"""A cell: one simulation, the unit of work, of retry and of resume."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec
import pyarrow as pa

from replay.censoring import Drawn, Uncensor, put, uncensored
from replay.engine import Results, simulate
from replay.errors import UserError
from replay.policies.knobs import Fleet, Policy
from replay.profiles.profile import Profile
from replay.runner.partitions import numbered
from replay.runner.store import Store


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on one fleet of one profile, with one seed, for one part of the trace."""

    policy: Policy
    profile: Profile
    fleet: Fleet
    beside: tuple[Profile, ...] = ()
    """Profiles of the other engines of the fleet, in its order."""
    seed: int
    partition: int = 0
    uncensor: Uncensor = "none"
    """How what the log cut short is filled in."""
    run: str = ""
    """Directory of its run below that of the store; empty: the store's own."""

    @property
    def key(self) -> str:
        """Its place, the same in every table: hive partitions, and a file for each part of the trace."""
        return (
            f"policy={self.policy.name}/profile={self.profile_key}/fleet={self.fleet.name}"
            f"/seed={self.seed}/part-{self.partition}"
        )

    @property
    def engines(self) -> list[Profile]:
        """The profile of each replica."""
        others = zip(self.beside, self.fleet.beside, strict=True)
        return [self.profile] * self.fleet.replicas + [p for p, group in others for _ in range(group.replicas)]

    def file(self, table: str) -> str:
        """Where its rows of a table are, below the store's directory."""
        return "/".join(part for part in (self.run, table, f"{self.key}.parquet") if part)

    @property
    def profile_key(self) -> str:
        """The profile's name as paths have it, and the columns that are made of them."""
        return re.sub(r"[^\w.-]", "_", self.profile.name)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Where a simulation ends, and how often it is sampled."""

    until_s: float | None
    drain_s: float | None
    timeline_interval_s: float


@dataclass(frozen=True, slots=True)
class CellReport:
    """That a cell's tables are written, and what that took; or why they are not."""

    key: str
    seconds: float
    error: UserError | None = None
    run: str = ""


Report = Callable[[float], None]


class Executor(Protocol):
    """Where cells run: in this process, or on a cluster. Cells in, Parquet in the store out."""

    def run(
        self, cells: Sequence[Cell], calls: Sequence[pa.Table], limits: Limits, on_progress: Report
    ) -> Iterator[CellReport]:
        """Run the cells, `calls[n]` being those of part n of the trace.

        Yields the report of each cell as soon as its tables are written, in any order. A UserError of a cell is in its
        report; after one, the caller may ask for no more.
        """
        ...


TABLES = ("calls", "attempts", "executions", "timeline", "replicas")


def run_cell(
    cell: Cell, calls: pa.Table, limits: Limits, store: Store, on_progress: Report | None = None
) -> CellReport:
    """Simulate a cell and write its tables; `calls` are those of its part. A UserError ends up in the report."""
    began = time.perf_counter()
    discard_leftovers(cell, store)
    try:
        results = numbered(simulated(cell, calls, limits, on_progress), cell.partition, cell.fleet.size)
        for name in TABLES:
            store.write_table(cell.file(name), getattr(results, name))
    except UserError as error:
        return CellReport(cell.key, time.perf_counter() - began, error, run=cell.run)
    return CellReport(cell.key, time.perf_counter() - began, run=cell.run)


def discard_leftovers(cell: Cell, store: Store) -> None:
    """Remove what is left of a cell whose process was killed."""
    for name in TABLES:
        store.discard_leftovers(cell.file(name))


def simulated(cell: Cell, calls: pa.Table, limits: Limits, on_progress: Report | None) -> Results:
    """The simulation of a cell.

    Its results say when users leave as the trace does: whoever stayed in the log is a survivor under every policy and
    seed, even where a moment is drawn at which he would have left.
    """
    replayed, drawn = traffic(cell, calls)
    results = simulate(
        replayed,
        cell.policy,
        cell.engines,
        seed=cell.seed,
        until_s=limits.until_s,
        drain_s=limits.drain_s,
        timeline_interval_s=limits.timeline_interval_s,
        on_progress=on_progress,
    )
    if not drawn.patience:
        return results
    return replace(results, calls=put(results.calls, "user_cancel_s", calls["user_cancel_s"]))


def traffic(cell: Cell, calls: pa.Table) -> tuple[pa.Table, Drawn]:
    """The calls that a cell replays, those of its part with what the log cut short filled in; and how much of it."""
    return uncensored(calls, cell.seed) if cell.uncensor != "none" else (calls, Drawn())
