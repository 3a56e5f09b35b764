"""Ray up, Ray down: a cluster of this machine's own, or a connection to one that runs already."""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import ray
from ray._private.ray_logging import stdout_deduplicator

from replay.engine.kernel import source_digest
from replay.errors import BadConfig, ClusterUnreachable, RunFailed
from replay.machine import is_running
from replay.package import staged_package

TCP_TIMEOUT_S = 5.0
PROBE_TIMEOUT_S = 60.0
"""Ray's client starts a server for each driver, which takes ten seconds on a busy head."""
STORE_BYTES_LEAST = 80_000_000
"""Ray refuses an object store of less than 78,643,200 bytes."""
SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket."""
SESSION_PATH_BYTES = 94
"""What Ray, and the directory of ours, append to the temporary directory for its sockets."""
OWN_SETTINGS = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # A wrong token would be tried for 20 seconds.
    "RAY_NUM_REDIS_GET_RETRIES": "3",
}
"""Ray's settings while a session lasts, where the environment does not set them: no banners, no reports to Ray."""
WANTS_TOKEN = "the cluster asks for a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to its file"


@dataclass(frozen=True, slots=True)
class Session:
    """A Ray cluster that can be used now."""

    cpus: int
    own: bool
    """Started for this run, on this machine."""


@contextmanager
def session(address: str | None = None, *, workers: int, store_bytes: int) -> Iterator[Session]:
    """Ray for as long as the context lasts.

    Parameters
    ----------
    address
        `auto`, `host:port` or `ray://host:port` of a cluster; the environment's RAY_ADDRESS where it is None; without
        either, Ray is started on this machine and ended with the context. A process that is connected to Ray already
        stays with that.
    workers
        CPUs of a cluster that is started.
    store_bytes
        What the object store of a cluster that is started will hold.

    Raises
    ------
    ClusterUnreachable
        There is no cluster at the address, or it does not let us in.
    RunFailed
        Ray cannot be started on this machine.
    """
    if ray.is_initialized():
        yield Session(cpus=cluster_cpus(), own=False)
        return
    address = address or os.environ.get("RAY_ADDRESS")
    with ExitStack() as stack:
        stack.enter_context(ray_settings())
        stack.enter_context(terminated_as_interrupted())
        stack.enter_context(raylets_unheard())
        yield stack.enter_context(connected(address) if address else started(workers, store_bytes))


def cluster_cpus() -> int:
    """CPUs of the cluster that this process is connected to."""
    resources: Any = ray.cluster_resources
    return int(resources().get("CPU", 0))


@contextmanager
def ray_settings() -> Iterator[None]:
    """The environment as Ray should see it; afterwards as it was."""
    before = dict(os.environ)
    for name, value in OWN_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith("RAY_") and name not in before]:
            del os.environ[name]


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does. Ray would set a handler of its own, and leave it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def raylets_unheard() -> Iterator[None]:
    """Without Ray's messages about its processes, which go to standard output whatever `ray.init` is told."""
    before = stdout_deduplicator.skip_re
    stdout_deduplicator.skip_re = re.compile("")
    try:
        yield
    finally:
        stdout_deduplicator.skip_re = before


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C and SIGTERM take effect when the context ends, not within it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    handlers = {sent: signal.getsignal(sent) for sent in (signal.SIGINT, signal.SIGTERM)}
    for sent in handlers:
        signal.signal(sent, lambda number, _: held.append(number))
    try:
        yield
    finally:
        for sent, handler in handlers.items():
            signal.signal(sent, handler)
        if held:
            signal.raise_signal(held[0])


def init(**arguments: Any) -> None:
    """`ray.init`, silently, with SIGTERM taken as Ctrl-C."""
    ray.init(logging_level=logging.CRITICAL, log_to_driver=False, **arguments)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)


@functools.cache
def own_token() -> str:
    """What keeps other users of this machine out of our cluster; Ray remembers it for the life of the process."""
    return secrets.token_hex(32)


@contextmanager
def started(workers: int, store_bytes: int) -> Iterator[Session]:
    """Ray on this machine, gone without trace when the context ends. Raises RunFailed."""
    # With a token at hand, Ray writes none to the home directory.
    os.environ.setdefault("RAY_AUTH_TOKEN", own_token())
    remove_abandoned()
    directory = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=temporary_directory())
    try:
        try:
            init(
                address="local",
                num_cpus=workers,
                num_gpus=0,
                object_store_memory=STORE_BYTES_LEAST + store_bytes,
                include_dashboard=False,
                _temp_dir=directory,
            )
        except (RuntimeError, ConnectionError, OSError, ValueError) as error:
            raise RunFailed(
                f"Ray could not be started on this machine: {first_line(error)}; --executor inline runs without it"
            ) from error
        yield Session(cpus=workers, own=True)
    finally:
        with interrupts_held():
            ray.shutdown(wait_for_processes=True)
            shutil.rmtree(directory, ignore_errors=True)


PREFIX = "replay-ray-"


def temporary_directory() -> str:
    """The temporary directory, if a socket's path fits below it."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) + SESSION_PATH_BYTES <= SOCKET_PATH_BYTES else "/tmp"


def remove_abandoned() -> None:
    """Remove the directories of drivers that were killed and could not."""
    for path in Path(temporary_directory()).glob(f"{PREFIX}*-*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError, ValueError):
            if path.stat().st_uid == os.getuid() and not is_running(int(pid)):
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def connected(address: str) -> Iterator[Session]:
    """A connection to a running cluster, which stays when the context ends. Raises ClusterUnreachable and BadConfig."""
    with ExitStack() as stack:
        arguments: dict[str, Any] = {}
        if not in_job() and probed(address)["digest"] != source_digest():
            arguments["runtime_env"] = {"working_dir": str(stack.enter_context(staged_package()))}
        stack.callback(ray.shutdown)
        try:
            init(address=address, **arguments)
        except (RuntimeError, ConnectionError, OSError, ValueError) as error:
            raise ClusterUnreachable(f"{address}: {first_line(error)}") from error
        yield Session(cpus=cluster_cpus(), own=False)


def in_job() -> bool:
    """Whether this process is the driver of a submitted job, whose package Ray gives to all its workers."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def probed(address: str) -> dict[str, Any]:
    """What the cluster at an address has: `cpus`, and the `digest` of our package there, None without one.

    The question is asked by another process: Ray's attempt to connect can neither be interrupted nor told to be quiet,
    and ends its process when it fails. Raises ClusterUnreachable and BadConfig.
    """
    check_port(address)
    command = [sys.executable, "-P", str(Path(__file__).with_name("probe.py")), address]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        raise ClusterUnreachable(f"{address}: no Ray cluster answers there (waited {PROBE_TIMEOUT_S:.0f} s)") from None
    if "Unauthenticated" in done.stdout + done.stderr:
        raise ClusterUnreachable(f"{address}: {WANTS_TOKEN}")
    line = done.stdout.strip().rpartition("\n")[2]
    found: dict[str, Any] = json.loads(line) if line.startswith("{") else {"error": "no Ray cluster answers there"}
    if "error" in found:
        raise ClusterUnreachable(f"{address}: {found['error']}")
    return found


def check_port(address: str) -> None:
    """See that something listens at an address. Raises ClusterUnreachable, and BadConfig for what is no address."""
    if address == "auto":
        return
    if address.startswith(("http://", "https://")):
        raise BadConfig(
            f"--address {address}: that is for replay submit; a run takes auto, host:port or ray://host:port"
        )
    host, colon, port = address.removeprefix("ray://").rstrip("/").rpartition(":")
    if not colon or not host or not port.isdigit():
        raise BadConfig(f"--address {address}: must be auto, host:port or ray://host:port")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=TCP_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ClusterUnreachable(f"{address}: no Ray cluster answers there ({reason})") from None


def first_line(error: BaseException) -> str:
    """What an error of Ray says before it goes on at length."""
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__
