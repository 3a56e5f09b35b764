"""What a machine has: what a container takes away is not counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import replay.machine as machine


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The control group of a container without limits, on a machine of 64 CPUs."""
    monkeypatch.setattr(machine, "GROUP", tmp_path)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(64)))
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    return tmp_path


@pytest.mark.parametrize(("limit", "cpus"), [("max 100000", 64), ("250000 100000", 2), ("50000 100000", 1)])
def test_a_quota_of_cpus_is_what_there_is(group: Path, limit: str, cpus: int) -> None:
    (group / "cpu.max").write_text(limit)
    assert machine.available_cpus() == cpus


def test_without_control_groups_there_is_the_whole_machine(group: Path) -> None:
    for file in group.iterdir():
        file.unlink()
    assert machine.available_cpus() == 64
    assert (machine.free_memory_bytes() or 0) > 10_000_000


def test_memory_that_a_container_has_left_is_what_there_is(group: Path) -> None:
    assert (machine.free_memory_bytes() or 0) > 10_000_000
    (group / "memory.max").write_text("6000\n")
    assert machine.free_memory_bytes() == 5000


def test_a_process_runs_until_it_has_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert machine.is_running(process.pid)
    process.communicate(b"\n")
    assert not machine.is_running(process.pid)
