"""Files that lie elsewhere: s3://bucket/trace.parquet, gs://..., abfs://..., file:///...; and patterns of them."""

from __future__ import annotations

import fnmatch
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from replay.errors import BadInput

PATTERN = re.compile(r"[*\[]")
"""Begins what is a pattern; a question mark begins the settings of a store, as in s3://bucket/x?region=eu-west-1."""
DEEP = re.compile(r"\*\*/?")
FAILURES = (pa.ArrowException, OSError, ValueError)


def is_uri(path: str) -> bool:
    return "://" in path


def located(uri: str) -> tuple[fs.FileSystem, str]:
    """(the file system, the path in it). Raises what Arrow raises."""
    system, path = fs.FileSystem.from_uri(uri)
    return system, path


@contextmanager
def fetched(uri: str) -> Iterator[str]:
    """The path of a copy on this machine, for as long as the context lasts. Raises BadInput."""
    with tempfile.TemporaryDirectory(prefix="replay-fetched-") as directory:
        try:
            system, path = located(uri)
            if system.get_file_info(path).type != fs.FileType.File:
                raise BadInput(f"{uri}: there is no such file")
            local = Path(directory) / path.rpartition("/")[2]
            fs.copy_files(path, str(local), source_filesystem=system, destination_filesystem=fs.LocalFileSystem())
        except FAILURES as error:
            raise unreadable(uri, error) from error
        yield str(local)


def matching(uri: str) -> list[str]:
    """The URIs of the files that match a pattern, in order; the URI itself where it is none. Raises BadInput."""
    place, question, settings = uri.partition("?")
    if not PATTERN.search(place):
        return [uri]
    start = PATTERN.split(place)[0].rpartition("/")[0]
    try:
        system, base = located(start + question + settings)
        found = system.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
    except FAILURES as error:
        raise unreadable(uri, error) from error
    tails = (file.path[len(base) :] for file in found if file.type == fs.FileType.File)
    wanted = like(place[len(start) :])
    return sorted(start + tail + question + settings for tail in tails if wanted.fullmatch(tail))


def like(pattern: str) -> re.Pattern[str]:
    """What a pattern of paths matches: * stays within a directory, ** goes through many."""
    between = [fnmatch.translate(part).removesuffix(r"\Z").replace(".*", "[^/]*") for part in DEEP.split(pattern)]
    return re.compile(".*".join(between))


def unreadable(uri: str, error: Exception) -> BadInput:
    return BadInput(f"{uri}: cannot be read: {str(error).strip().splitlines()[0]}")
