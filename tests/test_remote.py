"""A trace may lie elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.errors import BadInput
from replay.ingest import read_trace


def test_a_trace_at_a_uri_is_the_trace_in_the_file(log_file: str) -> None:
    assert read_trace(f"file://{log_file}").calls.equals(read_trace(log_file).calls)


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("file:///nowhere/trace.parquet", "there is no such file"),
        ("gopher://host/trace.parquet", "cannot be read: Unrecognized filesystem type"),
    ],
    ids=["no file", "no such system"],
)
def test_what_cannot_be_fetched_is_named(uri: str, says: str) -> None:
    with pytest.raises(BadInput, match=f"^{uri}: {says}"):
        read_trace(uri)


def test_what_is_wrong_with_a_fetched_trace_is_said_of_its_uri(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"call": 1}\n')
    with pytest.raises(BadInput, match=f"file://{bad}"):
        read_trace(f"file://{bad}")
