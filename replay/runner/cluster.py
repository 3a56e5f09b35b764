"""Cells on a Ray cluster: long-lived workers take one after the other, and write their tables themselves."""

from __future__ import annotations

import os
import socket
import sys
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from replay.machine import available_cpus, is_running
from replay.runner.cells import Cell, CellReport, Limits, Report, discard_leftovers, run_cell
from replay.runner.session import Session, first_line, session
from replay.runner.store import Store

TRIES_MOST = 3
"""A cell whose worker died so often is given up."""
LOOK_S = 0.5
"""Seconds between two looks at who is ready, and how far the others are."""
LONG_CELL_S = 2.0
"""A cell that takes longer is asked how far it is."""
SHORT_CELL_S = 0.2
"""Below this, the way to the driver and back is worth hiding."""
GET_TIMEOUT_S = 60.0
"""For results that are there already."""
END_TIMEOUT_S = 5.0
"""For workers to be gone once they are killed, by Ray's account and by this machine's."""
END_LOOK_S = 0.01
"""Between two looks at whether they are."""
START_NOTE_S, START_TIMEOUT_S = 30.0, 900.0
"""Without any worker: when to say so, and when to give up. A cluster that grows needs minutes for a node."""

STARTING = ""
"""Stands for a cell among the deaths of workers that had none yet."""
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
        store_bytes = sum(table.nbytes for table in calls) * 6 // 5  # with what serialization adds
        with session(self.address, workers=wanted, store_bytes=store_bytes) as found:
            if found.own and not is_compiled():
                warm_up()
            size = min(self.workers or found.cpus or 1, len(cells))
            with reachable(self.store, found) as marker:
                store = Store(str(self.store.root.resolve()))
                crew = Crew(cells, calls, limits, store, found.own, marker, size, on_progress)
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

    def prepare(self, marker: str | None) -> int | UserError:
        """Load the engine. The number of this process; or why it cannot write the results."""
        if marker is not None and self.store.read(marker) is None:
            return BadConfig(
                f"{self.store.root}: is not there on the cluster's node {socket.gethostname()}; "
                "-o must name a directory that all nodes share, or submit the run with replay submit"
            )
        warm_up()
        return os.getpid()

    def run(self, cell: Cell, calls: pa.Table) -> CellReport:
        """Run a cell; `calls` are read where they lie in the node's object store."""
        self.within = 0.0
        return run_cell(cell, calls, self.limits, self.store, self.progressed)

    def progressed(self, share: float) -> None:
        self.within = share

    @ray.method(concurrency_group="look")
    def share(self) -> float:
        """How far the cell at hand is. Answered between two slices of the simulation, by another thread."""
        return self.within


@dataclass(slots=True)
class Hand:
    """A worker as the driver sees it."""

    actor: Any
    pid: int | None = None
    """Its process on its machine, once it has prepared."""
    tasks: deque[tuple[Any, Cell | None]] = field(default_factory=deque)
    """What is expected of it, the oldest first, and the cell of each; none while it prepares."""
    since: float = 0.0
    share: float = 0.0
    """Of the cell at hand."""
    asked: Any = None
    """An answer about its share that is on its way."""

    @property
    def cell(self) -> Cell | None:
        """The cell at hand."""
        return self.tasks[0][1]

    @property
    def expected(self) -> Any:
        """What is to come next."""
        return self.tasks[0][0]


class Crew:
    """The workers of a run. The driver holds no result, and gives each worker two cells at most."""

    def __init__(
        self,
        cells: Sequence[Cell],
        calls: Sequence[pa.Table],
        limits: Limits,
        store: Store,
        own: bool,
        marker: str | None,
        size: int,
        on_progress: Report,
    ) -> None:
        self.waiting = deque(cells)
        self.total = len(cells)
        self.done = 0
        remote: Any = ray.remote
        self.worker = remote(num_cpus=1, max_restarts=0, concurrency_groups={"look": 1})(CellWorker)
        self.calls = {part: ray.put(calls[part]) for part in sorted({cell.partition for cell in cells})}
        self.store = store
        self.own = own
        self.limits = limits
        self.marker = marker
        self.size = size
        self.on_progress = on_progress
        self.hands: list[Hand] = []
        self.short = False
        """Cells take so little that a worker should have the next one before it has told of the last."""
        self.deaths: Counter[str] = Counter()
        self.began = time.monotonic()
        self.noted = self.ready = False

    def reports(self) -> Iterator[CellReport]:
        """Run the cells. Raises RunFailed when workers cannot start, BadConfig when they cannot reach the results."""
        while self.done < self.total:
            while self.waiting and len(self.hands) < min(self.size, self.total - self.done):
                self.hire()
            expected = {hand.expected: hand for hand in self.hands}
            for ref in ray.wait(list(expected), num_returns=1, timeout=LOOK_S)[0]:
                report = self.finished(expected[ref])
                if report is not None:
                    self.done += 1
                    yield report
            if not self.ready:
                self.wait_for_workers()
            self.ask()
            self.on_progress((self.done + sum(hand.share for hand in self.hands)) / self.total)

    def hire(self) -> None:
        """A new worker, which begins with loading the engine."""
        hand = Hand(self.worker.remote(self.store, self.limits))
        hand.tasks.append((hand.actor.prepare.remote(self.marker), None))
        self.hands.append(hand)

    def give(self, hand: Hand) -> None:
        """Give a worker what it should do next; dismiss it when there is nothing."""
        most = 2 if self.short and len(self.waiting) > len(self.hands) else 1
        while self.waiting and len(hand.tasks) < most:
            cell = self.waiting.popleft()
            hand.tasks.append((hand.actor.run.remote(cell, self.calls[cell.partition]), cell))
        if not hand.tasks:
            self.hands.remove(hand)
            ray.kill(hand.actor)
        hand.since, hand.share = time.monotonic(), 0.0

    def finished(self, hand: Hand) -> CellReport | None:
        """What became of what was expected of a worker; a report if that was a cell."""
        try:
            result = ray.get(hand.expected, timeout=GET_TIMEOUT_S)
        except DEATHS as death:
            return self.buried(hand, death)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:
            raise RunFailed(f"a worker gave no answer: {first_line(error)}") from error
        if isinstance(result, UserError):
            raise result
        hand.tasks.popleft()
        if isinstance(result, CellReport):
            self.short = result.seconds < SHORT_CELL_S
            self.give(hand)
            return result
        hand.pid = result
        self.ready = True
        del self.deaths[STARTING]
        self.give(hand)
        return None

    def buried(self, hand: Hand, death: Exception) -> CellReport | None:
        """A worker died: its cells are for others, unless the one at hand has cost too many. Raises RunFailed."""
        ray.kill(hand.actor)
        self.hands.remove(hand)
        cells = [cell for _, cell in hand.tasks if cell is not None]
        for cell in cells:
            discard_leftovers(cell, self.store)
        key = cells[0].key if cells else STARTING
        self.deaths[key] += 1
        given_up = self.deaths[key] == TRIES_MOST
        self.waiting.extendleft(reversed(cells[1:] if given_up else cells))
        if not given_up:
            return None
        if not cells:
            raise RunFailed(f"workers do not start, {TRIES_MOST} times over: {first_line(death)}")
        message = (
            f"cell {key}: its worker died, {TRIES_MOST} times over, as it does when memory runs out; "
            "try fewer --workers, which share the memory"
        )
        return CellReport(key, 0.0, RunFailed(message), run=cells[0].run)

    def wait_for_workers(self) -> None:
        """Say that no worker could start so far. Raises RunFailed when that goes on."""
        waited = time.monotonic() - self.began
        if waited > START_TIMEOUT_S:
            raise RunFailed(f"no worker started in {waited:.0f} s: the cluster has no CPU free")
        if waited > START_NOTE_S and not self.noted:
            self.noted = True
            print("waiting for workers: for a free CPU, or for the engine to be compiled there ...", file=sys.stderr)

    def ask(self) -> None:
        """Learn how far the long cells are, without waiting for an answer."""
        for hand in self.hands:
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
        for hand in self.hands:
            ray.kill(hand.actor)
        expected = [ref for hand in self.hands for ref, _ in hand.tasks]
        if expected:
            ray.wait(expected, num_returns=len(expected), timeout=END_TIMEOUT_S)
        if self.own:
            wait_for_end([hand.pid for hand in self.hands if hand.pid is not None])
        for hand in self.hands:
            for _, cell in hand.tasks:
                if cell is not None:
                    discard_leftovers(cell, self.store)


def wait_for_end(pids: Sequence[int]) -> None:
    """Wait until processes of this machine are gone: a worker that Ray takes for dead may still be writing."""
    deadline = time.monotonic() + END_TIMEOUT_S
    while any(is_running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(END_LOOK_S)


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
