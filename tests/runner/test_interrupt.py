"""Ctrl-C, as a terminal sends it to a process that is at work."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

SEEDS = 150


def done(run: Path) -> int:
    """Cells that are finished by the manifest; it is renamed into place, and so is never half there."""
    manifest = run / "manifest.json"
    return len(json.loads(manifest.read_text())["done"]) if manifest.exists() else 0


def test_an_interrupted_process_says_so_and_the_same_command_finishes(
    log_file: str, profile_file: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    code = "import sys; from replay.cli import main; main(sys.argv[1:])"
    command = [
        sys.executable, "-c", code, "run", log_file, "-o", str(run), "--profile", profile_file, "--policy", "cancel",
        "--policy", "coalesce", "--seeds", str(SEEDS),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while done(run) < 3 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1].startswith("replay: interrupted; what was finished is kept")
    assert "Traceback" not in err
    assert 3 <= done(run) < 2 * SEEDS
    assert not list(run.rglob("*.tmp"))
    again = subprocess.run([*command, "--quiet"], capture_output=True, text=True, check=True, timeout=120)
    assert again.stderr == ""
    assert "coalesce" in again.stdout
    assert done(run) == 2 * SEEDS
