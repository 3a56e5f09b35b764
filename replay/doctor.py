"""Is this installation in order, and this machine up to a run?"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec

from replay.errors import BadConfig, ClusterUnreachable, RunFailed
from replay.machine import available_cpus, free_memory_bytes
from replay.package import PACKAGES

LIBRARIES = ("ray", "duckdb", "numba", "pyarrow")
MEMORY_BYTES_LEAST = 500_000_000
"""Of a worker with a trace of some 100,000 calls, beside Ray's own processes."""
SHARED_MEMORY = Path("/dev/shm")
SHARED_BYTES_LEAST = 80_000_000
"""Ray's smallest object store."""
TEMPORARY_BYTES_LEAST = 1_000_000_000


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "warn", "bad"]
    found: str
    advice: str = ""
    """What to do about it."""


def examine(*, warm: bool = False, ray: bool = False, address: str | None = None) -> list[Finding]:
    """What there is to know of the installation and the machine.

    Parameters
    ----------
    warm
        Compile the engine if need be.
    ray
        Start Ray on this machine, and end it.
    address
        A cluster to connect to: as for a run, or, with `http://`, as for a submitted one.
    """
    findings = [packages(), *libraries()]
    if any(finding.state == "bad" for finding in findings):
        return findings  # the rest would fail on what is wrong here
    findings += [engine(warm), processors(), memory(), shared_memory(), temporary_space()]
    if ray:
        findings.append(own_ray())
    if address is not None:
        findings.append(cluster(address))
    return findings


def packages() -> Finding:
    """Whether all packages are those of one installation: another `queries` on the path would shadow ours."""
    places = {}
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            return Finding("packages", "bad", f"the package {name} is missing", "install llm-traffic-replay again")
        places[name] = Path(spec.origin).parent.parent
    if len(set(places.values())) > 1:
        where = ", ".join(f"{name} from {place}" for name, place in places.items())
        return Finding("packages", "bad", where, "run elsewhere, or remove the package that shadows one of ours")
    return Finding("packages", "ok", str(places["replay"]))


def libraries() -> Iterator[Finding]:
    """The versions of what the work is done with."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", "ok", f"{python} ({sys.executable})")
    for name in LIBRARIES:
        try:
            yield Finding(name, "ok", importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, "bad", "is not installed", "install llm-traffic-replay again, with its dependencies")


def engine(warm: bool) -> Finding:
    """Whether the compiled engine is at hand."""
    from replay.engine.kernel import CACHE, is_compiled
    from replay.engine.warm import warm_up

    if warm and not is_compiled():
        warm_up()
    if is_compiled():
        return Finding("engine", "ok", f"compiled, in {CACHE}")
    return Finding(
        "engine", "warn", "not compiled yet", "replay doctor --warm does it now, else the first run (half a minute)"
    )


def processors() -> Finding:
    """How many replays can run at once."""
    return Finding("processors", "ok", str(available_cpus()))


def memory() -> Finding:
    """Whether the workers of a run fit into what is free."""
    free = free_memory_bytes()
    if free is None:
        return Finding("memory", "ok", "not known on this system")
    usable = available_cpus()
    found = f"{size(free)} free for {usable} workers"
    if free < usable * MEMORY_BYTES_LEAST:
        return Finding("memory", "warn", found, f"use --workers {max(1, free // MEMORY_BYTES_LEAST)}")
    return Finding("memory", "ok", found)


def shared_memory() -> Finding:
    """Whether Ray's object store fits where it belongs."""
    if not SHARED_MEMORY.exists():
        return Finding("shared memory", "ok", "not used on this system")
    free = shutil.disk_usage(SHARED_MEMORY).free
    found = f"{size(free)} free in {SHARED_MEMORY}"
    if free < SHARED_BYTES_LEAST:
        return Finding(
            "shared memory", "warn", found, "Ray takes the disk instead; in Docker, give --shm-size=1g or more"
        )
    return Finding("shared memory", "ok", found)


def temporary_space() -> Finding:
    """Whether Ray's logs fit, and what it spills."""
    place = tempfile.gettempdir()
    free = shutil.disk_usage(place).free
    found = f"{size(free)} free in {place}"
    if free < TEMPORARY_BYTES_LEAST:
        return Finding("temporary space", "warn", found, "make room, or set TMPDIR to a place with a short path")
    return Finding("temporary space", "ok", found)


def own_ray() -> Finding:
    """Whether Ray starts on this machine."""
    from replay.runner.session import session

    began = time.monotonic()
    try:
        with session(None, workers=1, store_bytes=0) as found:
            where = "" if found.own else f" at {os.environ.get('RAY_ADDRESS')}, which RAY_ADDRESS names"
            return Finding("ray starts", "ok", f"in {time.monotonic() - began:.1f} s{where}")
    except (RunFailed, ClusterUnreachable) as error:
        return Finding("ray starts", "bad", str(error), "replay run --executor inline does without it")


def cluster(address: str) -> Finding:
    """Whether a cluster lets us in, and whether it has this version."""
    from replay.engine.kernel import source_digest
    from replay.runner.session import probed

    try:
        if address.startswith(("http://", "https://")):
            from replay.runner.submit import connect

            connect(address)
            return Finding("cluster", "ok", f"{address} takes jobs")
        found = probed(address)
    except (ClusterUnreachable, BadConfig) as error:
        return Finding("cluster", "bad", str(error), "see that the head runs, and can be reached from here")
    there = {None: "without this package", source_digest(): "with this version"}
    version = there.get(found["digest"], "with another version")
    note = "" if found["digest"] == source_digest() else "; this one goes along with each run"
    return Finding("cluster", "ok", f"{address}: {found['cpus']} CPUs, {version}{note}")


def size(n: int) -> str:
    return f"{n / 1e9:,.1f} GB"
