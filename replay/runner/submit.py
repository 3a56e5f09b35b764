"""A run as a job of a Ray cluster: its driver is there, too, and goes on when the laptop is shut."""

from __future__ import annotations

import asyncio
import logging
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus, JobSubmissionClient

from replay.config import is_file, listed, read_experiment
from replay.errors import BadConfig, BadInput, ClusterUnreachable, RunFailed
from replay.package import staged_package
from replay.runner.session import WANTS_TOKEN, check_port, first_line

UPLOAD_BYTES_MOST = 400 << 20
"""Ray takes packages up to 512 MiB (its largest message), and sends them whole."""
STATUS_INTERVAL_S = 1.0
CHATTERERS = ("ray.dashboard.modules.job.sdk", "ray.dashboard.modules.dashboard_sdk")
"""Loggers that would tell of uploads and sockets among the lines of the job's own log."""


@dataclass(slots=True)
class Luggage:
    """The files of this machine that go with a job."""

    stage: Path
    names: dict[str, str] = field(default_factory=dict)
    """Where each file is for the job."""

    def take(self, path: str) -> str:
        """A file or directory under the name that it has for the job."""
        source = Path(path).resolve()
        if str(source) not in self.names:
            name = f"inputs/{len(self.names)}-{source.name}"
            target = self.stage / name
            target.parent.mkdir(exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target)
            else:
                shutil.copyfile(source, target)
            self.names[str(source)] = name
        return self.names[str(source)]

    def take_if_here(self, name: Any) -> Any:
        """A policy or profile: where it is for the job if a file of this machine holds it, else as it was."""
        return self.take(name) if is_file(name) and Path(name).is_file() else name

    def take_experiment(self, path: str) -> str:
        """An experiment file, with the files that it names. Raises BadConfig."""
        settings = read_experiment(path)
        for key in ("profile", "policies"):
            if settings.get(key) is not None:
                settings[key] = [self.beside(self.take_if_here(name)) for name in listed(settings[key])]
        if settings.get("as_logged") is not None:
            settings["as_logged"] = self.take_if_here(settings["as_logged"])
        name = f"inputs/{len(self.names)}-{Path(path).name}"
        self.names[str(Path(path).resolve())] = name
        (self.stage / "inputs").mkdir(exist_ok=True)
        (self.stage / name).write_text(yaml.safe_dump(settings, sort_keys=False))
        return name

    @staticmethod
    def beside(name: Any) -> Any:
        """The name of a file that was taken, as another one beside it knows it."""
        return name.removeprefix("inputs/") if isinstance(name, str) else name

    def check_size(self) -> None:
        """Raises BadInput when there is more than Ray takes."""
        for path in sorted(self.stage.glob("inputs/*"), key=size_bytes, reverse=True):
            if size_bytes(path) > UPLOAD_BYTES_MOST:
                raise BadInput(
                    f"{path.name.partition('-')[2]}: {size_bytes(path) >> 20:,} MB are too much to go with a job; "
                    "put it where the cluster can read it, and give the path that it has there"
                )


def size_bytes(path: Path) -> int:
    """Bytes of a file, or of all files below a directory."""
    return sum(p.stat().st_size for p in [path, *path.rglob("*")] if p.is_file())


def packed(values: Mapping[str, Any], luggage: Luggage) -> dict[str, Any]:
    """The parameters of a run as the job has them, once the files that they name are taken along.

    Raises BadConfig for results that would be lost with the job, and BadInput for a trace that is nowhere.
    """
    output = str(values["output"])
    if not output.startswith("/"):
        raise BadConfig(
            f"-o {output}: a job's results need an absolute path, on a disk that all nodes of the cluster share"
        )
    changed = dict(values)
    trace = str(values["trace"])
    if Path(trace).exists():
        changed["trace"] = luggage.take(trace)
    elif ":" not in trace and not trace.startswith("/"):
        raise BadInput(f"{trace}: no such file; a path on the cluster begins with /")
    for name in ("policies", "profile"):
        changed[name] = tuple(luggage.take_if_here(value) for value in values.get(name) or ())
    changed["as_logged"] = luggage.take_if_here(values.get("as_logged"))
    if values.get("config"):
        changed["config"] = luggage.take_experiment(str(values["config"]))
    luggage.check_size()
    return changed


@contextmanager
def luggage() -> Iterator[Luggage]:
    """Room for a job's files, beside this package."""
    with staged_package() as stage:
        yield Luggage(stage)


def connect(address: str) -> JobSubmissionClient:
    """The Jobs API at an address. Raises ClusterUnreachable and BadConfig."""
    url = urlsplit(address if "://" in address else f"http://{address}")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise BadConfig(f"--address {address}: a job is submitted to the dashboard, such as http://head:8265")
    for name in CHATTERERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    check_port(f"{url.hostname}:{url.port or (443 if url.scheme == 'https' else 80)}")
    try:
        return JobSubmissionClient(url.geturl())
    except AuthenticationError:
        raise ClusterUnreachable(f"{address}: {WANTS_TOKEN}") from None
    except (RuntimeError, ConnectionError, ValueError) as error:
        raise ClusterUnreachable(f"{address}: no Ray dashboard answers there ({first_line(error)})") from error


def start(client: JobSubmissionClient, arguments: list[str], stage: Path) -> str:
    """Submit `replay ARGUMENTS` with the files of `stage`; the job's id. Raises ClusterUnreachable."""
    try:
        job: str = client.submit_job(
            entrypoint=shlex.join(["python", "-m", "replay", *arguments]),
            runtime_env={"working_dir": str(stage), "env_vars": {"PYTHONUNBUFFERED": "1"}},
        )
    except (RuntimeError, ConnectionError, ValueError) as error:
        raise ClusterUnreachable(f"the job was not taken: {first_line(error)}") from error
    return job


def follow(client: JobSubmissionClient, job: str) -> int:
    """Show a job's log on standard error until it ends; the exit code of its driver.

    Ctrl-C stops the job. Raises RunFailed when the job could not run, or was stopped.
    """

    async def show() -> None:
        async for text in client.tail_job_logs(job):
            print(text, end="", file=sys.stderr, flush=True)

    try:
        try:
            asyncio.run(show())
        except (RuntimeError, OSError) as error:
            print(f"the log of job {job} cannot be followed: {first_line(error)}", file=sys.stderr)
        return ended(client, job)
    except KeyboardInterrupt:
        client.stop_job(job)
        raise
    except OSError as error:
        raise ClusterUnreachable(f"the cluster was lost ({first_line(error)}); job {job} may go on there") from error


def ended(client: JobSubmissionClient, job: str) -> int:
    """The exit code of a job's driver, once it has ended. Raises RunFailed."""
    while not (details := client.get_job_info(job)).status.is_terminal():
        time.sleep(STATUS_INTERVAL_S)
    if details.status == JobStatus.STOPPED:
        raise RunFailed(f"job {job} was stopped")
    if details.driver_exit_code is None:
        raise RunFailed(f"job {job} could not run: {first_line(RuntimeError(details.message or 'no reason is given'))}")
    return int(details.driver_exit_code)
