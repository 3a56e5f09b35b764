"""A run on a cluster, as a job of its own: submit."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

from replay.cli.group import cli, note, quiet_option
from replay.cli.runs import run
from trace_schema.errors import BadConfig


@cli.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--address", help="The cluster's dashboard, such as http://head:8265. Default: RAY_API_SERVER_ADDRESS.")
@click.option("--no-wait", is_flag=True, help="Print the job's id, and leave it to itself.")
@quiet_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def submit(address: str | None, no_wait: bool, quiet: bool, command: Sequence[str]) -> None:
    """Run on a Ray cluster, driver and all: replay submit --address URL -- run TRACE ... -o /shared/RUN

    Trace, profiles and policies of this machine go with the job; its log is shown, and its exit code is ours. Ctrl-C
    stops the job.
    """
    address = address or os.environ.get("RAY_API_SERVER_ADDRESS")
    if address is None:
        raise BadConfig("replay submit --address URL: which cluster? Its dashboard is at http://HEAD:8265")
    if command[0] != "run":
        raise BadConfig(f"replay submit -- {command[0]} ...: only run is worth a cluster")
    parsed = run.make_context("run", list(command[1:]), auto_envvar_prefix="REPLAY_RUN")
    from replay.runner.submit import connect, follow, luggage, packed, start

    with luggage() as taken:
        values = packed(parsed.params, taken)
        client = connect(address)
        job = start(client, ["run", *written(parsed, values)], taken.stage)
    if no_wait:
        click.echo(job)
        return
    note(f"job {job}; results go to {values['output']} on the cluster", quiet)
    sys.exit(follow(client, job))


def written(context: click.Context, values: Mapping[str, Any]) -> list[str]:
    """A command line that gives the parameters of a context the values that they are to have."""
    line: list[str] = []
    given = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    for parameter in context.command.params:
        name = str(parameter.name)
        if context.get_parameter_source(name) not in given:
            continue
        value = values[name]
        if isinstance(parameter, click.Argument):
            line += ["--", str(value)]
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            line += [parameter.opts[-1]] if value else []
        else:
            for one in value if parameter.multiple else (value,):
                line += [parameter.opts[-1], str(one)]
    if "--" in line:
        at = line.index("--")
        line = [*line[:at], *line[at + 2 :], *line[at : at + 2]]
    return line
