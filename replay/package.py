"""This package as a cluster's nodes can import it: what its wheel holds, in a directory.

Ray would install a wheel with pip, which fetches every dependency again. A directory that holds nothing else is as
good, needs no network, and no package of the user's shadows ours.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "llm-traffic-replay"
PACKAGES = ("replay", "trace_schema", "connectors", "queries")
METADATA = ("METADATA", "entry_points.txt")


@contextmanager
def staged_package() -> Iterator[Path]:
    """A temporary directory that holds the import packages, with the metadata of their distribution."""
    with tempfile.TemporaryDirectory(prefix="replay-package-") as name:
        stage = Path(name)
        for package in PACKAGES:
            spec = find_spec(package)
            assert spec is not None
            assert spec.origin is not None
            shutil.copytree(Path(spec.origin).parent, stage / package, ignore=shutil.ignore_patterns("__pycache__"))
        write_metadata(stage)
        yield stage


def write_metadata(stage: Path) -> None:
    """Beside the packages, what `importlib.metadata` reads of them: version and connectors."""
    try:
        found = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return
    target = stage / f"{DISTRIBUTION.replace('-', '_')}-{found.version}.dist-info"
    target.mkdir()
    for name in METADATA:
        text = found.read_text(name) or (found.read_text("PKG-INFO") if name == "METADATA" else None)
        if text:
            (target / name).write_text(text)
