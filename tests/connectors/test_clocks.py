"""Whatever a log's times count from, a trace counts from its start, to the last digit that the log has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from connectors.rows import attempts_of
from replay.errors import BadInput
from replay.ingest import ingest, resolution


def arrivals(path: Path, *times: str) -> list[float]:
    path.write_text("arrival_s,prompt_tokens\n" + "".join(f"{time},5\n" for time in times))
    trace = ingest([str(path)])
    assert trace.calls.num_rows == len(times)
    arrived: list[float] = trace.calls["arrival_s"].to_pylist()
    return arrived


@pytest.mark.parametrize(
    "times",
    [
        ("2023-11-16 18:17:03.9799600", "2023-11-16 18:17:04", "2023-11-16 18:17:04.0000001"),
        ("2024-05-10 00:00:00.9799600+00:00", "2024-05-10 00:00:01+00:00", "2024-05-10 00:00:01.0000001+00:00"),
        ("2024-05-10T00:00:00.9799600Z", "2024-05-10T02:00:01+02:00", "2024-05-09T21:00:01.0000001-0300"),
        ("2024-05-10 00:00:00.9799600", "2024-05-10T02:00:01+02:00", "2024-05-10 00:00:01.0000001Z"),
    ],
)
def test_seven_digits_of_a_second_survive_whichever_way_zones_are_written(tmp_path: Path, times: list[str]) -> None:
    assert arrivals(tmp_path / "log.csv", *times) == [0.0, 0.0200400, 0.0200401]


def test_a_clock_that_started_long_before_the_log_counts_from_its_first_call(tmp_path: Path) -> None:
    assert arrivals(tmp_path / "log.csv", "19440110.0", "19440161.5") == [0.0, 51.5]
    assert arrivals(tmp_path / "log.csv", "1715299200.25", "1715299200.5") == [0.0, 0.25]
    assert arrivals(tmp_path / "log.csv", "12.5", "13.0") == [12.5, 13.0]
    year = arrivals(tmp_path / "log.csv", "2023-01-01 00:00:00", "2024-01-01 00:00:00.0000003")
    assert year == [0.0, pytest.approx(365 * 86400.0, abs=1e-6)]


def test_years_that_nanoseconds_cannot_reach_are_still_in_order(tmp_path: Path) -> None:
    assert arrivals(tmp_path / "log.csv", "2500-01-01 00:00:00", "2500-01-01 00:00:01.5") == [0.0, 1.5]


def test_bins_are_found_and_regular_calls_are_none() -> None:
    rng = np.random.default_rng(5)
    bins = np.repeat(np.cumsum(rng.choice([2.999, 3.0, 3.001], 200)), rng.integers(1, 30, 200))
    assert resolution(bins) == pytest.approx(3.0, abs=0.01)
    assert resolution(np.arange(500) * 0.25) == 0.01
    assert resolution(np.repeat(np.cumsum(rng.integers(1, 50, 200)), 5).astype(float)) == 1.0
    assert resolution(np.round(np.cumsum(rng.exponential(1.0, 500)), 3)) == 0.001


def test_one_list_that_is_none_drops_its_row_alone() -> None:
    columns = {
        "arrival_s": [0.0, 1.0, 2.0, 3.0],
        "prompt_tokens": [5, 5, 5, 5],
        "block_hashes": [[1, 2**64 - 1], [-1], None, "ab"],
    }
    batch = attempts_of(columns, np.arange(1, 5), source_format="x", source_file="y")
    assert batch.attempts["block_hashes"].to_pylist() == [[1, 2**64 - 1], None]
    assert batch.dropped.reasons == {"block_hashes is not of type list<item: uint64>": (2, [2, 4])}
    assert batch.attempts.schema.field("block_hashes").type == pa.list_(pa.uint64())


@pytest.mark.parametrize("times", [
    ("1715299200250", "1715299201500"),
    ("1715299200250000", "1715299201500000"),
    ("1715299200250000000", "1715299201500000000"),
    ("1715299200250.0", "1715299201500.0"),
], ids=["milliseconds", "microseconds", "nanoseconds", "with a fraction"])  # fmt: skip
def test_numbers_that_count_finer_units_since_1970_are_those(tmp_path: Path, times: list[str]) -> None:
    assert arrivals(tmp_path / "log.csv", *times) == [0.0, 1.25]
    lines = "".join(f'{{"arrival_s": {time}, "prompt_tokens": 5}}\n' for time in times)
    (tmp_path / "log.jsonl").write_text(lines)
    assert ingest([str(tmp_path / "log.jsonl")]).calls["arrival_s"].to_pylist() == [0.0, 1.25]


def test_large_numbers_that_are_no_time_of_this_century_are_none(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("arrival_s,prompt_tokens\n86400000000000,5\n")
    with pytest.raises(BadInput, match="too large for seconds"):
        ingest([str(path)])
