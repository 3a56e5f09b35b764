"""Progress and time left, on standard error, for whatever takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 2.0
EVERY_S = 10.0
"""Seconds between two lines where standard error is no terminal."""

Report = Callable[[float], None]
"""Told the share that is done, from 0 to 1."""


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Report]:
    """A bar for `what`, which appears once it has taken two seconds; lines of a log where nobody sees a bar."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        with bar(what) as report:
            yield report
    else:
        yield lines(what)


def lines(what: str) -> Report:
    """A line now and then: what is done, and the time left at this pace."""
    began = time.monotonic()
    due = began + PATIENCE_S

    def report(share: float) -> None:
        nonlocal began, due
        now = time.monotonic()
        if share <= 0:
            began, due = now, now + PATIENCE_S  # workers that are yet to start say nothing of the pace
        if now < due or not 0 < share < 1:
            return
        due = now + EVERY_S
        left = (now - began) * (1 - share) / share
        print(f"{what}: {share:.0%} after {now - began:.0f} s, {left:.0f} s left", file=sys.stderr)

    return report


@contextmanager
def bar(what: str) -> Iterator[Report]:
    """A bar with the time left, gone when the work is done."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(), console=Console(file=sys.stderr), transient=True,
    )  # fmt: skip
    task = bar.add_task(what, total=1.0)
    began = time.monotonic()

    def report(share: float) -> None:
        if not bar.live.is_started and time.monotonic() - began > PATIENCE_S:
            bar.start()
        bar.update(task, completed=share)

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()
