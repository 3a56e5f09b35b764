"""The replay predicts a real engine: vLLM 0.32, overloaded under six policies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from replay.calibrate.recording import read_recording
from replay.calibrate.validate import TOLERANCES, Validation, validate
from replay.errors import BadInput, UnknownName
from replay.report.validation import validation_text

INCIDENT = Path(__file__).parents[2] / "examples" / "overload-incident"
OTHER = Path(__file__).parents[3] / "shared" / "live" / "A"


@pytest.fixture(scope="module")
def incident() -> Validation:
    return validate(str(INCIDENT))


def test_every_figure_of_the_incident_is_within_tolerance(incident: Validation) -> None:
    assert {(c.policy, c.figure) for c in incident.comparisons} == {
        (policy, figure)
        for policy in ("no_retry", "no_cancel", "cancel", "retry_budget", "coalesce", "coalesce_cancel")
        for figure in TOLERANCES
    }
    for c in incident.comparisons:
        error = abs(c.predicted - c.measured)
        assert c.ok == (error <= c.tolerance or c.low <= c.measured <= c.high)
        assert c.ok, c


def test_the_shares_of_the_tolerances_hold_without_the_seeds_range(incident: Validation) -> None:
    inside = [abs(c.predicted - c.measured) <= c.tolerance for c in incident.comparisons]
    assert all(inside)


def test_what_was_measured_is_what_was_recorded() -> None:
    figures = read_recording(INCIDENT, "cancel").measured()
    assert figures["attempts"] == 1565
    assert figures["prompt_tokens_computed"] == 741_472
    assert figures["prompt_tokens_counter"] == 923_092
    assert figures["delivered_after"] == pytest.approx(0.511, abs=0.001)


def test_the_drift_is_shown_and_can_be_left_out(incident: Validation) -> None:
    assert all(0.9 < ratio < 1.15 for ratio in incident.drift.values())
    assert "drift" in validation_text(incident)
    assert set(validate(str(INCIDENT), seeds=1, drift=False).drift.values()) == {1.0}


@pytest.mark.skipif(not OTHER.exists(), reason="the other campaign is not here")
def test_every_figure_of_the_other_campaign_is_within_tolerance() -> None:
    assert [c for c in validate(str(OTHER)).comparisons if not c.ok] == []


def campaign(tmp_path: Path, *policies: str) -> Path:
    for name in ("calibration", *policies):
        for path in INCIDENT.glob(f"{name}.*"):
            shutil.copy(path, tmp_path / path.name)
    return tmp_path


def test_a_campaign_may_hold_some_policies_and_lack_step_logs(tmp_path: Path) -> None:
    place = campaign(tmp_path, "coalesce")
    (place / "coalesce.steps.jsonl.gz").unlink()
    validation = validate(str(place), seeds=2)
    assert {c.figure for c in validation.comparisons} == set(TOLERANCES) - {"prompt_tokens_computed"}
    assert validation.notes == ["coalesce: prompt_tokens_computed is not in the recording"]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    place = campaign(tmp_path, "cancel")
    (place / "calibration.steps.jsonl.gz").unlink()
    with pytest.raises(BadInput, match=r"calibration\.steps\.jsonl: is missing"):
        validate(str(place))
    (place / "cancel.meta.json").rename(place / "elsewhere.json")
    with pytest.raises(BadInput, match=r"cancel\.meta\.json: cannot be read"):
        validate(str(place))
    (place / "cancel.attempts.jsonl").rename(place / "cancle.attempts.jsonl")
    with pytest.raises(UnknownName, match="did you mean cancel"):
        validate(str(place))
