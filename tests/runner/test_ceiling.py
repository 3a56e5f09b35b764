"""What was possible stands beside every run, and no policy of the catalogue is beyond it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import replay
from queries import run_query, run_sql
from replay.runner.ceiling import possible_table

SHORT_OF_TIME = {"calls": 500, "client_timeout_s": 8, "user_cancel_rate": 0.1, "overload_s": 5, "overload_start_s": 2}


def shares(run: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run_query(run, "share_of_possible").to_pylist()
    return rows


@pytest.mark.parametrize(
    ("profile", "rate"),
    [("h100-sxm/llama-3.1-8b/tp1/bf16/vllm", 30.0), ("rtx-4090/llama-3.1-8b/tp1/bf16/vllm", 4.0)],
)
def test_no_policy_of_the_catalogue_is_beyond_what_is_possible(profile: str, rate: float, tmp_path: Path) -> None:
    trace = replay.ingest(["synthetic:overload"], options={**SHORT_OF_TIME, "rate_per_s": rate, "seed": 4})
    replay.run(trace, str(tmp_path / "run"), {"profile": profile, "seeds": 2})
    rows = shares(str(tmp_path / "run"))
    assert len({row["policy"] for row in rows}) > 5
    assert any(row["share_delivered"] < 0.9 for row in rows)
    for row in rows:
        assert row["possible_on_time"] <= row["possible_delivered"] <= row["calls"]
        assert row["share_delivered_high"] <= 1.0
        assert row["share_on_time_high"] <= 1.0


def test_parts_of_a_trace_add_up(run_directory: Path) -> None:
    (row,) = run_sql(
        str(run_directory), "SELECT calls, delivered FROM possible WHERE phase IS NULL AND seed = 0"
    ).to_pylist()
    phases = run_sql(
        str(run_directory), "SELECT sum(calls) AS calls FROM possible WHERE phase IS NOT NULL AND seed = 0"
    ).to_pylist()
    eligible = run_sql(
        str(run_directory), "SELECT count(*) AS n FROM calls WHERE eligible AND policy = 'cancel' AND seed = 0"
    ).to_pylist()
    assert row["calls"] == phases[0]["calls"] == eligible[0]["n"]
    assert row["delivered"] <= row["calls"]


def test_without_cells_there_is_no_row() -> None:
    assert possible_table([], [], [], None, None, 0.0).num_rows == 0
    assert isinstance(possible_table([], [], [], None, None, 0.0), pa.Table)
