"""Looking at processes, and at what they wrote."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def contents(run: Path) -> dict[str, bytes]:
    """The tables of a run, byte for byte."""
    return {str(p.relative_to(run)): p.read_bytes() for p in sorted(run.rglob("*.parquet"))}


def complaints(err: str) -> str:
    """What a command says on standard error, but that it waits for workers, as it may on a busy machine."""
    return "".join(line for line in err.splitlines(keepends=True) if not line.startswith("waiting for workers"))


def descendants(name: str, of: int | None = None) -> list[int]:
    """Processes below one (by default this one) whose command begins with a name."""
    parents, found = {}, []
    for entry in Path("/proc").iterdir():
        try:
            pid = int(entry.name)
            parents[pid] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if (entry / "cmdline").read_bytes().decode(errors="replace").startswith(name):
                found.append(pid)
        except (ValueError, OSError):
            continue
    return [pid for pid in found if (os.getpid() if of is None else of) in ancestors(pid, parents)]


def ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    above = set()
    while pid in parents and pid not in above:
        above.add(pid)
        pid = parents[pid]
    return above


def wait_for(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    """Whether a condition comes to hold."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False
