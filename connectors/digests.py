"""The SHA-256 of a file that is read anyway, without reading it twice."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

KNOWN: dict[str, str] = {}
"""Digests of files that are being read in a `digested` context, and have been read to their end, by path."""
WANTED: set[str] = set()


@contextmanager
def digested(path: str) -> Iterator[Callable[[], str]]:
    """What gives the digest of a file: of the bytes as `raw` read them meanwhile, or else by reading it."""
    WANTED.add(path)
    try:
        yield lambda: KNOWN.get(path) or digest(path)
    finally:
        WANTED.discard(path)
        KNOWN.pop(path, None)


def digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def raw(path: str) -> io.BufferedReader:
    """The bytes of a file; they are hashed on the way where its digest is wanted. Raises OSError."""
    return io.BufferedReader(Hashed(path) if path in WANTED else io.FileIO(path))


class Hashed(io.FileIO):
    """A file that is read from its start to its end, if its digest is to be known then."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path
        self.sha = hashlib.sha256()
        self.hashed = 0

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        if count:
            self.sha.update(memoryview(buffer)[:count])
            self.hashed += count
        elif self.hashed == self.tell():
            KNOWN[self.path] = self.sha.hexdigest()
        return count
