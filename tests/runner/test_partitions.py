"""A trace of several models: each is replayed on its own fleet, and every number in the results is one thing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import replay
from replay.ingest import read_trace
from replay.runner.partitions import parted


@pytest.fixture
def two_models(tmp_path: Path) -> str:
    path = tmp_path / "log.jsonl"
    lines = []
    for call in range(40):
        line = {
            "call": call,
            "prompt": 50 + 13 * call % 300,
            "output": 4 + call % 5,
            "start": 0.1 * call,
            "status": "ok",
        }
        lines.append({**line, "end": line["start"] + 0.3, "model": "large" if call % 3 == 0 else "small"})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_calls_of_a_part_keep_their_numbers(two_models: str) -> None:
    parts = parted(read_trace(two_models).calls, ("model", "deployment"))
    assert [(p.name, p.calls) for p in parts.partitions] == [("large", 14), ("small", 26)]
    assert sorted(i for table in parts.calls for i in table["call_id"].to_pylist()) == list(range(40))
    assert [p.name for p in parted(read_trace(two_models).calls, ()).partitions] == ["all"]


def test_each_part_has_a_fleet_of_its_own(two_models: str, profile_file: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"profile": profile_file, "policies": ["cancel"], "fleet": {"replicas": 2}}
    run = replay.run(two_models, str(tmp_path / "run"), settings)
    assert run.sql("SELECT call_id FROM calls ORDER BY call_id")["call_id"].to_pylist() == list(range(40))
    assert run.sql("SELECT replica FROM replicas ORDER BY replica")["replica"].to_pylist() == [0, 1, 2, 3]
    (row,) = run.sql(
        "SELECT count(*) AS n, count(DISTINCT e.execution_id) AS executions, count(DISTINCT e.call_id) AS calls, "
        "bool_and(c.delivered_execution_id = e.execution_id) AS agree "
        "FROM executions AS e JOIN calls AS c USING (call_id)"
    ).to_pylist()
    assert row == {"n": 40, "executions": 40, "calls": 40, "agree": True}
    models = run.sql("SELECT model, count(*) AS n FROM calls JOIN observed USING (call_id) GROUP BY ALL ORDER BY model")
    assert models.to_pylist() == [{"model": "large", "n": 14}, {"model": "small", "n": 26}]
    (summary,) = run.query("summary").to_pylist()
    assert summary["delivered_call_rate"] == 1.0


def test_a_part_is_replayed_as_if_the_others_were_not_there(two_models: str, profile_file: str, tmp_path: Path) -> None:
    lines = [line for line in Path(two_models).read_text().splitlines() if '"large"' in line]
    alone = tmp_path / "alone.jsonl"
    alone.write_text("\n".join(lines))
    settings = {"profile": profile_file, "policies": ["cancel"]}
    ends = (
        "SELECT end_s - calls.arrival_s AS s FROM calls JOIN observed USING (call_id) "
        "WHERE model = 'large' ORDER BY call_id"
    )
    together = replay.run(two_models, str(tmp_path / "both"), settings).sql(ends)["s"].to_pylist()
    assert replay.run(str(alone), str(tmp_path / "one"), settings).sql(ends)["s"].to_pylist() == pytest.approx(together)
