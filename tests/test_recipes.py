"""The recipes of CONTRIBUTING.md, followed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from connectors.registry import connector, names
from replay.ingest import ingest

CONNECTOR = """
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from connectors.base import Batch
from connectors.rows import attempts_of


class MyLog:
    name = "mylog"
    describes = "lines of: seconds, prompt tokens, output tokens"

    def sniff(self, head: bytes, path: str) -> float:
        return 1.0 if head.startswith(b"#mylog") else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        lines = Path(path).read_text().splitlines()[1:]
        rows = [line.split() for line in lines]
        columns = dict(zip(("arrival_s", "prompt_tokens", "output_tokens"), map(list, zip(*rows))))
        numbers = np.arange(2, 2 + len(rows))
        yield attempts_of(columns, numbers, source_format=self.name, source_file=path)
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package outside this one that registers a connector by entry point."""
    (tmp_path / "my_package_mylog.py").write_text(CONNECTOR)
    info = tmp_path / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[replay.connectors]\nmylog = my_package_mylog:MyLog\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@pytest.mark.usefixtures("installed")
def test_a_connector_from_outside_reads_like_a_built_in(tmp_path: Path) -> None:
    assert "mylog" in names()
    assert connector("mylog").describes.startswith("lines of")
    log = tmp_path / "log"
    log.write_text("#mylog\n0.5 100 10\n1.5 -3 10\n2.5 200 20\n")
    trace = ingest([str(log)])
    assert trace.calls["prompt_tokens"].to_pylist() == [100, 200]
    assert trace.report is not None
    (file,) = trace.report.files
    assert (file.format, file.rows_read, file.rows_emitted) == ("mylog", 3, 2)
    assert file.dropped == {"prompt_tokens is negative": (1, [3])}
