"""Before, during and after an overload."""

from __future__ import annotations

import numpy as np
import pytest

from replay.errors import BadConfig
from replay.phases import Phase, around, detect, parse


def test_an_overload_is_given_as_two_seconds() -> None:
    assert parse("20:40") == around(20.0, 40.0)
    assert [p.name for p in parse("1.5:2")] == ["before", "during", "after"]


@pytest.mark.parametrize("text", ["20", "a:b", "40:20", "-1:5", "3:inf", "1:2:3", ""])
def test_what_is_no_overload_is_refused(text: str) -> None:
    with pytest.raises(BadConfig, match="overload"):
        parse(text)


@pytest.mark.parametrize("seed", range(5))
def test_a_burst_is_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rates = ((0, 60, 2.0), (60, 90, 9.0), (90, 200, 2.0))
    arrivals = np.sort(np.concatenate([rng.uniform(a, b, rng.poisson(r * (b - a))) for a, b, r in rates]))
    phases, rule = detect(arrivals)
    during = phases[1]
    assert during.name == "during"
    assert abs(during.start_s - 60) <= 10
    assert during.end_s is not None
    assert abs(during.end_s - 90) <= 10
    assert "median" in rule


def test_steady_traffic_is_one_phase() -> None:
    arrivals = np.sort(np.random.default_rng(1).uniform(0, 500, 1000))
    phases, rule = detect(arrivals)
    assert phases == [Phase("all", 0.0)]
    assert rule.startswith("no overload")


def test_a_phase_holds_its_start_but_not_its_end() -> None:
    assert Phase("x", 1.0, 2.0).holds(np.array([0.9, 1.0, 1.9, 2.0])).tolist() == [False, True, True, False]
    assert Phase("x", 1.0).holds(np.array([1e9])).tolist() == [True]
