"""What is replayed on and under: calibrate, validate, policies."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from replay.cli.group import FAILED, cli, json_option, note, quiet_option, yaml_pairs
from trace_schema.errors import BadConfig


@cli.command()
@click.argument("files", nargs=-1, required=True)
@click.option("-o", "--output", required=True, help="Profile to write (JSON).")
@click.option("--engine", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the engine.")
@click.option("--base", metavar="PROFILE", help="Benchmarks: the profile to start from (see replay profiles).")
@click.option("--gpu", help="Benchmarks: the GPU, where the profile to start from is the nearest.")
@click.option("--speed-of", metavar="STEP_LOG", help="Step log: scale to the speed of another hour's log.")
@json_option
@quiet_option
def calibrate(
    files: Sequence[str],
    output: str,
    settings: Sequence[str],
    base: str | None,
    gpu: str | None,
    speed_of: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit an engine's step times to its step log, or to results of benchmarks, and write them as a profile.

    FILE... is one step log, or any number of results of one engine under different loads (vllm bench serve,
    GuideLLM, AIPerf, inference-perf; see docs/calibration.md).
    """
    from replay.calibrate.sources import is_step_log

    engine = yaml_pairs(settings, "--engine")
    step_logs = [path for path in files if is_step_log(path)]
    if step_logs and len(files) > 1:
        raise BadConfig(f"{step_logs[0]} is a step log: it is calibrated from alone")
    if step_logs and (base or gpu):
        raise BadConfig(f"{step_logs[0]} is a step log, which tells all step times: it takes no --base and no --gpu")
    if not step_logs and speed_of:
        raise BadConfig(f"--speed-of scales the fit of a step log, which {files[0]} is not")
    if step_logs:
        calibrate_steps(step_logs[0], output, engine, speed_of, as_json, quiet)
    else:
        calibrate_loads(files, output, engine, base, gpu, as_json, quiet)


def calibrate_steps(
    path: str, output: str, engine: dict[str, Any], speed_of: str | None, as_json: bool, quiet: bool
) -> None:
    """A profile from a step log."""
    import msgspec

    from replay.calibrate import calibrate as fit_profile
    from replay.profiles.loader import save_profile

    profile, fit = fit_profile(path, engine, speed_of)
    save_profile(profile, output)
    if as_json:
        click.echo(msgspec.json.encode({"profile": profile, "fit": fit}).decode())
    else:
        note(f"fitted          {fit.steps:,} steps, {fit.outliers} outliers left out", quiet)
        note(f"error           {profile.error}", quiet)
        note(f"source          {profile.source}", quiet)
        note(f"wrote           {output}", quiet)


def calibrate_loads(
    files: Sequence[str],
    output: str,
    engine: dict[str, Any],
    base: str | None,
    gpu: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """A profile from results of benchmarks."""
    import msgspec

    from replay.calibrate.benchmarks import calibrate_benchmarks
    from replay.profiles.loader import save_profile
    from replay.progress import progress
    from replay.report.calibration import fit_text

    with progress("fitting", quiet=quiet) as told:
        profile, fit = calibrate_benchmarks(files, engine=engine, base=base, gpu=gpu, on_progress=told)
    save_profile(profile, output)
    for line in fit.notes:
        note(line, quiet)
    click.echo(msgspec.json.encode({"profile": profile, "fit": fit}).decode() if as_json else fit_text(fit))
    note(f"wrote           {output}", quiet or as_json)


@cli.command()
@click.argument("place", required=False, metavar="DIRECTORY|FILE")
@click.option("--points", metavar="FILE", help="Serving results and KV pools of many machines, held against profiles.")
@click.option("--profile", help="FILE: the profile that predicts it; the nearest to what FILE says when absent.")
@click.option("--engine", "settings", multiple=True, metavar="KEY=VALUE", help="FILE: a setting of the engine.")
@click.option("--seeds", type=click.IntRange(min=1), default=20, help="DIRECTORY: replays of each recording.")
@click.option("--no-drift", is_flag=True, help="DIRECTORY: do not correct for the machine's speed in each recording.")
@json_option
@quiet_option
def validate(
    place: str | None,
    points: str | None,
    profile: str | None,
    settings: Sequence[str],
    seeds: int,
    no_drift: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Replay recordings of a real engine, and compare each figure with what was measured.

    DIRECTORY holds recordings of a machine under several policies. FILE is the result of a benchmark, replayed on
    --profile. --points holds summed results of many benchmarks instead, each predicted by the shipped profile of its
    GPU, model and engine.
    """
    import os

    if (place is None) == (points is None):
        raise BadConfig("replay validate: give a DIRECTORY of recordings, the FILE of a benchmark, or --points FILE")
    benchmark = place is not None and os.path.isfile(place)
    if (profile or settings) and not benchmark:
        raise BadConfig("--profile and --engine are for the FILE of a benchmark; recordings and points say theirs")
    if points is not None:
        validate_points(points, as_json, quiet)
    elif benchmark:
        validate_file(str(place), profile, yaml_pairs(settings, "--engine"), as_json, quiet)
    else:
        validate_directory(str(place), seeds, not no_drift, as_json, quiet)


def validate_directory(path: str, seeds: int, drift: bool, as_json: bool, quiet: bool) -> None:
    """Every figure of recorded policies beside its prediction; exits with FAILED when one is out of tolerance."""
    import msgspec

    from replay.calibrate.validate import validate as compare
    from replay.progress import progress
    from replay.report.validation import validation_text

    with progress("validating", quiet=quiet) as told:
        validation = compare(path, seeds=seeds, drift=drift, on_progress=told)
    for line in validation.notes:
        note(line, quiet)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(validation.comparisons), indent=1))
    else:
        click.echo(validation_text(validation))
    if not validation.ok:
        sys.exit(FAILED)


def validate_file(path: str, profile: str | None, engine: dict[str, Any], as_json: bool, quiet: bool) -> None:
    """Every figure of a benchmark beside its prediction."""
    from replay.calibrate.benchmarks import validate_benchmark
    from replay.report.calibration import serving_text

    validation = validate_benchmark(path, profile, engine)
    for line in validation.notes:
        note(line, quiet)
    rows = [
        {"figure": f.figure, "measured": f.measured, "predicted": f.predicted, "error": f.error}
        for f in validation.figures
    ]
    click.echo(json.dumps(rows, indent=1) if as_json else serving_text(validation))


def validate_points(path: str, as_json: bool, quiet: bool) -> None:
    """Every figure of a file of measured points beside its prediction."""
    import msgspec

    from replay.calibrate.points import compare_points
    from replay.progress import progress
    from replay.report.points import points_text

    with progress("validating", quiet=quiet) as told:
        figures = compare_points(path, on_progress=told)
    click.echo(json.dumps(msgspec.to_builtins(figures), indent=1) if as_json else points_text(figures))


@cli.command()
@click.argument("action", type=click.Choice(["list", "show"]), default="list")
@click.argument("name", required=False)
@json_option
def engines(action: str, name: str | None, as_json: bool) -> None:
    """List the engines for --set engine.preset=NAME, or show what is modelled of one: replay engines show NAME."""
    import msgspec
    import yaml

    from replay.profiles.presets import PRESETS, preset

    if action == "show":
        if name is None:
            raise BadConfig(f"replay engines show NAME: which one? {', '.join(PRESETS)}")
        shown = msgspec.to_builtins(preset(name))
        click.echo(json.dumps(shown) if as_json else yaml.safe_dump(shown, sort_keys=False, width=110).rstrip())
        return
    summaries = {key: known.summary for key, known in PRESETS.items()}
    click.echo(json.dumps(summaries) if as_json else "\n".join(f"{key:16}{text}" for key, text in summaries.items()))
