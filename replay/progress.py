"""Progress and time left, on standard error, for whatever takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 2.0

Report = Callable[[float], None]
"""Told the share that is done, from 0 to 1."""


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Report]:
    """A bar for `what`, which appears once it has taken two seconds."""
    if quiet:
        yield lambda _: None
        return
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
