"""A Ray cluster that the tests start on this machine, with a token, and end by its process."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.runner.processes import descendants, wait_for

CODE = "import sys; from replay.cli import main; main(sys.argv[1:])"


@dataclass(frozen=True, slots=True)
class Head:
    """Where a cluster answers, and how one is let in."""

    gcs: str
    client: str
    dashboard: str
    token: dict[str, str]
    environment: dict[str, str]
    """Of its processes, and of those of another node."""

    def replay(self, *arguments: str, token: bool = True) -> subprocess.CompletedProcess[str]:
        """A command of a person who has the token, or not."""
        environment = outside() | (self.token if token else {})
        command = [sys.executable, "-c", CODE, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=240, env=environment, stdin=subprocess.DEVNULL
        )


def outside() -> dict[str, str]:
    """The environment of a process that no test has prepared."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "REPLAY_RUN_"))}


def free_ports(n: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def answers(url: str) -> bool:
    """Whether a web server says anything, be it that it wants a token."""
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="session")
def head() -> Iterator[Head]:
    """A cluster with two CPUs, whose nodes have no package of ours."""
    place = Path(tempfile.mkdtemp(prefix="rh-", dir="/tmp"))  # a socket's path is short
    shadow = place / "shadow" / "replay" / "__init__.py"
    shadow.parent.mkdir(parents=True)
    shadow.write_text("raise ImportError('there is no replay on this node')")
    (place / "token").write_text("0123456789abcdef" * 4)
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(place / "token")}
    gcs, client, dashboard, agent = free_ports(4)
    command = [
        sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={gcs}", "--num-cpus=2",
        "--node-ip-address=127.0.0.1", f"--ray-client-server-port={client}", f"--dashboard-port={dashboard}",
        f"--dashboard-agent-listen-port={agent}", f"--temp-dir={place / 'ray'}", "--object-store-memory=80000000",
        "--disable-usage-stats",
    ]  # fmt: skip
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = outside() | token | {"PATH": path, "PYTHONPATH": str(shadow.parents[1])}
    with (place / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        assert wait_for(lambda: answers(f"http://127.0.0.1:{dashboard}/api/version")), (place / "log").read_text()
        yield Head(f"127.0.0.1:{gcs}", f"ray://127.0.0.1:{client}", f"http://127.0.0.1:{dashboard}", token, environment)
    finally:
        ours = descendants("", of=process.pid)
        process.terminate()
        try:
            process.wait(20)
        finally:
            kill_all(ours)
            shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def node(head: Head) -> Iterator[subprocess.Popen[bytes]]:
    """Another node of the cluster, with two CPUs of its own."""
    (agent,) = free_ports(1)
    command = [
        sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--address={head.gcs}", "--num-cpus=2",
        "--node-ip-address=127.0.0.2", f"--dashboard-agent-listen-port={agent}", "--object-store-memory=80000000",
        "--disable-usage-stats",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, env=head.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert wait_for(lambda: bool(descendants("ray::DashboardAgent", of=process.pid)))
    yield process
    kill_all([process.pid, *descendants("", of=process.pid)])
    process.wait(20)


def kill_all(pids: list[int]) -> None:
    """End processes, as if their machine had lost its power."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
