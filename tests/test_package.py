"""What goes to a cluster is this package, whole and alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from replay.package import PACKAGES, staged_package


def test_the_staged_package_runs_where_nothing_else_is() -> None:
    with staged_package() as stage:
        tops = {path.name for path in stage.iterdir()}
        assert {name for name in tops if not name.endswith(".dist-info")} == set(PACKAGES)
        assert not list(stage.rglob("__pycache__"))
        done = subprocess.run(
            [sys.executable, "-m", "replay", "doctor", "--json"], capture_output=True, text=True, cwd=stage, check=False
        )
        assert str(stage) in done.stdout, done.stderr
        version = [sys.executable, "-m", "replay", "--version"]
        assert "replay" in subprocess.run(version, capture_output=True, text=True, cwd=stage, check=True).stdout
    assert not Path(stage).exists()
