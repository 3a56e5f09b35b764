"""From log files to a trace: a Parquet file of calls that remembers what was read, guessed and dropped.

`logs.py` leads through it: `sources.py` says which files, `reading.py` reads one, `clock.py` puts them on one clock,
`trace_schema.fold` makes calls of attempts, `report.py` accounts for every row, `trace.py` is the file that comes out.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from replay.ingest.clock import from_start, resolution
from replay.ingest.logs import ingest, read_trace
from replay.ingest.report import FileReport, Report
from replay.ingest.trace import METADATA, About, Trace, write_attempts, write_trace
from replay.ingest.turns import Sessions
from replay.ingest.users import SYNTHETIC, lay_users, made_trace, scale_trace

__all__ = [
    "METADATA",
    "SYNTHETIC",
    "About",
    "FileReport",
    "Report",
    "Sessions",
    "Trace",
    "from_start",
    "ingest",
    "lay_users",
    "made_trace",
    "read_trace",
    "resolution",
    "scale_trace",
    "write_attempts",
    "write_trace",
]


class Ingest(ModuleType):
    """This package, which is also the function: `replay.ingest(["attempts.jsonl"])`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Trace:
        return ingest(*args, **kwargs)


sys.modules[__name__].__class__ = Ingest
