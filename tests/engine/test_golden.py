"""Schedules that vLLM's own scheduler produced, step for step."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replay.engine import schedule_requests
from tests import naive

HERE = Path(__file__).parent
OWN = sorted((HERE.parent / "fixtures" / "golden").iterdir())
ALL = sorted((HERE.parents[2] / "shared" / "golden").glob("*-*sync"))
ELSEWHERE = os.environ.get("REPLAY_SCHEDULES")
"""A folder of schedules by `scripts/record_schedules.py`."""
RECORDED = sorted(Path(ELSEWHERE).iterdir()) if ELSEWHERE else []
SCENARIOS = [*OWN, *(path for path in ALL if path.name not in {own.name for own in OWN}), *RECORDED]


def scenario(path: Path) -> tuple[pa.Table, dict[str, object], dict[str, float]]:
    settings = json.loads((path / "scenario.json").read_text())
    return pq.read_table(path / "requests.parquet"), settings["engine"], settings["step_time"]


def assert_equal(ours: pa.Table, theirs: pa.Table, where: str) -> None:
    """Equal values, times to 1e-9 s."""
    assert ours.num_rows == theirs.num_rows, where
    for name in theirs.column_names:
        a, b = ours[name], theirs[name]
        if pa.types.is_floating(b.type):
            x, y = np.asarray(a.cast(pa.float64())), np.asarray(b)
            np.testing.assert_allclose(x, y, rtol=0, atol=1e-9, equal_nan=True, err_msg=f"{where}.{name}")
        else:
            assert a.to_pylist() == b.to_pylist(), f"{where}.{name}"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.name)
def test_the_engine_takes_the_recorded_steps(path: Path) -> None:
    tables = schedule_requests(*scenario(path))
    for name in ("steps", "outcome"):
        assert_equal(tables[name], pq.read_table(path / f"{name}.parquet"), name)
    order = [("step", "ascending"), ("request", "ascending")]
    recorded = pq.read_table(path / "scheduled.parquet").sort_by(order)
    assert_equal(tables["scheduled"].sort_by(order), recorded, "scheduled")


@pytest.mark.parametrize("path", OWN, ids=lambda p: p.name)
def test_the_naive_twin_takes_the_recorded_steps(path: Path) -> None:
    world = naive.schedule_requests(*scenario(path))
    recorded = pq.read_table(path / "steps.parquet").drop_columns(["start"])
    assert_equal(pa.Table.from_pylist(world.steps), recorded, "steps")


def test_a_request_that_cannot_fit_is_named() -> None:
    from replay.errors import BadInput

    requests, engine, step_time = scenario(OWN[0])
    with pytest.raises(BadInput, match="row"):
        schedule_requests(requests, {**engine, "num_blocks": 3}, step_time)
