"""The trace file: small, whole, and read without what it does not say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replay.errors import BadInput
from replay.ingest import ingest, read_trace, write_trace
from trace_schema.calls import CALLS


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A log of times and lengths alone."""
    path = tmp_path / "log.csv"
    rng = np.random.default_rng(0)
    times, lengths = np.sort(rng.uniform(0, 5e5, 300_000)), rng.integers(1, 5000, (300_000, 2))
    rows = (f"{t:.6f},{p},{o}\n" for t, (p, o) in zip(times, lengths, strict=True))
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(rows))
    return str(path)


def test_columns_without_a_value_are_left_out_of_the_file_and_null_in_the_trace(log: str, tmp_path: Path) -> None:
    trace, path = ingest([log]), str(tmp_path / "trace.parquet")
    write_trace(trace, path)
    written = pq.read_schema(path).names
    assert "tenant" not in written
    assert {"call_id", "arrival_s", "prompt_tokens", "output_tokens"} <= set(written)
    again = read_trace(path)
    assert again.calls.schema.equals(CALLS.arrow)
    assert again.calls["tenant"].null_count == again.calls.num_rows
    assert again.calls.equals(trace.calls)


def test_what_is_the_same_in_every_call_takes_no_memory_when_a_trace_is_read(log: str, tmp_path: Path) -> None:
    path = str(tmp_path / "trace.parquet")
    write_trace(ingest([log]), path)
    before = pa.total_allocated_bytes()
    trace = read_trace(path)
    varying = 2 * 8 + 8 + 2 * 4  # two ids, the arrival, two lengths
    assert (pa.total_allocated_bytes() - before) / trace.calls.num_rows < 1.5 * varying


def test_shortened_statistics_of_other_peoples_files_are_not_believed(tmp_path: Path) -> None:
    from tests.trace_schema.test_check import GOOD

    path = str(tmp_path / "mine.parquet")
    pq.write_table(pa.table({**GOOD, "tenant": ["a", "a", "a"], "model": ["m", None, None]}), path)
    calls = read_trace(path).calls
    assert calls["tenant"].to_pylist() == ["a"] * 3
    assert calls["model"].to_pylist() == ["m", None, None]


def test_a_column_that_is_the_same_in_some_row_groups_alone_is_read(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replay.ingest.trace.ROW_GROUP", 100_000)
    trace, path = ingest([log]), str(tmp_path / "trace.parquet")
    priority = pa.array([0] * 100_000 + [1] * 200_000, pa.int32())
    column = trace.calls.column_names.index("priority")
    changed = trace.calls.set_column(column, trace.calls.schema.field(column), priority)
    write_trace(type(trace)(changed, trace.about), path)
    assert read_trace(path).calls["priority"].to_pylist() == priority.to_pylist()


def test_a_trace_is_not_taken_for_a_log(log: str, tmp_path: Path) -> None:
    path = str(tmp_path / "trace.parquet")
    write_trace(ingest([log]), path)
    assert ingest([path]).calls.num_rows == 300_000
    for paths, choice in (([path], {"sample": 0.1}), ([path, log], {})):
        with pytest.raises(BadInput, match="is a trace already"):
            ingest(paths, **choice)
