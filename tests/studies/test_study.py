"""A study as a set of runs side by side: resumed, refused, asked; and whole, where there is time."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import replay.studies.study as studies
from queries import run_query
from replay.cli import main
from replay.errors import BadConfig
from replay.runner import InlineExecutor, Store
from replay.runner.manifest import Manifest
from replay.studies import overload
from replay.studies.scenarios import Scenario, in_one, plans_of

Result = tuple[int, str, str]


def two_loads(root: Path, quick: bool) -> list[Scenario]:
    return [
        overload.scenario("map", load, f"load-{load}", load=load, policies=["no_retry", "cancel"])
        for load in (0.2, 0.5)
    ]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The overload study with two loads and two policies."""
    study = msgspec.structs.replace(studies.STUDIES["overload"], scenarios=two_loads, seeds=2)
    monkeypatch.setattr(studies, "STUDIES", {"overload": study})


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    def call(*arguments: Any) -> Result:
        with pytest.raises(SystemExit) as exit:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return int(exit.value.code or 0), out, err

    return call


def run(root: Path) -> studies.Prepared:
    store = Store(str(root))
    prepared = studies.prepare("overload", store, quick=False)
    studies.run(prepared, store, InlineExecutor(store), lambda _: None)
    return prepared


def manifest(root: Path, scenario: str) -> Manifest:
    return msgspec.json.decode((root / f"scenario={scenario}" / "manifest.json").read_bytes(), type=Manifest)


@pytest.mark.usefixtures("small")
def test_a_study_that_was_broken_off_runs_what_is_missing(tmp_path: Path) -> None:
    run(tmp_path)
    cells = sorted((tmp_path / "scenario=load-0.5" / "calls").rglob("*.parquet"))
    content = cells[0].read_bytes()
    cells[0].unlink()
    kept = cells[1].stat().st_mtime_ns
    run(tmp_path)
    assert cells[0].read_bytes() == content
    assert cells[1].stat().st_mtime_ns == kept
    assert manifest(tmp_path, "load-0.5").missing() == []


@pytest.mark.usefixtures("small")
def test_each_scenario_is_a_run_that_can_be_asked(tmp_path: Path) -> None:
    prepared = run(tmp_path)
    place = tmp_path / prepared.scenarios[1].run
    assert [row["policy"] for row in run_query(str(place), "summary").to_pylist()] == ["no_retry", "cancel"]
    assert len(manifest(tmp_path, "load-0.5").cells) == 2 * 2
    seeds = run_query(str(place), "seeds").to_pylist()
    assert seeds[0]["busy_gpu_s"] != seeds[1]["busy_gpu_s"], "each seed has traffic of its own"


@pytest.mark.usefixtures("small")
def test_a_directory_of_anything_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadConfig, match="holds files that are not a study's"):
        studies.prepare("overload", Store(str(tmp_path)), quick=False)
    other = tmp_path / "other"
    studies.prepare("overload", Store(str(other)), quick=False)
    with pytest.raises(BadConfig, match="holds replay study overload --seeds 2; name another"):
        studies.prepare("overload", Store(str(other)), quick=False, seeds=3)


def test_calls_of_all_seeds_have_numbers_of_their_own() -> None:
    scenario = two_loads(Path(), True)[0]
    together = in_one([scenario.trace(seed).calls for seed in range(3)])
    for name in ("call_id", "content_id"):
        assert len(set(together[name].to_pylist())) == together.num_rows


def test_every_scenario_and_seed_has_its_place_among_the_calls() -> None:
    plans = plans_of(two_loads(Path(), True), 2)
    places = [cell.partition for plan in plans.values() for cell in plan.cells]
    assert sorted(set(places)) == [0, 1, 2, 3]
    assert all(len(plan.parts.calls) == 4 for plan in plans.values())


def test_one_command_prints_what_it_cannot_do_in_one_sentence(command: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    code, out, err = command("study", "overload", "--executor", "inline", "-o", tmp_path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    code, _, err = command("study", "overlord", "-o", tmp_path)
    assert code == 2
    assert "overload" in err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cancellation", "overload"])
def test_a_whole_study_in_short(name: str, command: Callable[..., Result], tmp_path: Path) -> None:
    code, out, _ = command("study", name, "--quick", "--executor", "inline", "-o", tmp_path)
    assert code == 0
    assert "DOES NOT HOLD       the" not in out
    study = studies.STUDIES[name]
    for table in study.results:
        with (tmp_path / "results" / f"{table}.csv").open() as file:
            assert list(csv.DictReader(file))
    assert len(list((tmp_path / "plots").glob("*.png"))) == (42 if name == "cancellation" else 9)
