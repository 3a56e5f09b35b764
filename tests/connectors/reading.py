"""What a connector reads of a file, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from connectors.base import Dropped
from connectors.registry import connector
from tests.connectors.examples import WITH_BAD_ROWS

Row = dict[str, Any]


def rows_of(path: Path, format: str, **options: Any) -> tuple[list[Row], dict[str, tuple[int, list[int]]]]:
    """(what is known of each attempt, rows dropped by reason) of a file."""
    found: list[Row] = []
    dropped, read = Dropped(), 0
    for batch in connector(format, options=options).read(str(path)):
        found += batch.attempts.to_pylist()
        dropped.merge(batch.dropped)
        read += batch.rows_read
    assert read == len(found) + dropped.total
    return [{key: value for key, value in row.items() if value is not None} for row in found], dropped.reasons


def trap(name: str, **options: Any) -> tuple[list[Row], dict[str, tuple[int, list[int]]]]:
    """`rows_of` a log with traps, called after its format."""
    return rows_of(WITH_BAD_ROWS / name, name.split(".")[0], **options)


def column(rows: list[Row], name: str) -> list[Any]:
    return [row.get(name) for row in rows]
