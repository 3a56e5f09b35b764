"""A benchmark replayed: its requests, sent when they were sent, to a simulated engine."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow.compute as pc

from replay.calibrate.sources import Floats, Measured
from replay.engine import simulate
from replay.errors import BadConfig
from replay.policies.knobs import Client, Policy
from replay.profiles.profile import Profile

ONCE = Policy(name="benchmark", client=Client(max_attempts=1))
"""A load generator's client: it asks once, and waits."""
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a benchmark: measured, and predicted from its arrivals and lengths."""

    figure: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """How much larger the prediction is, as a share of what was measured."""
        return self.predicted / self.measured - 1.0 if self.measured else float("nan")


class ServingValidation(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile predicts for a benchmark, beside what was measured."""

    path: str
    profile: str
    requests: int
    figures: list[Figure]
    notes: list[str]


def baked(profile: Profile) -> Profile:
    """The profile with what its mode of scheduling adds in its step times, and without the API server's time."""
    return msgspec.structs.replace(profile, step_time=profile.timed, overheads={}, api_server_s=0.0)


def replayed(run: Measured, profile: Profile) -> tuple[Floats, Floats]:
    """(time to first token, end to end) of each request in seconds, NaN for one that never came to it."""
    calls = simulate(run.calls, ONCE, baked(profile), timeline_interval_s=0).calls
    delivered = np.asarray(pc.equal(calls["outcome"], "delivered"))
    first, end = (np.asarray(pc.fill_null(calls[name], np.nan)) for name in ("first_token_s", "end_s"))
    there = np.where(delivered, 0.0, np.nan) + profile.api_server_s
    return first - run.arrival_s + there, end - run.arrival_s + there


def refuse_too_long(run: Measured, profile: Profile) -> None:
    """Raises BadConfig when requests that were served are longer than the profile's engine takes."""
    engine = profile.engine
    longest = min(engine.max_model_len, (engine.num_blocks - 1) * engine.block_size)
    lengths = np.asarray(pc.add(run.calls["prompt_tokens"], run.calls["output_tokens"]))[run.ok]
    if lengths.max() > longest:
        raise BadConfig(
            f"{run.path}: a request of {lengths.max():,} tokens was served, but the engine of {profile.name} takes "
            f"{longest:,}; say its own --engine max_model_len=N (now {engine.max_model_len}) and "
            f"num_blocks=N (now {engine.num_blocks})"
        )


def compare_serving(run: Measured, profile: Profile, notes: list[str]) -> ServingValidation:
    """The figures of a benchmark beside those of its replay on `profile`. Raises BadConfig."""
    refuse_too_long(run, profile)
    ttft, e2e = replayed(run, profile)
    both = run.ok & ~np.isnan(ttft) & ~np.isnan(run.ttft_s) & ~np.isnan(run.e2e_s)
    pairs = {
        "ttft_ms": (run.ttft_s, ttft),
        "tpot_ms": (run.tpot_s(run.ttft_s, run.e2e_s), run.tpot_s(ttft, e2e)),
        "e2e_ms": (run.e2e_s, e2e),
    }
    figures = []
    for name, (measured, predicted) in pairs.items():
        seen = both & ~np.isnan(measured) & ~np.isnan(predicted)
        if seen.any():
            figures += spread(name, 1e3 * measured[seen], 1e3 * predicted[seen])
    figures += overall(run, np.where(both, run.e2e_s, np.nan), np.where(both, e2e, np.nan))
    return ServingValidation(
        path=run.path, profile=profile.name, requests=int(both.sum()), figures=figures, notes=[*run.notes, *notes]
    )


def spread(name: str, measured: Floats, predicted: Floats) -> list[Figure]:
    """Mean and quantiles of a figure."""
    figures = [Figure(figure=f"{name}_mean", measured=float(measured.mean()), predicted=float(predicted.mean()))]
    for quantile, q in QUANTILES.items():
        values = (float(np.quantile(measured, q)), float(np.quantile(predicted, q)))
        figures.append(Figure(figure=f"{name}_{quantile}", measured=values[0], predicted=values[1]))
    return figures


def overall(run: Measured, measured_e2e: Floats, predicted_e2e: Floats) -> list[Figure]:
    """How long the benchmark took from its first arrival to its last response, and what it served in that time."""
    took = [float(np.nanmax(run.arrival_s + e2e)) for e2e in (measured_e2e, predicted_e2e)]
    counted = ~np.isnan(measured_e2e)
    amounts = {"requests_per_s": float(counted.sum()), "output_tokens_per_s": float(run.output_tokens[counted].sum())}
    figures = [Figure(figure="makespan_s", measured=took[0], predicted=took[1])]
    figures += [Figure(figure=k, measured=v / took[0], predicted=v / took[1]) for k, v in amounts.items()]
    return figures
