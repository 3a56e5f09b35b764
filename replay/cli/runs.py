"""From a trace to a run directory: init, run."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from replay.cli.answers import fail_if_option, show_answer
from replay.cli.group import BREACHED, cli, json_option, note, quiet_option, yaml_pairs
from trace_schema.errors import BadConfig

if TYPE_CHECKING:
    from replay.runner import Store
    from replay.runner.cells import Executor


@cli.command()
@click.argument("path", default="experiment.yaml")
@json_option
def init(path: str, as_json: bool) -> None:
    """Write an experiment file in which every setting is explained. PATH is experiment.yaml if not given; - prints it.

    It never overwrites a file.
    """
    from replay.config import template, write_template

    if path == "-":
        click.echo(template(), nl=False)
        return
    write_template(path)
    if as_json:
        click.echo(json.dumps({"written": path}))
    note(f"wrote {path}: replay run TRACE --config {path} -o RUN")


@cli.command()
@click.argument("trace")
@click.option("-o", "--output", required=True, help="Run directory; one that was broken off is finished.")
@click.option("--policy", "policies", multiple=True, help="Name of the catalogue, or a YAML file. Default: all.")
@click.option("--config", help="Experiment file (YAML).")
@click.option("--profile", multiple=True, help="Engine profile: a name of replay profiles, or a file. Repeatable.")
@click.option("--replicas", type=int, multiple=True, help="Equal engines behind the gateway. Repeatable.")
@click.option("--seeds", type=int, help="Replays of each policy, with other random waits.")
@click.option("--overload", metavar="START:END", help="When the overload was, in seconds from the trace's start.")
@click.option("--as-logged", help="Policy that the log was recorded under; it is replayed first and compared.")
@click.option("--timeout-s", type=float, help="How long clients wait for an attempt. Default: what the log shows.")
@click.option("--max-attempts", type=int, help="Attempts of a call. Default: what the log shows.")
@click.option("--slo-s", type=float, help="A call is on time so many seconds after its arrival.")
@click.option(
    "--uncensor",
    type=click.Choice(["kaplan-meier", "none"]),
    help="Outputs and patience that the log cut short: drawn from its own law (default), or as they were seen.",
)
@click.option("--until-s", type=float, help="Cut the simulation at this second.")
@click.option("--drain-s", type=float, help="Cut it so long after the last arrival.")
@click.option("--warmup-s", type=float, help="Leave out arrivals before this second.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other setting, such as fleet.replicas=4."
)
@click.option(
    "--executor", type=click.Choice(["ray", "inline"]), default="ray", help="Replays run on Ray, or in this process."
)
@click.option("--workers", type=click.IntRange(min=1), help="Replays at once. Default: one for each CPU.")
@click.option("--address", help="A Ray cluster: auto, host:port or ray://host:port. Default: this machine.")
@fail_if_option
@json_option
@quiet_option
@click.pass_context
def run(ctx: click.Context, /, trace: str, output: str, as_json: bool, quiet: bool, **flags: Any) -> None:
    """Replay a trace under policies; write the results as Parquet, and print the answer."""
    from replay.config import layered, log_settings, read_experiment
    from replay.ingest import read_trace
    from replay.progress import progress
    from replay.report.thresholds import check_policies, judge, parse_all, save
    from replay.runner import Store, execute, make_plan

    loaded = read_trace(trace)
    config = flags.pop("config")
    layers = [
        ("log", log_settings(loaded.client, loaded.about.added)),
        (str(config), read_experiment(config) if config else {}),
        ("environment", given(ctx, flags, ParameterSource.ENVIRONMENT)),
        ("flag", given(ctx, flags, ParameterSource.COMMANDLINE)),
    ]
    experiment, sources = layered(layers)
    thresholds = parse_all(experiment.thresholds)
    store = Store(output)
    executor = executor_for(store, flags["executor"], flags["workers"], flags["address"])
    plan = make_plan(experiment, sources, loaded)
    check_policies(thresholds, [policy.name for policy in plan.policies])
    for line in plan.notes:
        note(line, quiet)
    with progress(f"{len(plan.cells)} replays", quiet=quiet) as told:
        execute(plan, store, executor, told)
    judgements = judge(output, thresholds)
    save(output, judgements)
    show_answer(output, judgements, as_json)
    from replay.report.page import write_page  # after the run: drawing takes half a second to import

    page = write_page(output, judgements=judgements)
    note(f"\nwrote {page}, to be opened in a browser", quiet)
    note(f"wrote {output}; ask it more with replay query --list, or SQL with replay sql {output}", quiet)
    if any(judgement.breached for judgement in judgements):
        sys.exit(BREACHED)


def executor_for(store: Store, name: str, workers: int | None, address: str | None) -> Executor:
    """Where the cells of a run go. Raises BadConfig."""
    if name == "inline":
        if workers is not None or address is not None:
            raise BadConfig("--executor inline runs in this process: --workers and --address are for --executor ray")
        from replay.runner import InlineExecutor

        return InlineExecutor(store)
    from replay.runner.cluster import RayExecutor

    return RayExecutor(store, address=address, workers=workers)


FLAG_KEYS = {
    "seeds": "seeds", "as_logged": "as_logged", "slo_s": "slo_s",
    "timeout_s": "client.timeout_s", "max_attempts": "client.max_attempts", "until_s": "until_s", "drain_s": "drain_s",
    "warmup_s": "warmup_s", "uncensor": "uncensor",
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
        elif flag == "fail_if":
            found["thresholds"] = list(value)
        elif flag == "profile":
            found["profile"] = list(value)
        elif flag == "replicas":
            fleets = [{"replicas": n} for n in value]
            found["fleet"] = fleets[0] if len(fleets) == 1 else fleets
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
