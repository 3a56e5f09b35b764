"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from replay.errors import BadConfig


@contextmanager
def whole_file(path: Path | str) -> Iterator[BinaryIO]:
    """A file under a temporary name, renamed when all is written; nothing is left of one that fails or is interrupted.

    Raises BadConfig when it cannot be written.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
        os.replace(temporary, target)
    except OSError as error:
        raise BadConfig(f"{target}: cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_whole(path: Path | str, content: bytes) -> None:
    """Write a file whole or not at all. Raises BadConfig when it cannot be written."""
    with whole_file(path) as file:
        file.write(content)


def parquet_bytes(table: pa.Table) -> bytes:
    """A table as the content of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content
