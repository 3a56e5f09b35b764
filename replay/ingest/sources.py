"""What people name when they say which logs to read: files and patterns."""

from __future__ import annotations

import glob
from collections.abc import Sequence

from replay.errors import BadInput


def expand(paths: Sequence[str]) -> list[str]:
    """The files that `paths` name, patterns expanded. Raises BadInput when one names none."""
    files = []
    for path in paths:
        found = sorted(glob.glob(path)) if any(c in path for c in "*?[") else [path]
        if not found:
            raise BadInput.at(path, "no file matches")
        files += found
    return files
