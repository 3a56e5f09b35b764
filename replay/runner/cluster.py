"""Cells on a Ray cluster: long-lived workers take one after the other, and write their tables themselves."""

from __future__ import annotations

import socket
import sys
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray
from ray.exceptions import (
    OutOfMemoryError,
    RayActorError,
    RayError,
    RaySystemError,
    RayTaskError,
    WorkerCrashedError,
)

from replay.engine.kernel import is_compiled
from replay.engine.warm import warm_up
from replay.errors import BadConfig, ClusterUnreachable, RunFailed, UserError
from replay.runner.cells import Cell, CellReport, Limits, Report, discard_leftovers, run_cell
from replay.runner.session import Session, available_cpus, first_line, session
from replay.runner.store import Store

TRIES_MOST = 3
"""A cell whose worker died so often is given up."""
LOOK_S = 0.5
"""Seconds between two looks at who is ready, and how far the others are."""
LONG_CELL_S = 2.0
"""A cell that takes longer is asked how far it is."""
GET_TIMEOUT_S = 60.0
"""For results that are there already."""
END_TIMEOUT_S = 5.0
"""For workers to be gone once they are killed."""
START_NOTE_S, START_TIMEOUT_S = 30.0, 900.0
"""Without any worker: when to say so, and when to give up. A cluster that grows needs minutes for a node."""

DEATHS = (RayActorError, OutOfMemoryError, WorkerCrashedError)


class RayExecutor:
    """Cells on a cluster: that at `address` (see `session`), or one of this machine's own.

    `workers` is how many cells run at once; by default as many as there are CPUs.
    """

    def __init__(self, store: Store, *, address: str | None = None, workers: int | None = None) -> None:
        self.store = store
        self.address = address
        self.workers = workers

    def run(
        self, cells: Sequence[Cell], calls: Sequence[pa.Table], limits: Limits, on_progress: Report
    ) -> Iterator[CellReport]:
        """As `Executor.run`. Raises ClusterUnreachable, and RunFailed when no worker can be had."""
        if not cells:
            return
        wanted = self.workers or min(available_cpus(), len(cells))
        # Room for what Ray itself keeps there, beside the calls.
        store_bytes = 2 * sum(table.nbytes for table in calls)
        with session(self.address, workers=wanted, store_bytes=store_bytes) as found:
            if found.own and not is_compiled():
                warm_up()
            size = min(self.workers or found.cpus or 1, len(cells))
            with reachable(self.store, found) as marker:
                crew = Crew(cells, calls, limits, Store(str(self.store.root.resolve())), marker, size, on_progress)
                try:
                    yield from crew.reports()
                except (ConnectionError, RaySystemError) as error:
                    raise ClusterUnreachable(
                        f"the connection to Ray was lost ({first_line(error)}); the same command goes on from there"
                    ) from error
                finally:
                    crew.dismiss()


class CellWorker:
    """The actor: runs cells, one at a time."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self.store = store
        self.limits = limits
        self.within = 0.0

    def prepare(self, marker: str | None) -> UserError | None:
        """Load the engine; why this worker cannot write the results, if it cannot."""
        if marker is not None and self.store.read(marker) is None:
            return BadConfig(
                f"{self.store.root}: is not there on the cluster's node {socket.gethostname()}; "
                "-o must name a directory that all nodes share, or submit the run with replay submit"
            )
        warm_up()
        return None

    def run(self, cell: Cell, calls: pa.Table) -> CellReport:
        """Run a cell; `calls` are read where they lie in the node's object store."""
        self.within = 0.0
        return run_cell(cell, calls, self.limits, self.store, self.progressed)

    def progressed(self, share: float) -> None:
        self.within = share

    def share(self) -> float:
        """How far the cell at hand is. Answered between two slices of the simulation, by another thread."""
        return self.within


@dataclass(slots=True)
class Hand:
    """A worker as the driver sees it."""

    actor: Any
    cell: Cell | None = None
    """None while it prepares."""
    since: float = 0.0
    share: float = 0.0
    asked: Any = None
    """An answer about its share that is on its way."""


class Crew:
    """The workers of a run. Each has one cell at most; the driver holds no result, and no more than a cell for each."""

    def __init__(
        self,
        cells: Sequence[Cell],
        calls: Sequence[pa.Table],
        limits: Limits,
        store: Store,
        marker: str | None,
        size: int,
        on_progress: Report,
    ) -> None:
        self.waiting = deque(cells)
        self.total = len(cells)
        self.done = 0
        # The second thread answers how far the first one is.
        worker: Any = ray.remote(CellWorker)
        self.worker = worker.options(num_cpus=1, max_restarts=0, max_concurrency=2)
        self.calls = {part: ray.put(calls[part]) for part in sorted({cell.partition for cell in cells})}
        self.store = store
        self.limits = limits
        self.marker = marker
        self.size = size
        self.on_progress = on_progress
        self.busy: dict[Any, Hand] = {}
        """The workers by what is expected of them."""
        self.deaths: Counter[str] = Counter()
        self.began = time.monotonic()
        self.noted = self.ready = False

    def reports(self) -> Iterator[CellReport]:
        """Run the cells. Raises RunFailed when workers cannot start, BadConfig when they cannot reach the results."""
        while self.done < self.total:
            while len(self.busy) < min(self.size, self.total - self.done):
                self.hire()
            ready, _ = ray.wait(list(self.busy), num_returns=1, timeout=LOOK_S)
            for expected in ready:
                report = self.finished(self.busy.pop(expected), expected)
                if report is not None:
                    self.done += 1
                    yield report
            if not self.ready:
                self.wait_for_workers()
            self.ask()
            self.on_progress((self.done + sum(hand.share for hand in self.busy.values())) / self.total)

    def hire(self) -> None:
        """A new worker, which begins with loading the engine."""
        hand = Hand(self.worker.remote(self.store, self.limits))
        self.busy[hand.actor.prepare.remote(self.marker)] = hand

    def give(self, hand: Hand) -> None:
        """Give a worker its next cell; dismiss it when there is none."""
        if not self.waiting:
            ray.kill(hand.actor)
            return
        hand.cell = self.waiting.popleft()
        hand.since, hand.share = time.monotonic(), 0.0
        self.busy[hand.actor.run.remote(hand.cell, self.calls[hand.cell.partition])] = hand

    def finished(self, hand: Hand, expected: Any) -> CellReport | None:
        """What became of what was expected of a worker; a report if that was a cell."""
        try:
            result = ray.get(expected, timeout=GET_TIMEOUT_S)
        except DEATHS as death:
            return self.buried(hand, death)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:
            raise RunFailed(f"a worker gave no answer: {first_line(error)}") from error
        if hand.cell is None:
            self.ready = True
            if isinstance(result, UserError):
                raise result
        self.give(hand)
        return result if isinstance(result, CellReport) else None

    def buried(self, hand: Hand, death: Exception) -> CellReport | None:
        """A worker died: its cell is for another, unless it has killed too many. Raises RunFailed."""
        ray.kill(hand.actor)
        key = hand.cell.key if hand.cell else ""
        self.deaths[key] += 1
        if hand.cell is not None:
            discard_leftovers(hand.cell, self.store)
        if self.deaths[key] < TRIES_MOST:
            if hand.cell is not None:
                self.waiting.appendleft(hand.cell)
            return None
        if hand.cell is None:
            raise RunFailed(f"workers do not start, {TRIES_MOST} times over: {first_line(death)}")
        message = (
            f"cell {key}: its worker died, {TRIES_MOST} times over, as it does when memory runs out; "
            "try fewer --workers, which share the memory"
        )
        return CellReport(key, 0.0, RunFailed(message))

    def wait_for_workers(self) -> None:
        """Say that no worker could start so far. Raises RunFailed when that goes on."""
        waited = time.monotonic() - self.began
        if waited > START_TIMEOUT_S:
            raise RunFailed(f"no worker could start in {waited:.0f} s: the cluster has no CPU free")
        if waited > START_NOTE_S and not self.noted:
            self.noted = True
            print("waiting for a free CPU on the cluster ...", file=sys.stderr)

    def ask(self) -> None:
        """Learn how far the long cells are, without waiting for an answer."""
        for hand in self.busy.values():
            if hand.cell is None or time.monotonic() - hand.since < LONG_CELL_S:
                continue
            if hand.asked is None:
                hand.asked = hand.actor.share.remote()
            elif ray.wait([hand.asked], timeout=0)[0]:
                answer, hand.asked = hand.asked, None
                try:
                    hand.share = ray.get(answer, timeout=GET_TIMEOUT_S)
                except DEATHS:
                    continue  # the cell itself tells

    def dismiss(self) -> None:
        """End the workers; nothing stays of what they had not finished."""
        for hand in self.busy.values():
            ray.kill(hand.actor)
        if self.busy:
            ray.wait(list(self.busy), num_returns=len(self.busy), timeout=END_TIMEOUT_S)
        for hand in self.busy.values():
            if hand.cell is not None:
                discard_leftovers(hand.cell, self.store)


@contextmanager
def reachable(store: Store, found: Session) -> Iterator[str | None]:
    """A file in the run directory by which workers elsewhere know it."""
    if found.own:
        yield None
        return
    marker = f".seen-from-the-cluster-{uuid.uuid4().hex}"
    store.write(marker, b"here")
    try:
        yield marker
    finally:
        (store.root / marker).unlink(missing_ok=True)
