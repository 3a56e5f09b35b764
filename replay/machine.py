"""What this machine has, as far as a container lets this process have it."""

from __future__ import annotations

import os
from pathlib import Path

GROUP = Path("/sys/fs/cgroup")
"""Limits of a container (control groups, version 2)."""


def available_cpus() -> int:
    """CPUs that this process may use, at least one."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota_us, period_us = (GROUP / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return cpus
    return cpus if quota_us == "max" else max(1, min(cpus, int(quota_us) // int(period_us)))


def free_memory_bytes() -> int | None:
    """Memory that can be had without swapping; None where the system does not say."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    except OSError:
        return None
    free = int(lines["MemAvailable"].split()[0]) * 1024
    try:
        most = (GROUP / "memory.max").read_text().strip()
        used = int((GROUP / "memory.current").read_text())
    except OSError:
        return free
    return free if most == "max" else min(free, int(most) - used)


def is_running(pid: int) -> bool:
    """Whether there is a process of this machine with a number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it is another user's
    return True
