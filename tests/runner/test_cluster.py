"""Cells on Ray give what cells in one process give, whatever dies meanwhile."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from replay.config import layered
from replay.errors import BadConfig, BadInput, RunFailed
from replay.policies.knobs import Fleet, Policy
from replay.profiles.profile import Profile
from replay.runner import InlineExecutor, Store, execute, make_plan
from replay.runner.cells import Cell, CellReport, Executor, Limits
from replay.runner.cluster import RayExecutor
from replay.runner.plan import Plan
from replay.runner.session import session
from tests.runner.processes import contents, descendants

LIMITS = Limits(until_s=None, drain_s=None, timeline_interval_s=1.0)


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    """Ray on this machine, for all tests of this module."""
    with session(workers=2, store_bytes=0):
        yield


@pytest.fixture
def plan(log_file: str, profile_file: str) -> Plan:
    """Eight cells."""
    from replay.ingest import read_trace

    settings = {"profile": profile_file, "policies": ["cancel", "coalesce"], "seeds": 4}
    experiment, sources = layered([("test", settings)])
    return make_plan(experiment, sources, read_trace(log_file))


@pytest.fixture
def undisturbed(plan: Plan, tmp_path: Path) -> dict[str, bytes]:
    """The files of a run in this process."""
    store = Store(str(tmp_path / "inline"))
    execute(plan, store, InlineExecutor(store), lambda _: None)
    return contents(store.root)


def calls(n: int, interval_s: float = 0.1) -> pa.Table:
    """Calls that an engine has no trouble with."""
    numbers = list(range(n))
    return pa.table(
        {
            "call_id": numbers,
            "content_id": numbers,
            "arrival_s": [interval_s * k for k in numbers],
            "prompt_tokens": [100] * n,
            "output_tokens": [20] * n,
        }
    )


def cell(profile: Profile, seed: int = 0, partition: int = 0) -> Cell:
    return Cell(policy=Policy(name="plain"), profile=profile, fleet=Fleet(), seed=seed, partition=partition)


def run(executor: Executor, cells: list[Cell], *parts: pa.Table) -> list[CellReport]:
    return list(executor.run(cells, list(parts), LIMITS, lambda _: None))


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_workers_writes_the_same_bytes(
    workers: int, plan: Plan, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    store = Store(str(tmp_path / "ray"))
    told: list[float] = []
    execute(plan, store, RayExecutor(store, workers=workers), told.append)
    assert contents(store.root) == undisturbed
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert not [p for p in store.root.rglob(".*") if p.is_file()]


@pytest.mark.usefixtures("ray_here")
def test_a_worker_that_is_killed_is_replaced(plan: Plan, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    store = Store(str(tmp_path / "ray"))
    killed: list[int] = []

    def kill_one(share: float) -> None:
        if 0 < share < 1 and not killed:
            killed.append(descendants("ray::CellWorker")[0])
            os.kill(killed[0], signal.SIGKILL)

    execute(plan, store, RayExecutor(store, workers=2), kill_one)
    assert killed
    assert contents(store.root) == undisturbed
    assert not list(store.root.rglob("*.tmp"))


@pytest.mark.usefixtures("ray_here")
def test_a_cell_that_kills_every_worker_is_given_up(profile: Profile, tmp_path: Path) -> None:
    deaths: set[int] = set()
    with killing("ray::CellWorker.run", deaths):
        (report,) = run(RayExecutor(Store(str(tmp_path)), workers=1), [cell(profile)], calls(60_000))
    assert isinstance(report.error, RunFailed)
    assert "policy=plain/profile=small/fleet=1x/seed=0/part-0: its worker died, 3 times over" in str(report.error)
    assert len(deaths) == 3
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


class killing:
    """While the context lasts, processes of that name are killed as soon as they are seen."""

    def __init__(self, name: str, deaths: set[int]) -> None:
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, args=(name, deaths))

    def watch(self, name: str, deaths: set[int]) -> None:
        while not self.over.wait(0.02):
            for pid in descendants(name):
                os.kill(pid, signal.SIGKILL)
                deaths.add(pid)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


@pytest.mark.usefixtures("ray_here")
def test_a_users_mistake_comes_back_as_itself(profile: Profile, tmp_path: Path) -> None:
    unordered = calls(3, interval_s=-1.0)
    unordered = unordered.set_column(2, "arrival_s", pa.array([2.0, 1.0, 0.0]))
    (report,) = run(RayExecutor(Store(str(tmp_path)), workers=1), [cell(profile)], unordered)
    assert type(report.error) is BadInput
    assert str(report.error) == "calls, row 2, field 'arrival_s': arrives before the call above it"


@pytest.mark.usefixtures("ray_here")
def test_each_cell_reads_the_calls_of_its_part(profile: Profile, tmp_path: Path) -> None:
    cells = [cell(profile, seed, part) for seed in range(2) for part in range(2)]
    ray, inline = Store(str(tmp_path / "ray")), Store(str(tmp_path / "inline"))
    assert {r.key for r in run(RayExecutor(ray), cells, calls(20), calls(30))} == {c.key for c in cells}
    run(InlineExecutor(inline), cells, calls(20), calls(30))
    assert contents(ray.root) == contents(inline.root)


@pytest.mark.usefixtures("ray_here")
def test_calls_are_read_where_they_lie() -> None:
    import ray

    class Looks:
        def allocated(self, calls: pa.Table) -> tuple[int, int]:
            return pa.total_allocated_bytes(), sum(calls["prompt_tokens"].to_pylist())

    answer = ray.remote(Looks).remote().allocated.remote(ray.put(calls(100_000)))  # type: ignore[attr-defined]
    assert ray.get(answer, timeout=60) == (0, 10_000_000)


@pytest.mark.usefixtures("ray_here")
def test_results_that_workers_cannot_reach_are_refused(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    monkeypatch.setattr(Store, "write", lambda *_: None)  # as if the workers' disk were another
    with pytest.raises(BadConfig, match=r"is not there on the cluster's node .* all nodes share"):
        run(RayExecutor(store), [cell(profile)], calls(3))
