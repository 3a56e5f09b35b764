"""The wheel: four import packages, the SQL files, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("replay", "trace_schema", "connectors", "queries")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in a wheel that is built from a copy of the sources."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (*PACKAGES, "scripts", "tests/cli"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = out.glob("llm_traffic_replay-*.whl")
    return set(zipfile.ZipFile(built).namelist())


@pytest.mark.slow
def test_the_wheel_holds_the_four_packages_and_their_data(wheel: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    for name in PACKAGES:
        sources = {str(p.relative_to(ROOT)) for p in (ROOT / name).rglob("*") if p.suffix in (".py", ".sql", ".typed")}
        assert sources <= wheel
    assert any(name.endswith("entry_points.txt") for name in wheel)
