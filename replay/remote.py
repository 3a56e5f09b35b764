"""Files that lie elsewhere: s3://bucket/trace.parquet, gs://..., abfs://..., file:///..."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from replay.errors import BadInput


def is_uri(path: str) -> bool:
    return "://" in path


@contextmanager
def fetched(uri: str) -> Iterator[str]:
    """The path of a copy on this machine, for as long as the context lasts. Raises BadInput."""
    with tempfile.TemporaryDirectory(prefix="replay-fetched-") as directory:
        try:
            system, path = fs.FileSystem.from_uri(uri)
            if system.get_file_info(path).type != fs.FileType.File:
                raise BadInput(f"{uri}: there is no such file")
            local = Path(directory) / path.rpartition("/")[2]
            fs.copy_files(path, str(local), source_filesystem=system, destination_filesystem=fs.LocalFileSystem())
        except (pa.ArrowException, OSError, ValueError) as error:
            raise BadInput(f"{uri}: cannot be read: {str(error).strip().splitlines()[0]}") from error
        yield str(local)
