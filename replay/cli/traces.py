"""From logs to traces: ingest, describe, formats."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from replay.cli.group import cli, json_option, note, pairs, quiet_option, yaml_pairs


@cli.command()
@click.argument("files", nargs=-1, required=True)
@click.option("-o", "--output", required=True, help="Trace file to write (Parquet).")
@click.option("--format", help="Format of the logs; guessed when absent (see replay formats).")
@click.option("--map", "mapping", multiple=True, metavar="FIELD=COLUMN", help="Which column is which field.")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", help="What the format cannot know (see replay formats)."
)
@click.option("--strict", is_flag=True, help="Refuse a log with a row that cannot be used.")
@json_option
@quiet_option
def ingest(
    files: Sequence[str],
    output: str,
    format: str | None,
    mapping: Sequence[str],
    options: Sequence[str],
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

    said = {"mapping": pairs(mapping, "--map"), "options": yaml_pairs(options, "--option")}
    with progress("reading", quiet=quiet) as told:
        trace = read(files, format=format, strict=strict, on_progress=told, **said)
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
@json_option
def formats(as_json: bool) -> None:
    """List the log formats that ingest reads."""
    from connectors.registry import connector, names, options_of

    known = {name: connector(name).describes for name in names()}
    if as_json:
        click.echo(json.dumps({name: {"describes": text, "options": options_of(name)} for name, text in known.items()}))
        return
    for name, text in known.items():
        click.echo(f"{name:12}{text}")
        for key, default in options_of(name).items():
            click.echo(f"{'':12}  --option {key}={default}")
