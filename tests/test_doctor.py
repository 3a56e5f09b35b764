"""Is the installation in order, and the machine up to a run?"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace

import pytest

import replay.doctor as doctor
from replay.cli import main


def test_a_sound_installation_says_where_it_is_and_compiles() -> None:
    findings = {finding.name: finding for finding in doctor.examine(warm=True)}
    assert Path(findings["packages"].found, "replay", "__init__.py").exists()
    assert findings["engine"].found.startswith("compiled")
    assert {finding.state for finding in findings.values()} <= {"ok", "warn"}
    assert {"ray", "duckdb", "numba", "pyarrow", "memory", "shared memory", "temporary space"} <= findings.keys()


def test_a_package_that_shadows_ours_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = doctor.find_spec

    def shadowed(name: str) -> ModuleSpec | None:
        return ModuleSpec(name, None, origin="/home/ann/queries/__init__.py") if name == "queries" else found(name)

    monkeypatch.setattr(doctor, "find_spec", shadowed)
    finding = doctor.packages()
    assert finding.state == "bad"
    assert "queries from /home/ann" in finding.found


def test_a_directory_of_the_same_name_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "__init__.py").write_text("")
    command = [sys.executable, "-m", "replay", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert f"queries from {tmp_path}" in done.stdout.splitlines()[0]


def test_something_bad_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="1"):
        main(["doctor"])
    line = capsys.readouterr().out.splitlines()[0]
    assert line == "bad   packages         the package replay is missing; install llm-traffic-replay again"


def test_little_room_is_a_warning_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000_000))
    monkeypatch.setattr(doctor, "free_memory_bytes", lambda: 600_000_000)
    monkeypatch.setattr(doctor, "available_cpus", lambda: 4)
    findings = (doctor.memory(), doctor.shared_memory(), doctor.temporary_space())
    assert [finding.state for finding in findings] == ["warn"] * 3
    assert findings[0].advice == "use --workers 1"
    assert "--shm-size" in findings[1].advice
    assert "TMPDIR" in findings[2].advice


@pytest.mark.parametrize("scheme", ["", "ray://", "http://"])
def test_a_cluster_that_is_not_there_is_bad(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (finding,) = (f for f in doctor.examine(address=f"{scheme}127.0.0.1:{port}") if f.name == "cluster")
    assert finding.state == "bad"
    assert "no Ray cluster answers there (Connection refused)" in finding.found
