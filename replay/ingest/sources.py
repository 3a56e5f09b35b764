"""What people name when they say which logs to read: files, patterns, URIs of either, and the standard input."""

from __future__ import annotations

import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from replay.errors import BadInput
from replay.remote import fetched, is_uri, matching

STDIN = "-"


@dataclass(frozen=True, slots=True)
class Source:
    """One log, by the name that the user knows it by."""

    name: str
    file: str | None = None
    """Where it lies on this machine, if that is known already."""

    @contextmanager
    def local(self) -> Iterator[str]:
        """Where it lies on this machine, for as long as the context lasts. Raises BadInput, which knows it by name."""
        with self.here() as path:
            try:
                yield path
            except BadInput as error:
                raise BadInput(str(error).replace(path, self.name)) from error

    @contextmanager
    def here(self) -> Iterator[str]:
        if self.file is not None:
            yield self.file
        elif self.name == STDIN:
            with spooled() as path:
                yield path
        elif is_uri(self.name):
            with fetched(self.name) as path:
                yield path
        elif os.path.isdir(self.name):
            raise BadInput.at(self.name, "is a directory; name its files")
        else:
            yield self.name


def sources(paths: Sequence[str]) -> list[Source]:
    """The logs that `paths` name, patterns expanded. Raises BadInput when one names none."""
    if paths.count(STDIN) > 1:
        raise BadInput("the standard input can be read once: name - once")
    found = []
    for path in paths:
        names = matching(path) if is_uri(path) else matching_here(path)
        if not names:
            raise BadInput.at(path, "no file matches")
        found += [Source(name) for name in names]
    return found


def matching_here(path: str) -> list[str]:
    """The files that match a pattern; the path itself where it is none, or is the name of a file all the same."""
    if os.path.exists(path) or not glob.has_magic(path):
        return [path]
    return sorted(name for name in glob.glob(path, recursive=True) if not os.path.isdir(name))


@contextmanager
def spooled() -> Iterator[str]:
    """The standard input as a file, which can be read from its start more than once. Raises BadInput."""
    if sys.stdin.isatty():
        raise BadInput("-: the standard input is a terminal; pipe a log into it")
    with tempfile.TemporaryDirectory(prefix="replay-stdin-") as directory:
        path = Path(directory) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield str(path)
