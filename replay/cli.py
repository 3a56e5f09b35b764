"""The command line: parse, call the library, print. Data goes to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from trace_schema.errors import BadConfig, BadInput, UnknownName, UserError

OK, FAILED, USAGE, BAD_DATA, INTERRUPTED = 0, 1, 2, 3, 130


class Commands(click.Group):
    """A group that names the nearest command for one that does not exist."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            raise UnknownName.of("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="llm-traffic-replay", prog_name="replay")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Which cancellation, retry or coalescing policy would have served these calls, and what did ours waste?

    Ingest a log, replay it through simulated engines under every policy, and query what became of its calls.
    """


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
quiet_option = click.option("--quiet", is_flag=True, help="Print no progress and no notes.")


def note(message: str, quiet: bool = False) -> None:
    """Say something that is not data."""
    if not quiet:
        click.echo(message, err=True)


def pairs(values: Sequence[str], flag: str) -> dict[str, str]:
    """`key=value` flags. Raises BadConfig."""
    found = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise BadConfig(f"{flag} {value}: must be key=value")
        found[key] = text
    return found


def yaml_pairs(values: Sequence[str], flag: str) -> dict[str, Any]:
    """`key=value` flags whose values are YAML. Raises BadConfig."""
    import yaml

    found = {}
    for key, text in pairs(values, flag).items():
        try:
            found[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise BadConfig(f"{flag} {key}={text}: the value is not YAML") from None
    return found


@cli.command()
@click.argument("files", nargs=-1, required=True)
@click.option("-o", "--output", required=True, help="Trace file to write (Parquet).")
@click.option("--format", help="Format of the logs; guessed when absent (see replay formats).")
@click.option("--map", "mapping", multiple=True, metavar="FIELD=COLUMN", help="Which column is which field.")
@click.option("--strict", is_flag=True, help="Refuse a log with a row that cannot be used.")
@json_option
@quiet_option
def ingest(
    files: Sequence[str],
    output: str,
    format: str | None,
    mapping: Sequence[str],
    strict: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Read logs (files or patterns) as one trace, and say what was guessed and dropped."""
    import msgspec

    from replay.describe import report_lines
    from replay.ingest import ingest as read
    from replay.ingest import write_trace
    from replay.progress import progress

    with progress("reading", quiet=quiet) as told:
        trace = read(files, format=format, mapping=pairs(mapping, "--map"), strict=strict, on_progress=told)
    write_trace(trace, output)
    if as_json:
        click.echo(msgspec.json.encode(trace.about).decode())
    else:
        report = trace.report
        assert report is not None
        note("\n".join(report_lines(report)), quiet)
        note(f"wrote           {output}: {report.calls:,} calls from {report.attempts:,} attempts", quiet)


@cli.command()
@click.argument("trace")
@json_option
def describe(trace: str, as_json: bool) -> None:
    """Show what a trace (or a log) holds: rates, lengths, outcomes, phases, and what it cannot show."""
    from replay.describe import as_dict
    from replay.describe import describe as figures
    from replay.ingest import read_trace

    description = figures(read_trace(trace))
    click.echo(json.dumps(as_dict(description), indent=1) if as_json else description.text())


@cli.command()
@click.argument("trace")
@click.option("-o", "--output", required=True, help="Run directory; one that was broken off is finished.")
@click.option("--policy", "policies", multiple=True, help="Name of the catalogue, or a YAML file. Default: all.")
@click.option("--config", help="Experiment file (YAML).")
@click.option("--profile", help="Engine profile (see replay calibrate).")
@click.option("--replicas", type=int, help="Equal engines behind the gateway.")
@click.option("--seeds", type=int, help="Replays of each policy, with other random waits.")
@click.option("--overload", metavar="START:END", help="When the overload was, in seconds from the trace's start.")
@click.option("--as-logged", help="Policy that the log was recorded under; it is replayed first and compared.")
@click.option("--timeout-s", type=float, help="How long clients wait for an attempt. Default: what the log shows.")
@click.option("--max-attempts", type=int, help="Attempts of a call. Default: what the log shows.")
@click.option("--slo-s", type=float, help="A call is on time so many seconds after its arrival.")
@click.option("--until-s", type=float, help="Cut the simulation at this second.")
@click.option("--drain-s", type=float, help="Cut it so long after the last arrival.")
@click.option("--warmup-s", type=float, help="Leave out arrivals before this second.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other setting, such as fleet.replicas=4."
)
@click.option("--executor", type=click.Choice(["inline"]), default="inline", help="Where cells run.")
@json_option
@quiet_option
@click.pass_context
def run(ctx: click.Context, /, trace: str, output: str, as_json: bool, quiet: bool, **flags: Any) -> None:
    """Replay a trace under policies; write the results as Parquet, and print the answer."""
    from replay.config import layered, log_settings, read_experiment
    from replay.ingest import read_trace
    from replay.progress import progress
    from replay.report.answer import report, report_data
    from replay.runner import InlineExecutor, Store, execute, make_plan

    loaded = read_trace(trace)
    config = flags.pop("config")
    layers = [
        ("log", log_settings(loaded.client)),
        (str(config), read_experiment(config) if config else {}),
        ("environment", given(ctx, flags, ParameterSource.ENVIRONMENT)),
        ("flag", given(ctx, flags, ParameterSource.COMMANDLINE)),
    ]
    experiment, sources = layered(layers)
    store = Store(output)
    plan = make_plan(experiment, sources, loaded)
    if plan.other_clients:
        note(f"{'; '.join(plan.other_clients)}: the log's own policy is not compared with it", quiet)
    elif experiment.as_logged and sources["as_logged"][1] == "log":
        note(f"the log's own policy is taken to be {experiment.as_logged} (--as-logged names another)", quiet)
    with progress(f"{len(plan.cells)} replays", quiet=quiet) as told:
        execute(plan, store, InlineExecutor(store), told)
    click.echo(json.dumps(report_data(output), indent=1) if as_json else report(output))
    note(f"\nwrote {output}; ask it more with replay query --list, or SQL with replay sql {output}", quiet)


FLAG_KEYS = {
    "profile": "profile", "replicas": "fleet.replicas", "seeds": "seeds", "as_logged": "as_logged", "slo_s": "slo_s",
    "timeout_s": "client.timeout_s", "max_attempts": "client.max_attempts", "until_s": "until_s", "drain_s": "drain_s",
    "warmup_s": "warmup_s",
}  # fmt: skip
"""Setting of each flag that is one."""


def given(ctx: click.Context, flags: Mapping[str, Any], source: ParameterSource) -> dict[str, Any]:
    """The settings that were given on the command line, or by the environment."""
    from replay.phases import parse

    chosen = {k: v for k, v in flags.items() if ctx.get_parameter_source(k) is source}
    found: dict[str, Any] = {}
    for flag, value in chosen.items():
        if flag in FLAG_KEYS:
            put(found, FLAG_KEYS[flag], value)
        elif flag == "policies":
            found["policies"] = list(value)
        elif flag == "overload":
            during = parse(value)[1]
            found["overload"] = {"start_s": during.start_s, "end_s": during.end_s}
        elif flag == "settings":
            for key, setting in yaml_pairs(value, "--set").items():
                put(found, key, setting)
    return found


def put(settings: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key."""
    *path, last = key.split(".")
    for part in path:
        if not isinstance(settings.get(part), dict):
            settings[part] = {}
        settings = settings[part]
    settings[last] = value


@cli.command()
@click.argument("name_or_run", required=False)
@click.argument("run_directory", metavar="RUN", required=False)
@click.option("--list", "listed", is_flag=True, help="List the queries.")
@click.option("-p", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter of the query.")
@click.option(
    "--format", type=click.Choice(["table", "csv", "json", "markdown"]), default="table", help="How to print."
)
@json_option
def query(
    name_or_run: str | None,
    run_directory: str | None,
    listed: bool,
    parameters: Sequence[str],
    format: str,
    as_json: bool,
) -> None:
    """Run a named query on a run directory: replay query NAME RUN."""
    from queries import load, names, run_query
    from replay.report.tables import render

    if listed or run_directory is None:
        if name_or_run is not None and not listed:
            raise BadConfig(
                f"replay query NAME RUN: {name_or_run!r} alone is not enough; queries: {', '.join(names())}"
            )
        click.echo("\n".join(f"{name:22}{load(name).purpose}" for name in names()))
        return
    values = {key: as_number(key, text) for key, text in pairs(parameters, "-p").items()}
    click.echo(render(run_query(run_directory, str(name_or_run), values), "json" if as_json else format))


def as_number(key: str, text: str) -> float:
    """A parameter's value. Raises BadConfig."""
    try:
        return float(text)
    except ValueError:
        raise BadConfig(f"-p {key}={text}: is not a number") from None


@cli.command()
@click.argument("run_directory", metavar="RUN")
@click.argument("statement", metavar="SQL", required=False)
@click.option(
    "--format", type=click.Choice(["table", "csv", "json", "markdown"]), default="table", help="How to print."
)
@json_option
def sql(run_directory: str, statement: str | None, format: str, as_json: bool) -> None:
    """Run SQL on a run directory. Tables: calls, attempts, executions, timeline, replicas, phases, policies, run.

    Without SQL, reads it from standard input.
    """
    from queries import run_sql
    from replay.report.tables import render

    text = statement if statement is not None else sys.stdin.read()
    if not text.strip():
        raise BadConfig("replay sql RUN SQL: no SQL was given")
    click.echo(render(run_sql(run_directory, text), "json" if as_json else format))


@cli.command()
@click.argument("run_directory", metavar="RUN")
@json_option
def report(run_directory: str, as_json: bool) -> None:
    """Print the answer that a run gives."""
    from replay.report.answer import report as answer
    from replay.report.answer import report_data

    click.echo(json.dumps(report_data(run_directory), indent=1) if as_json else answer(run_directory))


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
@click.argument("directory")
@click.option("--seeds", type=click.IntRange(min=1), default=20, help="Replays of each recording.")
@click.option("--no-drift", is_flag=True, help="Do not correct for the machine's speed in each recording.")
@json_option
@quiet_option
def validate(directory: str, seeds: int, no_drift: bool, as_json: bool, quiet: bool) -> None:
    """Replay recordings of a real engine, and compare each figure with what was measured."""
    import msgspec

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


@cli.command()
@json_option
def formats(as_json: bool) -> None:
    """List the log formats that ingest reads."""
    from connectors.registry import connector, names

    known = {name: connector(name).describes for name in names()}
    click.echo(json.dumps(known) if as_json else "\n".join(f"{key:12}{text}" for key, text in known.items()))


@cli.command()
@click.option("--warm", is_flag=True, help="Compile the engine now.")
@json_option
def doctor(warm: bool, as_json: bool) -> None:
    """Check the installation: the packages come from one place, and the engine is compiled."""
    from replay.doctor import examine

    findings = examine(warm=warm)
    click.echo(json.dumps(findings, indent=1) if as_json else "\n".join(f"{k:16}{v}" for k, v in findings.items()))


def fail(message: str, code: int) -> NoReturn:
    click.echo(f"replay: {message}", err=True)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line, and exit with its code."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = cli.main(args, prog_name="replay", standalone_mode=False, auto_envvar_prefix="REPLAY")
        sys.exit(code if isinstance(code, int) else OK)
    except (KeyboardInterrupt, click.Abort):
        fail("interrupted; what was finished is kept, and the same command goes on from there", INTERRUPTED)
    except click.ClickException as error:
        fail(error.format_message(), USAGE)
    except BadConfig as error:
        fail(str(error), USAGE)
    except BadInput as error:
        fail(str(error), BAD_DATA)
    except UserError as error:
        fail(str(error), FAILED)
    except Exception as error:
        if "--debug" in args:
            raise
        fail(f"unexpected {type(error).__name__}: {error} (replay --debug ... shows where)", FAILED)
