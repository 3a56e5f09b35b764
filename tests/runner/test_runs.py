"""A run is cells; what is done stays done."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import replay
from replay.config import layered, log_settings
from replay.errors import BadConfig, RunFailed
from replay.ingest import read_trace
from replay.runner import InlineExecutor, Store, execute, make_plan
from replay.runner.cells import TABLES, Cell, CellReport, Limits, Report

SETTINGS = {"policies": ["no_retry", "cancel"], "seeds": 2, "overload": {"start_s": 5, "end_s": 10}}


@pytest.fixture
def settings(profile_file: str) -> dict[str, Any]:
    return {**SETTINGS, "profile": profile_file}


def contents(run: Path) -> dict[str, bytes]:
    return {str(p.relative_to(run)): p.read_bytes() for p in sorted(run.rglob("*.parquet"))}


def test_every_cell_has_every_table(log_file: str, settings: dict[str, Any], tmp_path: Path) -> None:
    run = replay.run(log_file, str(tmp_path / "run"), settings)
    found = {str(p.parent.relative_to(run.path)) for p in Path(run.path).rglob("part-0.parquet")}
    cells = [f"policy={p}/profile=small/fleet=1x/seed={s}" for p in SETTINGS["policies"] for s in range(2)]  # type: ignore[attr-defined]
    assert found == {f"{table}/{cell}" for table in TABLES for cell in cells}
    assert not list(Path(run.path).rglob("*.tmp"))
    assert run.query("summary")["policy"].to_pylist() == ["cancel", "no_retry"]
    assert run.sql("SELECT max(seed) AS s FROM calls")["s"].to_pylist() == [1]


def test_a_run_twice_over_gives_equal_bytes(log_file: str, settings: dict[str, Any], tmp_path: Path) -> None:
    for name in ("one", "other"):
        replay.run(log_file, str(tmp_path / name), settings)
    assert contents(tmp_path / "one") == contents(tmp_path / "other")


def test_a_run_that_was_broken_off_goes_on(
    log_file: str, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay.run(log_file, str(tmp_path / "whole"), settings)
    trace = read_trace(log_file)
    experiment, sources = layered([("log", log_settings(trace.client)), ("argument", settings)])
    plan = make_plan(experiment, sources, trace)
    store = Store(str(tmp_path / "broken"))

    class BreaksOff(InlineExecutor):
        def run(
            self, cells: Sequence[Cell], calls: Sequence[pa.Table], limits: Limits, on_progress: Report
        ) -> Iterator[CellReport]:
            yield from list(super().run(cells[:3], calls, limits, on_progress))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(plan, store, BreaksOff(store), lambda _: None)
    manifest = json.loads((tmp_path / "broken" / "manifest.json").read_text())
    assert len(manifest["done"]) == 3
    ran: list[int] = []

    class Counts(InlineExecutor):
        def run(
            self, cells: Sequence[Cell], calls: Sequence[pa.Table], limits: Limits, on_progress: Report
        ) -> Iterator[CellReport]:
            ran.append(len(cells))
            yield from super().run(cells, calls, limits, on_progress)

    execute(plan, store, Counts(store), lambda _: None)
    assert ran == [1]
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


def test_a_cell_that_fails_is_written_down(
    log_file: str, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import replay.runner.cells as cells

    def fails(*_: Any, **__: Any) -> Any:
        raise RunFailed("no progress")

    monkeypatch.setattr(cells, "simulate", fails)
    with pytest.raises(RunFailed):
        replay.run(log_file, str(tmp_path / "run"), settings)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert list(manifest["failed"].values()) == ["no progress"]
    assert not list((tmp_path / "run").rglob("part-0.parquet"))


def test_a_directory_keeps_to_one_run(log_file: str, settings: dict[str, Any], tmp_path: Path) -> None:
    path = str(tmp_path / "run")
    replay.run(log_file, path, settings)
    before = contents(tmp_path / "run")
    with pytest.raises(BadConfig, match="other settings"):
        replay.run(log_file, path, {**settings, "seeds": 3})
    assert contents(tmp_path / "run") == before


def test_the_logs_own_policy_comes_first(log_file: str, settings: dict[str, Any], tmp_path: Path) -> None:
    run = replay.run(log_file, str(tmp_path / "run"), {**settings, "policies": ["coalesce"], "as_logged": "no_cancel"})
    assert pq.read_table(Path(run.path) / "policies.parquet")["policy"].to_pylist() == ["no_cancel", "coalesce"]
    assert run.query("self_replay").num_rows >= 4
