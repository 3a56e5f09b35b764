"""From a run directory to answers: query, sql, export, compare, report."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from replay.cli.group import BREACHED, cli, json_option, note, pairs, quiet_option
from trace_schema.errors import BadConfig

if TYPE_CHECKING:
    import pyarrow as pa

    from replay.report.thresholds import Judgement


FORMATS = {"table": ".txt", "csv": ".csv", "json": ".json", "markdown": ".md", "parquet": ".parquet"}
"""How a result can be given, and the files that are written so without being told."""

format_option = click.option("--format", type=click.Choice(list(FORMATS)), help="How to give it. Default: table.")
output_option = click.option("-o", "--output", metavar="FILE", help="Write it; the name's end may say the format.")


def give(table: pa.Table, format: str | None, as_json: bool, output: str | None) -> None:
    """Print a result, or write it to a file, whole or not at all. Raises BadConfig."""
    from replay.files import parquet_bytes, write_whole
    from replay.report.tables import distinct, render

    ends = {end: name for name, end in FORMATS.items()}
    chosen = "json" if as_json else format or ends.get(Path(output or "").suffix, "table")
    if output is None and chosen == "parquet":
        raise BadConfig("--format parquet: needs a file, -o FILE.parquet")
    if output is None:
        click.echo(render(table, chosen))
    elif chosen == "parquet":
        write_whole(output, parquet_bytes(table.rename_columns(distinct(table.column_names))))
    else:
        write_whole(output, f"{render(table, chosen)}\n".encode())


@cli.command()
@click.argument("name", required=False)
@click.argument("run_directory", metavar="RUN", required=False)
@click.option("--list", "listed", is_flag=True, help="List the queries.")
@click.option("-p", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter of the query. Repeatable.")
@format_option
@output_option
@json_option
def query(
    name: str | None,
    run_directory: str | None,
    listed: bool,
    parameters: Sequence[str],
    format: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Run a named query on a run directory: replay query NAME RUN. Without both, list them."""
    from queries import load, names, run_query

    if run_directory in names() and name not in names():
        name, run_directory = run_directory, name
    if listed or (name is None and run_directory is None):
        known = [load(each) for each in names()]
        if as_json:
            shown = [{"name": q.name, "purpose": q.purpose, "parameters": q.parameters} for q in known]
            click.echo(json.dumps(shown, indent=1))
        else:
            click.echo("\n".join(f"{q.name:28}{q.purpose}" for q in known))
    elif run_directory is None:
        raise BadConfig(f"replay query NAME RUN: {name!r} alone is not enough; queries: {', '.join(names())}")
    else:
        give(run_query(run_directory, str(name), pairs(parameters, "-p")), format, as_json, output)


@cli.command()
@click.argument("run_directory", metavar="RUN")
@click.argument("statement", metavar="SQL", required=False)
@format_option
@output_option
@json_option
def sql(run_directory: str, statement: str | None, format: str | None, output: str | None, as_json: bool) -> None:
    """Run SQL on a run directory. Tables: calls, attempts, executions, timeline, replicas, phases, policies, run ...

    Without SQL, reads it from standard input; on a terminal, statement by statement. A run is only read.
    """
    from queries import run_sql

    if statement is None and sys.stdin.isatty():
        from replay.report.prompt import prompt

        prompt(run_directory)
        return
    text = statement if statement is not None else sys.stdin.read()
    if not text.strip():
        raise BadConfig("replay sql RUN SQL: no SQL was given")
    give(run_sql(run_directory, text), format, as_json, output)


@cli.command()
@click.argument("run_directory", metavar="RUN")
@click.option("--duckdb", "database", required=True, metavar="FILE", help="DuckDB file to write.")
@json_option
@quiet_option
def export(run_directory: str, database: str, as_json: bool, quiet: bool) -> None:
    """Write a run as one DuckDB file: its tables, and the named queries as views over them."""
    from queries.export import export_duckdb

    names = export_duckdb(run_directory, database)
    if as_json:
        click.echo(json.dumps({"wrote": database, "tables": names}, indent=1))
        return
    note(f"wrote {database}: {len(names)} tables and views; duckdb {database} -c 'FROM summary' asks it", quiet)


@cli.command()
@click.argument("run_directory", metavar="RUN")
@click.argument("other", metavar="RUN2", required=False)
@click.option("--baseline", metavar="POLICY", help="What to compare with. Default: the log's own policy, or the first.")
@click.option("--format", type=click.Choice(["text", "json", "markdown"]), default="text", help="How to print.")
@json_option
def compare(run_directory: str, other: str | None, baseline: str | None, format: str, as_json: bool) -> None:
    """What each policy changes next to one of them; or what changed from RUN to RUN2, policy by policy.

    Replays are paired by seed, so that both have the same calls and waits; intervals are bootstrapped over the pairs.
    """
    import msgspec

    from replay.report.compare import compare as within
    from replay.report.compare import compare_runs
    from replay.report.differences import comparison_markdown, comparison_text, sentences

    if other is not None and baseline is not None:
        raise BadConfig("--baseline: is for policies of one run; of two runs, each policy is compared with itself")
    comparison = within(run_directory, baseline) if other is None else compare_runs(run_directory, other)
    if as_json or format == "json":
        click.echo(json.dumps({"sentences": sentences(comparison), **msgspec.to_builtins(comparison)}, indent=1))
    else:
        click.echo(comparison_markdown(comparison) if format == "markdown" else comparison_text(comparison))


class Condition(click.types.StringParamType):
    """A threshold, which holds blanks: in the environment, several are told apart by semicolons."""

    name = "condition"
    envvar_list_splitter = ";"


fail_if_option = click.option(
    "--fail-if",
    "fail_if",
    multiple=True,
    type=Condition(),
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
