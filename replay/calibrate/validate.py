"""Does the simulation predict a real engine? Recorded campaigns, replayed and compared figure by figure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from connectors.vllm_steps import read_step_log
from replay.calibrate.fit import FitReport, fit, scaled
from replay.calibrate.fit import drift as measured_drift
from replay.calibrate.recording import (
    CALIBRATION,
    Recording,
    engine_settings,
    policies_in,
    read_recording,
    step_log_path,
)
from replay.engine import Results, simulate
from replay.errors import BadInput
from replay.profiles.profile import Profile, StepTime

SEEDS = 20
ABSOLUTE, RELATIVE = "absolute", "relative"
TOLERANCES = {
    "delivered_before": (ABSOLUTE, 0.05),
    "delivered_during": (ABSOLUTE, 0.05),
    "delivered_after": (ABSOLUTE, 0.05),
    "attempts": (RELATIVE, 0.03),
    "prompt_tokens_computed": (RELATIVE, 0.03),
    "prompt_tokens_counter": (RELATIVE, 0.05),
}
"""How far a prediction may be from what was measured."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one policy: measured, predicted (mean over seeds), and the seeds' range."""

    policy: str
    figure: str
    measured: float
    predicted: float
    low: float
    high: float
    tolerance: float
    """In the figure's own unit."""
    ok: bool


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """All comparisons of a campaign, the fit behind them, and each recording's drift."""

    comparisons: list[Comparison]
    fit: FitReport
    drift: dict[str, float]
    """Recorded over modelled step time, by policy; 1 where it was not applied."""
    notes: list[str]
    """Figures that could not be compared, and why."""

    @property
    def ok(self) -> bool:
        return all(c.ok for c in self.comparisons)


def validate(
    directory: str, *, seeds: int = SEEDS, drift: bool = True, on_progress: Callable[[float], None] | None = None
) -> Validation:
    """Replay every policy recorded in `directory`, with step times fitted on its `calibration.*` alone.

    A machine's speed drifts between recordings. One number for each, the ratio of recorded to modelled step time in
    its own step log, is applied to the step times; `drift=False` leaves it out.

    Raises
    ------
    BadInput
        The directory, the calibration, or a recording's files are missing or cannot be read.
    UnknownName
        A recording is named after a policy that the catalogue does not have.
    """
    place = Path(directory)
    recordings = [read_recording(place, name) for name in policies_in(place)]
    log = step_log_path(place, CALIBRATION)
    if log is None:
        raise BadInput.at(place / f"{CALIBRATION}.steps.jsonl", "is missing: step times are fitted on it")
    step_time, report = fit(read_step_log(str(log)), str(log))
    comparisons: list[Comparison] = []
    ratios: dict[str, float] = {}
    notes: list[str] = []
    for done, recording in enumerate(recordings):
        ratio = drift_of(recording, step_time) if drift else 1.0
        ratios[recording.policy] = ratio
        settings = engine_settings(recording.meta.engine, place / f"{recording.policy}.meta.json")
        profile = Profile(name="recorded", engine=settings, step_time=scaled(step_time, ratio))
        comparisons += compare(recording, profile, seeds)
        notes += [f"{recording.policy}: {note}" for note in missing(recording)]
        if on_progress is not None:
            on_progress((done + 1) / len(recordings))
    return Validation(comparisons=comparisons, fit=report, drift=ratios, notes=notes)


def drift_of(recording: Recording, step_time: StepTime) -> float:
    """Total recorded over total modelled step time of a recording; 1 without a step log."""
    if recording.steps is None:
        return 1.0
    return measured_drift(recording.steps, step_time)


def missing(recording: Recording) -> list[str]:
    """What the recording does not show."""
    measured = recording.measured()
    notes = [f"{figure} is not in the recording" for figure in TOLERANCES if figure not in measured]
    unseen = len(recording.meta.arrivals) - recording.calls.num_rows
    if unseen > 0:
        notes.append(f"{unseen} calls had no attempt that ended within the recording, and are not replayed")
    return notes


def compare(recording: Recording, profile: Profile, seeds: int) -> list[Comparison]:
    """The recording's figures beside those predicted over `seeds` seeds."""
    calls, policy, until = recording.calls, recording.knobs, recording.meta.recorded_end
    runs = [
        predicted(recording, simulate(calls, policy, profile, seed=seed, until_s=until, timeline_interval_s=0))
        for seed in range(seeds)
    ]
    rows = []
    for figure, measured in recording.measured().items():
        values = np.array([run[figure] for run in runs])
        kind, share = TOLERANCES[figure]
        tolerance = share if kind == ABSOLUTE else share * measured
        mean, low, high = float(values.mean()), float(values.min()), float(values.max())
        rows.append(
            Comparison(
                policy=recording.policy,
                figure=figure,
                measured=measured,
                predicted=mean,
                low=low,
                high=high,
                tolerance=tolerance,
                ok=abs(mean - measured) <= tolerance or low <= measured <= high,
            )
        )
    return rows


def predicted(recording: Recording, results: Results) -> dict[str, float]:
    """The figures of `Recording.measured` from a simulation."""
    arrivals = np.asarray(results.calls["arrival_s"])
    delivered = results.calls["outcome"].to_numpy(zero_copy_only=False) == "delivered"
    figures: dict[str, float] = {}
    for name, phase in zip(("before", "during", "after"), recording.meta.phases, strict=False):
        inside = phase.holds(arrivals)
        figures[f"delivered_{name}"] = float(delivered[inside].mean()) if inside.any() else 0.0
    replicas = results.replicas
    figures["attempts"] = results.attempts.num_rows
    figures["prompt_tokens_computed"] = int(np.asarray(replicas["computed_prompt_tokens"]).sum())
    figures["prompt_tokens_counter"] = int(np.asarray(replicas["counter_prompt_tokens"]).sum())
    return figures
