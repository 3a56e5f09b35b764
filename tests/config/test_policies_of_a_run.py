"""Which policies a run has, and which of them is the log's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replay.config import layered, policies_of
from replay.errors import BadConfig

MINE = {"name": "mine", "based_on": "coalesce", "gateway": {"orphan_ttl_s": 10}}


def names(**settings: Any) -> list[str]:
    experiment, _ = layered([("test", settings)])
    return [policy.name for policy in policies_of(experiment)]


@pytest.mark.parametrize(
    "settings",
    [
        {"policies": ["cancel", "cancel"]},
        {"policies": ["cancel", "cancel"], "as_logged": "cancel"},
        {"policies": ["cancel", {"name": "cancel", "based_on": "coalesce"}]},
        {"policies": ["cancel", {"name": "cancel", "based_on": "coalesce"}], "as_logged": "cancel"},
    ],
)
def test_a_policy_given_twice_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match="policy 'cancel' is given twice"):
        names(**settings)


def test_the_logs_own_policy_may_be_one_that_is_written_out() -> None:
    assert names(policies=["cancel", MINE], as_logged="mine") == ["mine", "cancel"]


def test_the_logs_own_policy_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nbased_on: coalesce\n")
    assert names(policies=["cancel"], as_logged=str(file)) == ["mine", "cancel"]
    assert names(policies=["cancel", str(file)], as_logged=str(file)) == ["mine", "cancel"]
    file.write_text("name: cancel\nbased_on: coalesce\n")
    with pytest.raises(BadConfig, match="given twice"):
        names(policies=["cancel"], as_logged=str(file))
