"""A profile from benchmarks, and benchmarks against a profile: the ways in for files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from replay.calibrate.factors import BenchmarkFit, fit_factors
from replay.calibrate.serving import ServingValidation, compare_serving
from replay.calibrate.sources import Measured, as_measured, base_profile, read_measured
from replay.errors import BadInput
from replay.profiles.profile import Profile


def calibrate_benchmarks(
    files: Sequence[str],
    *,
    engine: Mapping[str, Any] | None = None,
    base: str | None = None,
    gpu: str | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> tuple[Profile, BenchmarkFit]:
    """A profile fitted to the requests of benchmarks of one engine.

    Parameters
    ----------
    files
        Results of benchmarks: different loads of the same engine tell more than one.
    engine
        Settings of the engine, by the names of `EngineSettings`, where the files do not say them.
    base
        The profile to start from; by default the nearest to what the files say, and to `gpu`.
    on_progress
        Called now and then with the share of the work that is done.

    Raises
    ------
    BadInput
        A file is no benchmark's result, or the data cannot tell.
    BadConfig
        The engine is not known, or a setting is wrong.
    """
    runs = [read_measured(path) for path in files]
    refuse_two_engines(runs)
    served = runs[0].served
    start, notes = as_measured(base_profile(served, base, gpu), served, engine or {})
    fitted, fit = fit_factors(runs, start, on_progress=on_progress)
    errors = ", ".join(f"{name.upper()} {e.mean:.1%} (p90 {e.p90:.1%})" for name, e in fit.errors.items())
    profile = msgspec.structs.replace(
        fitted,
        name=Path(files[0]).name.split(".")[0],
        source=f"{start.name} fitted to {', '.join(Path(path).name for path in files)}",
        error=f"mean absolute error of requests held back: {errors}",
        weakness=weakness(fit),
    )
    return profile, msgspec.structs.replace(fit, notes=[*fit.notes, *notes])


def refuse_two_engines(runs: Sequence[Measured]) -> None:
    """Raises BadInput when the files say that they measured different models or GPUs."""
    first = runs[0]
    for run in runs[1:]:
        for name in ("model", "gpu", "tp", "dtype", "engine"):
            a, b = getattr(first.served, name), getattr(run.served, name)
            if a is not None and b is not None and a != b:
                raise BadInput.at(run.path, f"was measured on another engine than {first.path}: {name} {b}, not {a}")


def weakness(fit: BenchmarkFit) -> str:
    """What the data did not tell, for whoever reads the profile."""
    untold = [value.words for value in fit.values if not value.told]
    return f"not told by the data, and as in {fit.base}: {', '.join(untold)}" if untold else ""


def validate_benchmark(path: str, profile: str | None, engine: Mapping[str, Any] | None = None) -> ServingValidation:
    """The figures of a benchmark's result beside those that `profile` predicts for its arrivals and lengths.

    Without `profile`, the nearest to what the file says of its engine. What the file says of the engine's settings goes
    before the profile's own; `engine` before both. Raises BadInput and BadConfig.
    """
    run = read_measured(path)
    predicted, notes = as_measured(base_profile(run.served, profile, None), run.served, engine or {})
    return compare_serving(run, predicted, notes)
