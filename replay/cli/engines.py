"""What is replayed on and under: calibrate, validate, policies."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

from replay.cli.group import FAILED, cli, json_option, note, quiet_option, yaml_pairs
from trace_schema.errors import BadConfig


@cli.command()
@click.argument("step_log")
@click.option("-o", "--output", required=True, help="Profile to write (JSON).")
@click.option("--engine", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the engine.")
@click.option("--speed-of", metavar="STEP_LOG", help="Scale the step times to the speed of another hour's log.")
@json_option
@quiet_option
def calibrate(
    step_log: str, output: str, settings: Sequence[str], speed_of: str | None, as_json: bool, quiet: bool
) -> None:
    """Fit an engine's step times to its step log, and write them as a profile."""
    import msgspec

    from replay.calibrate import calibrate as fit_profile
    from replay.profiles.loader import save_profile

    profile, fit = fit_profile(step_log, yaml_pairs(settings, "--engine"), speed_of)
    save_profile(profile, output)
    if as_json:
        click.echo(msgspec.json.encode({"profile": profile, "fit": fit}).decode())
    else:
        note(f"fitted          {fit.steps:,} steps, {fit.outliers} outliers left out", quiet)
        note(f"error           {profile.error}", quiet)
        note(f"source          {profile.source}", quiet)
        note(f"wrote           {output}", quiet)


@cli.command()
@click.argument("directory", required=False)
@click.option("--points", metavar="FILE", help="Serving results and KV pools of many machines, held against profiles.")
@click.option("--seeds", type=click.IntRange(min=1), default=20, help="Replays of each recording.")
@click.option("--no-drift", is_flag=True, help="Do not correct for the machine's speed in each recording.")
@json_option
@quiet_option
def validate(directory: str | None, points: str | None, seeds: int, no_drift: bool, as_json: bool, quiet: bool) -> None:
    """Replay recordings of a real engine, and compare each figure with what was measured.

    DIRECTORY holds recordings of a machine under several policies. --points holds results of benchmarks instead, each
    predicted by the shipped profile of its GPU, model and engine.
    """
    import msgspec

    if (directory is None) == (points is None):
        raise BadConfig("replay validate: give a DIRECTORY of recordings, or --points FILE")
    if points is not None:
        validate_points(points, as_json, quiet)
        return
    assert directory is not None

    from replay.calibrate.validate import validate as compare
    from replay.progress import progress
    from replay.report.validation import validation_text

    with progress("validating", quiet=quiet) as told:
        validation = compare(directory, seeds=seeds, drift=not no_drift, on_progress=told)
    for line in validation.notes:
        note(line, quiet)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(validation.comparisons), indent=1))
    else:
        click.echo(validation_text(validation))
    if not validation.ok:
        sys.exit(FAILED)


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
def policies(action: str, name: str | None, as_json: bool) -> None:
    """List the policies of the catalogue, or show the knobs of one: replay policies show NAME."""
    import msgspec
    import yaml

    from replay.policies.catalogue import CATALOGUE, resolve

    if action == "show":
        if name is None:
            raise BadConfig(f"replay policies show NAME: which one? {', '.join(CATALOGUE)}")
        knobs = msgspec.to_builtins(resolve(name))
        click.echo(json.dumps(knobs) if as_json else yaml.safe_dump(knobs, sort_keys=False).rstrip())
        return
    summaries = {key: entry.summary for key, entry in CATALOGUE.items()}
    click.echo(json.dumps(summaries) if as_json else "\n".join(f"{key:18}{text}" for key, text in summaries.items()))
