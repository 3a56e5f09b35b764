"""The command that was killed finishes what is missing, and leaves nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import replay
from tests.runner.conftest import CODE, outside
from tests.runner.processes import complaints, contents, descendants, wait_for

POLICIES = ["cancel", "coalesce"]
SEEDS = 100
SEEDS_NEVER_DONE = 3_000
WORKER = "ray::CellWorker"


def finished(run: Path) -> int:
    """Cells whose last table is there."""
    return len(list(run.rglob("replicas/**/part-0.parquet")))


@pytest.fixture
def command(log_file: str, profile_file: str, tmp_path: Path) -> list[str]:
    """A run of 200 cells on a Ray of its own."""
    policies = [word for name in POLICIES for word in ("--policy", name)]
    return [
        sys.executable, "-c", CODE, "run", log_file, "--profile", profile_file, *policies, "--seeds", str(SEEDS),
        "-o", str(tmp_path / "run"), "--quiet",
    ]  # fmt: skip


def killed(command: list[str], run: Path, kill: Callable[[int], None]) -> subprocess.Popen[str]:
    """A run that is killed once a few more of its cells are finished."""
    before = finished(run)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=outside(), start_new_session=True
    )
    assert wait_for(lambda: finished(run) >= before + 3 or process.poll() is not None)
    kill(process.pid)
    return process


def driver(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def worker_and_driver(pid: int) -> None:
    os.kill(descendants(WORKER, of=pid)[0], signal.SIGKILL)
    driver(pid)


@pytest.mark.parametrize("kill", [worker_and_driver, pytest.param(driver, marks=pytest.mark.slow)])
def test_what_a_killed_run_lacks_is_done_by_the_same_command(
    kill: Callable[[int], None], command: list[str], log_file: str, profile_file: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with killed(command, run, kill) as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert finished(run) < len(POLICIES) * SEEDS
    kept = contents(run)
    done = subprocess.run(command, capture_output=True, text=True, env=outside(), timeout=200, check=True)
    assert complaints(done.stderr) == ""
    assert "coalesce" in done.stdout
    whole = replay.run(
        log_file, str(tmp_path / "whole"), {"profile": profile_file, "policies": POLICIES, "seeds": SEEDS}
    )
    assert contents(run) == contents(Path(whole.path))
    assert kept.items() <= contents(run).items()
    assert not list(run.rglob("*.tmp"))


@pytest.mark.parametrize("sent", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupted_run_ends_its_own_ray(sent: signal.Signals, command: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    ours: list[int] = []

    def interrupt(pid: int) -> None:
        ours.extend(descendants("", of=pid))
        os.killpg(pid, sent) if sent is signal.SIGINT else os.kill(pid, sent)

    with killed([*command, "--seeds", str(SEEDS_NEVER_DONE)], run, interrupt) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert (
        complaints(err).strip()
        == "replay: interrupted; what was finished is kept, and the same command goes on from there"
    )
    assert not list(run.rglob("*.tmp"))
    assert wait_for(lambda: not any(Path("/proc", str(pid)).exists() for pid in ours))
    assert not list(Path(tempfile.gettempdir()).glob(f"replay-ray-{process.pid}-*"))
