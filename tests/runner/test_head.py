"""A cluster elsewhere: runs that connect to it, and runs that are submitted to it."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import replay
from tests.runner.conftest import CODE, Head, kill_all, outside
from tests.runner.processes import complaints, contents, descendants, wait_for

GRID = ("--policy", "cancel", "--policy", "coalesce", "--seeds", "2")


@pytest.fixture(scope="module")
def undisturbed(log_file: str, profile_file: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The tables of a run in this process."""
    path = tmp_path_factory.mktemp("inline") / "run"
    replay.run(log_file, str(path), {"profile": profile_file, "policies": ["cancel", "coalesce"], "seeds": 2})
    return contents(path)


@pytest.mark.parametrize("door", ["gcs", pytest.param("client", marks=pytest.mark.slow)])
def test_a_run_connects_to_a_cluster(
    door: str, head: Head, log_file: str, profile_file: str, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = head.replay(
        "run", log_file, "--profile", profile_file, *GRID, "-o", str(run), "--address", getattr(head, door), "--quiet"
    )
    assert (done.returncode, complaints(done.stderr)) == (0, "")
    assert contents(run) == undisturbed
    assert not [p for p in run.rglob(".*") if p.is_file()]


@pytest.mark.parametrize("command", ["run", "submit"])
def test_no_token_no_cluster(command: str, head: Head, log_file: str, profile_file: str, tmp_path: Path) -> None:
    run = ["run", log_file, "--profile", profile_file, "-o", str(tmp_path / "run")]
    line = [*run, "--address", head.gcs, "--quiet"]
    if command == "submit":
        line = ["submit", "--address", head.dashboard, "--", *run]
    done = head.replay(*line, token=False)
    assert (done.returncode, done.stdout) == (4, "")
    assert "the cluster asks for a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_run_survives_the_loss_of_a_node(
    head: Head, node: subprocess.Popen[bytes], log_file: str, profile_file: str, tmp_path: Path
) -> None:
    run, seeds = tmp_path / "run", 500
    command = [
        sys.executable, "-c", CODE, "run", log_file, "--profile", profile_file, "--policy", "cancel", "--seeds",
        str(seeds), "--address", head.gcs, "--workers", "4", "-o", str(run), "--quiet",
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=outside() | head.token) as process:
        assert wait_for(lambda: bool(descendants("ray::CellWorker", of=node.pid)) or process.poll() is not None)
        assert wait_for(lambda: any(run.rglob("replicas/**/*.parquet")))
        assert process.poll() is None
        kill_all([node.pid, *descendants("", of=node.pid)])
        _, err = process.communicate(timeout=200)
    assert (process.returncode, complaints(err)) == (0, "")
    whole = replay.run(
        log_file, str(tmp_path / "whole"), {"profile": profile_file, "policies": ["cancel"], "seeds": seeds}
    )
    assert contents(run) == contents(Path(whole.path))
    assert not list(run.rglob("*.tmp"))


def test_where_nothing_listens_there_is_no_cluster(log_file: str, profile_file: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = [sys.executable, "-c", CODE, "run", log_file, "--profile", profile_file, "-o", str(tmp_path), "--address"]
    done = subprocess.run(
        [*command, f"127.0.0.1:{port}"], capture_output=True, text=True, timeout=15, env=outside(), check=False
    )
    assert done.returncode == 4
    assert f"replay: 127.0.0.1:{port}: no Ray cluster answers there (Connection refused)" in done.stderr


def test_a_job_takes_its_files_along_and_leaves_its_results(
    head: Head, log_file: str, profile_file: str, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    experiment = tmp_path / "laptop" / "experiment.yaml"
    experiment.parent.mkdir()
    shutil.copy(profile_file, experiment.parent / "mine.json")
    experiment.write_text("profile: mine.json\npolicies: [cancel, coalesce]\nseeds: 2\n")
    trace = shutil.copy(log_file, experiment.parent / "log.jsonl")
    run = tmp_path / "shared" / "run"
    done = head.replay(
        "submit", "--address", head.dashboard, "--", "run", trace, "--config", str(experiment), "-o", str(run)
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert f"results go to {run} on the cluster" in done.stderr
    assert f"wrote {run}" in done.stderr  # the job's own words
    assert contents(run) == undisturbed


def test_a_jobs_exit_code_is_kept(head: Head, profile_file: str, tmp_path: Path) -> None:
    trace = tmp_path / "bad.jsonl"
    trace.write_text('{"call": 1}\n')
    done = head.replay(
        "submit", "--address", head.dashboard, "--", "run", str(trace), "--profile", profile_file, "-o",
        str(tmp_path / "run"),
    )  # fmt: skip
    assert done.returncode == 3
    assert "replay: " in done.stderr.splitlines()[-1]
    assert "bad.jsonl" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_ctrl_c_stops_the_job(head: Head, log_file: str, profile_file: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [
        sys.executable, "-c", CODE, "submit", "--address", head.dashboard, "--", "run", log_file, "--profile",
        profile_file, "--seeds", "5000", "-o", str(run),
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=outside() | head.token)
    assert wait_for(lambda: any(run.rglob("replicas/**/*.parquet")) or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    finished = len(list(run.rglob("replicas/**/*.parquet")))
    assert finished < 5000
    assert wait_for(lambda: not list(run.rglob("*.tmp")))
    manifest = json.loads((run / "manifest.json").read_text())
    assert len(manifest["done"]) <= len(list(run.rglob("replicas/**/*.parquet")))
