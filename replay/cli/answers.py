"""From a run directory to answers: query, sql, report."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from replay.cli.group import BREACHED, cli, json_option, note, pairs, quiet_option
from trace_schema.errors import BadConfig

if TYPE_CHECKING:
    from replay.report.thresholds import Judgement


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


fail_if_option = click.option(
    "--fail-if",
    "fail_if",
    multiple=True,
    metavar="CONDITION",
    help="Exit with 99 where it holds: [POLICY:]FIGURE OP NUMBER, such as 'delivered_call_rate < 99%'. Repeatable. "
    "FIGURE is a column of replay query summary, or QUERY.COLUMN. Without POLICY it is the log's own policy that is "
    "judged, or every one where that is not known; '*:' is every one. In place of the experiment file's thresholds.",
)


@cli.command()
@click.argument("run_directory", metavar="RUN")
@click.option("-o", "--output", metavar="PAGE.html", help="Write it as a page, with PNG files beside it.")
@fail_if_option
@json_option
@quiet_option
def report(run_directory: str, output: str | None, fail_if: Sequence[str], as_json: bool, quiet: bool) -> None:
    """Print the answer that a run gives; what breached its thresholds, or those of --fail-if, comes first."""
    from replay.report.thresholds import judge, parse_all, saved

    judgements = judge(run_directory, parse_all(fail_if)) if fail_if else saved(run_directory)
    if output is not None:
        from replay.report.page import write_page

        note(f"wrote {write_page(run_directory, output, judgements)}", quiet)
    else:
        show_answer(run_directory, judgements, as_json)
    if any(judgement.breached for judgement in judgements):
        sys.exit(BREACHED)


def show_answer(run_directory: str, judgements: Sequence[Judgement], as_json: bool) -> None:
    """Print what breached a threshold, then the report."""
    import msgspec

    from replay.report.answer import report, report_data
    from replay.report.thresholds import lines

    if as_json:
        found = {"thresholds": msgspec.to_builtins(judgements), **report_data(run_directory)}
        click.echo(json.dumps(found, indent=1))
    else:
        click.echo("\n\n".join(part for part in ("\n".join(lines(judgements)), report(run_directory)) if part))
