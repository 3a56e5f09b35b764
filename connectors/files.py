"""Reading logs as bytes: compressed or not, whole or cut short."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import IO, cast

import pyarrow as pa

from trace_schema.errors import BadInput

HEAD_BYTES = 65_536
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
CUT_SHORT = "the file ends in the middle of compressed data"


def open_bytes(path: str) -> IO[bytes]:
    """The decompressed content of a file (gzip and zstd are known by their first bytes). Raises BadInput."""
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise BadInput.at(path, f"cannot be read: {error.strerror}") from error
    if magic.startswith(GZIP):
        return cast(IO[bytes], gzip.open(path, "rb"))
    if magic == ZSTD:
        return cast(IO[bytes], pa.input_stream(path, compression="zstd"))
    return open(path, "rb")


def head(path: str) -> bytes:
    """The first bytes of a file's content. Raises BadInput."""
    with open_bytes(path) as file:
        try:
            return file.read(HEAD_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            raise BadInput.at(path, f"cannot be decompressed: {error}") from error


def lines(path: str) -> Iterator[tuple[int, bytes | None]]:
    """(1-based number, line) of each line that is not blank; a last (number, None) where compressed data break off."""
    number = 0
    with open_bytes(path) as file:
        while True:
            number += 1
            try:
                line = file.readline()
            except (OSError, EOFError, zlib.error):
                yield number, None
                return
            if not line:
                return
            if line.strip():
                yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
