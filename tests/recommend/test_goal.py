"""Goals are figures of a run, and are judged replay by replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from queries import run_query
from replay.errors import BadConfig
from replay.recommend.goal import FAR, figures, margin, parse, reached, shortfall


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("", "is empty"),
        ("delivered_call_rat >= 0.99", "delivered_call_rate"),
        ("delivered_call_rate", "goal 'delivered_call_rate'"),
        ("cancel: delivered_call_rate >= 0.9", "names a policy"),
        ("delivered_call_rate != 0.9", "!= is no goal"),
        ("summary.policy > 1", "is no figure"),
    ],
)
def test_a_goal_that_is_none_is_told(written: str, words: str) -> None:
    with pytest.raises(BadConfig, match="goal") as told:
        parse(written)
    assert words in str(told.value)


def test_several_goals_are_kept_apart_by_commas() -> None:
    first, second = parse("delivered_call_rate >= 99%, wasted_compute_frac <= 0.1")
    assert (first.figure, first.number, first.higher) == ("delivered_call_rate", 0.99, True)
    assert (second.figure, second.number, second.higher) == ("wasted_compute_frac", 0.1, False)


def test_a_margin_is_a_share_of_the_number() -> None:
    goals = parse("delivered_call_rate >= 0.8, wasted_compute_frac <= 0.1")
    found = {0: [1.0, 0.05], 1: [0.9, 0.08]}
    assert reached(goals, found)
    assert margin(goals, found) == pytest.approx(0.125)
    assert shortfall(goals, found) == 0.0
    missed = {0: [1.0, 0.05], 1: [0.4, 0.3]}
    assert not reached(goals, missed)
    assert shortfall(goals, missed) == pytest.approx((0.5 + 2.0) / 2)
    assert margin(goals, {0: [None, 0.0]}) == -FAR


def test_figures_of_any_query_are_found_replay_by_replay(run_directory: Path) -> None:
    run = str(run_directory)
    quick, slow, worst = parse("wasted_compute_frac <= 1, retry_amplification < 9, delivered_by_phase.calls > 0")
    found = figures(run, [quick, slow, worst])
    rows = {(r["policy"], r["seed"]): r for r in run_query(run, "seeds").to_pylist()}
    summary = {r["policy"]: r for r in run_query(run, "summary").to_pylist()}
    phases = run_query(run, "delivered_by_phase").to_pylist()
    for (policy, _, _), by_seed in found.items():
        assert set(by_seed) == {0, 1}
        assert [values[0] for values in by_seed.values()] == [rows[policy, s]["wasted_compute_frac"] for s in by_seed]
        mean = sum(values[1] or 0.0 for values in by_seed.values()) / 2
        assert mean == pytest.approx(summary[policy]["retry_amplification"])
        assert by_seed[0][2] == min(r["calls"] for r in phases if r["policy"] == policy)
