"""What a connector is: it knows its format when it sees it, and reads it as batches of attempts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

ROWS_NAMED = 3
"""Rows named for each reason for which rows are dropped."""


@dataclass(slots=True)
class Dropped:
    """Rows that could not be used, by reason: how many, and the first of them (1-based)."""

    reasons: dict[str, tuple[int, list[int]]] = field(default_factory=dict)

    def add(self, reason: str, row: int, count: int = 1) -> None:
        """`count` rows were dropped for `reason`, `row` among them."""
        number, rows = self.reasons.get(reason, (0, []))
        self.reasons[reason] = (number + count, rows if len(rows) >= ROWS_NAMED else [*rows, row])

    def add_all(self, reason: str, rows: Iterable[int]) -> None:
        """`rows` were dropped for `reason`."""
        for row in rows:
            self.add(reason, int(row))

    def merge(self, later: Dropped) -> None:
        """The rows of a later part of the file."""
        for reason, (count, rows) in later.reasons.items():
            number, named = self.reasons.get(reason, (0, []))
            self.reasons[reason] = (number + count, [*named, *rows][:ROWS_NAMED])

    @property
    def total(self) -> int:
        return sum(number for number, _ in self.reasons.values())


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a log: those that became attempts (schema ATTEMPTS), and those that did not."""

    attempts: pa.Table
    dropped: Dropped
    shared: int = 0
    """Attempts that stand in the row of the one before: a gateway writes its own tries into one line."""

    @property
    def rows_read(self) -> int:
        return int(self.attempts.num_rows) - self.shared + self.dropped.total


class Connector(Protocol):
    """One log format. A connector object holds what the user said about the log, and no state of a read.

    One whose class has a record `Options` (a msgspec.Struct of defaults) is made from such a record: what the user must
    be able to say because the file does not, as with `--option hash_block_tokens=16`.

    One may say two things more. `sees = "engine"`: its rows are what an engine ran, so that they complete those of a
    gateway. `notes(attempts)`: what this file cannot show, and the setting that would make it, a sentence each.
    """

    name: str
    describes: str
    """One line for `replay formats`: whose log it is, and what it holds."""

    def sniff(self, head: bytes, path: str) -> float:
        """How sure it is, from 0 to 1, that a file which starts with `head` (decompressed) is of its format."""
        ...

    def read(self, path: str) -> Iterator[Batch]:
        """The file's rows in batches; every row is in a batch, as an attempt or as a dropped row.

        Raises BadInput when the file as a whole cannot be read.
        """
        ...
