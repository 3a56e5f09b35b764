"""Files of a run directory, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from replay.errors import BadConfig
from replay.files import parquet_bytes, write_whole

PARQUET = b"PAR1"
"""How a Parquet file ends."""


class Store:
    """A run directory."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def create(self) -> None:
        """Make the directory. Raises BadConfig when it cannot be written."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadConfig(f"{self.root}: cannot be made: {error.strerror}") from error
        if not os.access(self.root, os.W_OK):
            raise BadConfig(f"{self.root}: cannot be written: permission denied")

    def read(self, name: str) -> bytes | None:
        """The content of a file; None when it is not there. Raises BadConfig when it cannot be read."""
        path = self.root / name
        try:
            return path.read_bytes() if path.exists() else None
        except OSError as error:
            raise BadConfig(f"{path}: cannot be read: {error.strerror}") from error

    def holds_table(self, name: str) -> bool:
        """Whether a table was written, and is whole as far as its ends tell."""
        try:
            with (self.root / name).open("rb") as file:
                file.seek(-len(PARQUET), os.SEEK_END)
                return file.read() == PARQUET
        except OSError:
            return False

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole or not at all. Raises BadConfig."""
        target = self.root / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadConfig(f"{target}: cannot be written: {error.strerror}") from error
        write_whole(target, content)

    def discard_leftovers(self, name: str) -> None:
        """Remove what processes that were killed left of a file that they were writing."""
        target = self.root / name
        for leftover in target.parent.glob(f".{target.name}.*.tmp"):
            leftover.unlink(missing_ok=True)

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write a table as Parquet, as `write` does."""
        self.write(name, parquet_bytes(table))
