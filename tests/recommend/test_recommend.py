"""Recommendations on a recorded incident: the smallest change, what was possible, engines instead, or no answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

import replay
from queries import run_query
from replay.calibrate import calibrate
from replay.cli import cli
from replay.errors import BadConfig, BadInput
from replay.profiles.loader import save_profile
from replay.profiles.profile import Profile
from replay.recommend import Answer
from replay.recommend.robust import at_speed

INCIDENT = Path(__file__).parents[2] / "examples" / "overload-incident"
COMMON = ("--overload", "20:40", "--seeds", "2", "--executor", "inline", "--quiet")


@pytest.fixture(scope="module")
def engine() -> Profile:
    """The incident's engine, as its step logs have it."""
    profile, _ = calibrate(str(INCIDENT / "calibration.steps.jsonl.gz"), {}, str(INCIDENT / "cancel.steps.jsonl.gz"))
    return profile


@pytest.fixture(scope="module")
def place(engine: Profile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where its profile lies, and runs may."""
    path = tmp_path_factory.mktemp("incident")
    save_profile(engine, str(path / "engine.json"))
    save_profile(at_speed(3.0)(engine), str(path / "fast.json"))
    return path


def asked(place: Path, name: str, *words: str, profile: str = "engine.json") -> Answer:
    """The answer of a command."""
    log = str(INCIDENT / "cancel.attempts.jsonl")
    command = ["recommend", log, *COMMON, "--profile", str(place / profile), "-o", str(place / name), "--json", *words]
    found = CliRunner().invoke(cli, command, catch_exceptions=False, standalone_mode=False)
    return msgspec.convert(json.loads(found.stdout), Answer)


@pytest.fixture(scope="module")
def by_the_gateway(place: Path) -> Answer:
    return asked(place, "gateway", "--goal", "delivered_call_rate >= 0.99", "--can", "gateway", "--resamples", "4")


@pytest.fixture(scope="module")
def by_anybody(place: Path) -> Answer:
    goal = "delivered_call_rate >= 0.99, wasted_compute_frac <= 0.1"
    return asked(place, "anybody", "--goal", goal, "--resamples", "0")


def delivered(run: str) -> dict[str, float]:
    return {row["policy"]: row["delivered_call_rate"] for row in run_query(run, "summary").to_pylist()}


def test_one_change_of_a_setting_is_smaller_than_two_of_the_gateway(by_anybody: Answer) -> None:
    assert by_anybody.best is not None
    assert by_anybody.reached
    (turn,) = by_anybody.best.turns
    assert (turn.who, turn.effort) == ("client", "config")
    assert all(s.margin >= 0 for s in by_anybody.best.standings)


def test_no_smaller_change_within_what_the_gateway_can_change_reaches_the_goal(by_the_gateway: Answer) -> None:
    best = by_the_gateway.best
    assert best is not None
    assert best.reached
    assert not by_the_gateway.now.reached
    assert {turn.who for turn in best.turns} == {"gateway"}
    code = any(turn.effort == "code" for turn in best.turns)
    assert code or len(best.turns) == 1
    rates = delivered(f"{by_the_gateway.run}/beneath/1-change")
    settings = {"orphan_ttl_s", "routing", "queue"}
    smaller = {policy: rate for policy, rate in rates.items() if policy.rpartition("-")[0] in settings}
    assert len(smaller) > 3
    assert max(smaller.values()) < 0.99


def test_the_figures_of_an_answer_are_those_of_its_run(by_the_gateway: Answer) -> None:
    rates = delivered(by_the_gateway.run)
    assert by_the_gateway.best is not None
    for one in (by_the_gateway.now, by_the_gateway.best, *by_the_gateway.others):
        assert one.standings[0].seeds.mean == pytest.approx(rates[one.policy])
    costs = {cost.figure: cost for cost in by_the_gateway.costs}
    assert costs["calls gained"].then == pytest.approx(costs["undelivered"].now)
    assert costs["calls lost"].then == 0


def test_the_snippet_is_a_policy_that_does_what_the_answer_says(
    by_the_gateway: Answer, place: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "recommended.yaml"
    policy.write_text(by_the_gateway.snippet)
    settings: dict[str, Any] = {"profile": str(place / "engine.json"), "policies": [str(policy)], "seeds": 2}
    settings["overload"] = {"start_s": 20, "end_s": 40}
    run = replay.run(str(INCIDENT / "cancel.attempts.jsonl"), str(tmp_path / "run"), settings)
    name = yaml.safe_load(by_the_gateway.snippet)["name"]
    assert delivered(run.path)[name] == delivered(by_the_gateway.run)[name]
    assert (Path(by_the_gateway.run) / "recommended.yaml").read_text() == by_the_gateway.snippet


def test_resampled_traffic_is_a_run_of_its_own(by_the_gateway: Answer) -> None:
    best = by_the_gateway.best
    assert best is not None
    assert best.holds_in is not None
    assert by_the_gateway.now.holds_in is not None
    assert best.holds_in > by_the_gateway.now.holds_in
    as_small = [o for o in by_the_gateway.others if o.holds_in is not None]
    assert all((o.holds_in or 0.0) <= best.holds_in for o in as_small)
    rows = run_query(f"{by_the_gateway.run}/beneath/resampled", "seeds").to_pylist()
    assert sorted({row["seed"] for row in rows}) == [0, 1, 2, 3]
    assert len({row["delivered_call_rate"] for row in rows if row["policy"] == "cancel"}) > 1


def test_more_load_never_helps_the_present_policy(by_the_gateway: Answer) -> None:
    own = {s.variant: s.values[0] or 0.0 for s in by_the_gateway.sensitivity if s.policy == "cancel"}
    assert own["load -20%"] > own["as it was"] > own["load +20%"]
    assert own["engine speed +10%"] > own["engine speed -10%"]
    assert len(own) == 9


def test_engines_that_reach_the_goal_instead_are_as_few_as_can_be(
    by_the_gateway: Answer, place: Path, tmp_path: Path
) -> None:
    (room,) = by_the_gateway.capacity
    assert room.policy == "cancel"
    assert room.needed is not None
    for replicas in {room.needed - 1, room.needed}:
        settings: dict[str, Any] = {"profile": str(place / "engine.json"), "policies": ["cancel"], "seeds": 2}
        settings["fleet"] = {"replicas": replicas}
        path = str(tmp_path / f"{replicas}")
        replay.run(str(INCIDENT / "cancel.attempts.jsonl"), path, settings)
        assert (delivered(path)["cancel"] >= 0.99) == (replicas == room.needed)


def test_where_no_policy_reaches_the_goal_it_says_so_and_what_was_possible(place: Path) -> None:
    goal = ("--goal", "on_time_rate >= 0.99")
    answer = asked(place, "engine", *goal, "--can", "gateway", "--resamples", "0")
    assert not answer.reached
    assert answer.best is not None
    assert answer.possible_on_time is not None
    assert answer.best.standings[0].seeds.mean is not None
    assert answer.best.standings[0].seeds.mean <= answer.possible_on_time < 0.99
    text = (Path(answer.run) / "recommend.txt").read_text()
    assert "No policy within what gateway can change reaches" in text
    assert "No policy whatever delivers on time more than" in text


def test_an_answer_is_refused_where_the_replay_disagrees_with_the_log(place: Path) -> None:
    goal = ("--goal", "delivered_call_rate >= 0.99")
    with pytest.raises(BadInput, match="--anyway goes on") as told:
        asked(place, "fast", *goal, profile="fast.json")
    assert "where the log has" in str(told.value)
    assert not (place / "fast" / "recommend.json").exists()
    answer = asked(place, "fast", *goal, "--anyway", "--resamples", "0", profile="fast.json")
    assert any("where the log has" in caution for caution in answer.cautions)


def test_the_same_command_goes_on_where_it_was_broken_off(by_the_gateway: Answer, place: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in Path(by_the_gateway.run).rglob("calls/**/*.parquet")}
    again = asked(place, "gateway", "--goal", "delivered_call_rate >= 0.99", "--can", "gateway", "--resamples", "4")
    assert again == by_the_gateway
    assert before == {p: p.stat().st_mtime_ns for p in Path(by_the_gateway.run).rglob("calls/**/*.parquet")}


def test_several_fleets_are_refused_before_anything_is_replayed(place: Path) -> None:
    with pytest.raises(BadConfig, match="one fleet"):
        asked(place, "fleets", "--goal", "delivered_call_rate >= 0.99", "--replicas", "1", "--replicas", "2")
    assert not (place / "fleets").exists()


@pytest.mark.parametrize(("words", "said"), [(["--can", "user"], "gateway"), (["--can", ","], "--can: is empty")])
def test_who_cannot_change_anything_is_told(words: list[str], said: str, place: Path) -> None:
    with pytest.raises(BadConfig, match=said):
        asked(place, "nobody", "--goal", "delivered_call_rate >= 0.99", *words)
    assert not (place / "nobody").exists()
