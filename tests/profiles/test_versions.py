"""vLLM's rules by version: what presets, points and step logs take from a number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replay.profiles.profile import EngineSettings
from replay.profiles.versions import SINCE, UNTIL, default_mode, scheduler_rules, version_in, versioned

GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden"
DEFAULTS = msgspec.to_builtins(EngineSettings())


@pytest.mark.parametrize("path", sorted(GOLDEN.iterdir()), ids=lambda path: path.name)
def test_a_recorded_schedule_has_the_rules_of_the_version_that_it_was_recorded_with(path: Path) -> None:
    scenario = json.loads((path / "scenario.json").read_text())
    version = version_in(scenario["source"])
    assert version is not None
    names = [name for _, name, _ in (*UNTIL, *SINCE)]
    recorded = {**DEFAULTS, **scenario["engine"]}
    of_version = {**DEFAULTS, **scheduler_rules(version)}
    assert [recorded[name] for name in names] == [of_version[name] for name in names]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("vllm 0.19.1", (0, 19)),
        ("0.33.0", (0, 33)),
        ("0.11.1rc2.dev12+gabc", (0, 11)),
        ("vllm nan", None),
        ("", None),
        (None, None),
    ],
)
def test_a_version_is_found_in_what_engines_call_themselves(text: str | None, version: Any) -> None:
    assert version_in(text) == version


def test_rules_are_those_of_the_version() -> None:
    assert scheduler_rules((0, 12)) == {
        "aborts_read": "loop_top",
        "admission_needs": "chunk",
        "freed_blocks_go": "to_the_back",
        "eviction_skips": True,
        "long_prefill_alone": "chunked",
    }
    assert set(scheduler_rules((0, 13))) == set(scheduler_rules((0, 12))) - {"aborts_read"}
    assert set(scheduler_rules((0, 19))) == {"freed_blocks_go", "eviction_skips", "long_prefill_alone"}
    assert set(scheduler_rules((0, 23))) == {"eviction_skips", "long_prefill_alone"}
    assert set(scheduler_rules((0, 28))) == {"long_prefill_alone"}
    assert scheduler_rules((0, 31)) == scheduler_rules((0, 32)) == {}
    assert scheduler_rules((0, 33)) == scheduler_rules((1, 0)) == {"self_preempted": "pass_goes_on"}
    assert (default_mode((0, 12)), default_mode((0, 13))) == ("sync", "async")


def test_a_build_that_does_not_know_its_number_is_taken_for_a_new_one() -> None:
    version = version_in("0.1.dev14+g5c2ff04")
    assert version is not None
    assert scheduler_rules(version) == {}
    assert default_mode(version) == "async"


def test_what_is_said_wins_over_the_version() -> None:
    said = {"admission_needs": "sequence"}
    assert versioned(said, (0, 18))["admission_needs"] == "sequence"
    assert versioned(said, (0, 18))["freed_blocks_go"] == "to_the_back"
    assert versioned(said, None) == said
