"""Step times from a step log: relative least squares with coefficients of at least zero.

The model is `StepTime`. Its piecewise linear f is a sum of ramps between knots, each with a slope of at least zero, so
that one non-negative least squares problem fits all of it. A first fit shows the hiccups of the machine (steps that
lasted more than `OUTLIER` times what it says); they are left out of the second.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from connectors.vllm_steps import StepLog
from replay.errors import BadInput
from replay.profiles.profile import StepTime

Floats = npt.NDArray[np.float64]

KNOTS = (1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
STEPS_LEAST = 60
"""Steps below which nothing is fitted."""
STEPS_PER_KNOT = 20
"""Steps that a stretch between two knots needs, to have a slope of its own."""
OUTLIER = 2.0
BACK_TO_BACK_S = 0.005
"""A step that begins so soon after the one before it followed at once; the gap between them is the scheduler's time."""
HELD_BACK = 3
"""Every third step is held back to measure the error."""


class FitReport(msgspec.Struct, frozen=True, kw_only=True):
    """How well a fit does on the third of the steps that it did not see."""

    steps: int
    outliers: int
    mape: float
    """Mean absolute error of a step's duration, as a share of it."""
    p90: float
    bias: float
    """Total modelled over total measured time, less 1."""


def durations(log: StepLog) -> Floats:
    """Seconds of each step: until the next one begins where that follows at once, else until its outputs were read."""
    own = log.ended_at - log.began_at
    gap = np.append(log.began_at[1:] - log.ended_at[:-1], np.inf)
    seconds: Floats = own + np.where((gap >= 0) & (gap < BACK_TO_BACK_S), gap, 0.0)
    return seconds


def knots_for(tokens: npt.NDArray[np.int64]) -> list[int]:
    """The knots between which there are steps enough, ends included."""
    top = int(tokens.max())
    inner = [k for k in KNOTS if tokens.min() <= k < top]
    kept: list[int] = []
    for knot in inner:
        if not kept or ((tokens >= kept[-1]) & (tokens < knot)).sum() >= STEPS_PER_KNOT:
            kept.append(knot)
    while len(kept) > 1 and (tokens >= kept[-1]).sum() < STEPS_PER_KNOT:
        kept.pop()
    return [*kept, top] if kept else [top]


def features(log: StepLog, knots: list[int]) -> Floats:
    """(steps, coefficients): constant, ramps of f, decode, KV, attention, prefill context, rows."""
    tokens = (log.prefill + log.decode).astype(np.float64)
    ramps = [np.clip(tokens - a, 0.0, b - a) for a, b in pairwise(knots)]
    return np.column_stack(
        [np.ones_like(tokens), *ramps, log.decode, log.context, log.attention, log.prefill_context, log.rows]
    ).astype(np.float64)


def solve(x: Floats, seconds: Floats) -> Floats:
    """Non-negative coefficients with the least sum of squared relative errors."""
    from scipy.optimize import nnls

    weighted = x / seconds[:, None]
    scale = np.maximum(np.abs(weighted).max(axis=0), 1e-300)
    solution: Floats = nnls(weighted / scale, np.ones(len(seconds)), maxiter=50 * x.shape[1])[0]
    unscaled: Floats = solution / scale
    return unscaled


def fit(log: StepLog, source: str = "step log") -> tuple[StepTime, FitReport]:
    """Fit the step-time model to a log. Raises BadInput when the log cannot tell its coefficients."""
    seconds = durations(log)
    tokens = log.prefill + log.decode
    usable = seconds > 0
    if usable.sum() < STEPS_LEAST:
        raise BadInput.at(source, f"{usable.sum()} steps are too few to fit step times; {STEPS_LEAST} are needed")
    if len(np.unique(tokens[usable])) < 3:
        raise BadInput.at(source, "all steps have the same number of tokens: a mix of prefill and decode is needed")
    knots = knots_for(tokens[usable])
    x = features(log, knots)
    rough = x @ solve(x[usable], seconds[usable])
    good = usable & (seconds < OUTLIER * rough) & (rough < OUTLIER * seconds)
    held = np.flatnonzero(good)[::HELD_BACK]
    seen = np.setdiff1d(np.flatnonzero(good), held)
    error = (x[held] @ solve(x[seen], seconds[seen])) / seconds[held] - 1.0
    modelled = x[held] @ solve(x[seen], seconds[seen])
    report = FitReport(
        steps=int(usable.sum()),
        outliers=int((usable & ~good).sum()),
        mape=float(np.abs(error).mean()),
        p90=float(np.quantile(np.abs(error), 0.9)),
        bias=float(modelled.sum() / seconds[held].sum() - 1.0),
    )
    return as_step_time(solve(x[good], seconds[good]), knots), report


def as_step_time(coefficients: Floats, knots: list[int]) -> StepTime:
    """The coefficients of `features` as a StepTime; the constant is overhead."""
    ramps = coefficients[1 : len(knots)]
    seconds = np.concatenate([[0.0], np.cumsum(ramps * np.diff(knots))])
    decode, kv, attention, context, row = (float(v) for v in coefficients[len(knots) :])
    return StepTime(
        knots_tokens=tuple(knots),
        knots_s=tuple(float(s) for s in seconds),
        decode_s=decode,
        kv_token_s=kv,
        prefill_attention_s=attention,
        prefill_context_s=context,
        overhead_s=float(coefficients[0]),
        sequence_s=row,
    )


def modelled(log: StepLog, step_time: StepTime) -> Floats:
    """Seconds that the model gives each step of a log."""
    knots = list(step_time.knots_tokens)
    slopes: Any = np.diff(step_time.knots_s) / np.diff(knots)
    tail = [
        step_time.decode_s, step_time.kv_token_s, step_time.prefill_attention_s, step_time.prefill_context_s,
        step_time.sequence_s,
    ]  # fmt: skip
    seconds: Floats = features(log, knots) @ np.array([step_time.overhead_s + step_time.knots_s[0], *slopes, *tail])
    return seconds


def drift(log: StepLog, step_time: StepTime) -> float:
    """Total recorded over total modelled step time: how much slower the machine was than when it was measured."""
    return float(durations(log).sum() / modelled(log, step_time).sum())


def scaled(step_time: StepTime, factor: float) -> StepTime:
    """Every step lasts `factor` times as long."""
    return msgspec.structs.replace(
        step_time,
        knots_s=tuple(s * factor for s in step_time.knots_s),
        decode_s=step_time.decode_s * factor,
        kv_token_s=step_time.kv_token_s * factor,
        prefill_attention_s=step_time.prefill_attention_s * factor,
        prefill_context_s=step_time.prefill_context_s * factor,
        overhead_s=step_time.overhead_s * factor,
        sequence_s=step_time.sequence_s * factor,
    )
