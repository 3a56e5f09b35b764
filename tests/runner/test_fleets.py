"""Fleets of an experiment: several to compare, and other engines beside the run's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import replay
from replay.errors import BadConfig
from replay.profiles.loader import load_profile, save_profile


def test_a_grid_of_fleets_with_engines_beside(log_file: str, profile_file: str, tmp_path: Path) -> None:
    large = load_profile(profile_file)
    other = msgspec.structs.replace(large, name="large", engine=msgspec.structs.replace(large.engine, num_blocks=800))
    save_profile(other, str(tmp_path / "large.json"))
    fleets = [{"replicas": 1}, {"replicas": 1, "beside": [{"profile": str(tmp_path / "large.json"), "replicas": 2}]}]
    settings: dict[str, Any] = {"profile": profile_file, "policies": ["cancel"], "fleet": fleets}
    run = replay.run(log_file, str(tmp_path / "run"), settings)
    rows = run.sql("SELECT fleet, count(*) AS n FROM replicas GROUP BY ALL ORDER BY n").to_pylist()
    assert [row["n"] for row in rows] == [1, 3]
    assert rows[1]["fleet"].startswith("1x+2x-")


def test_a_fleet_that_is_given_twice_is_refused(log_file: str, profile_file: str, tmp_path: Path) -> None:
    settings = {"profile": profile_file, "policies": ["cancel"], "fleet": [{"replicas": 1}, {"replicas": 1}]}
    with pytest.raises(BadConfig, match="fleet '1x' is given twice"):
        replay.run(log_file, str(tmp_path / "run"), settings)
