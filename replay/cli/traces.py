"""From logs to traces: ingest, describe, formats."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from replay.cli.group import cli, json_option, note, pairs, quiet_option, yaml_pairs
from trace_schema.errors import BadConfig, UnknownName


@cli.command()
@click.argument("files", nargs=-1, required=True)
@click.option("-o", "--output", required=True, help="Trace file to write (Parquet).")
@click.option("--format", help="Format of the logs; guessed when absent (see replay formats).")
@click.option("--map", "mapping", multiple=True, metavar="FIELD=COLUMN", help="Which column is which field.")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", help="What the format cannot know (see replay formats)."
)
@click.option(
    "--synthetic", multiple=True, metavar="KEY=VALUE", help="Lay users over a log (replay formats show synthetic)."
)
@click.option("--scale", multiple=True, metavar="KEY=VALUE", help="Busier, longer: rate=2, prompt=1.5, output=0.5.")
@click.option(
    "--sessions", type=click.Choice(["open", "closed"]), help="Turns come when they came, or after the one before."
)
@click.option("--where", metavar="SQL", help="Only attempts that meet a condition on columns, as in status = 'ok'.")
@click.option("--sample", type=float, metavar="SHARE", help="Keep a share of the sessions, calls or callers.")
@click.option("--bytes-per-token", type=float, metavar="R", help="Estimate prompts of which only the bytes are known.")
@click.option("--jitter-within-resolution", is_flag=True, help="Spread calls of one tick of the log's clock over it.")
@click.option("--seed", type=int, default=0, help="Of --sample and --jitter-within-resolution.", show_default=True)
@click.option("--with", "beside", multiple=True, metavar="FILE", help="A log of the same traffic, to be merged.")
@click.option(
    "--retry-window",
    "retry_window_s",
    type=float,
    default=9.0,
    metavar="S",
    show_default=True,
    help="A retry begins at most so long after the attempt that it repeats.",
)
@click.option("--no-infer", is_flag=True, help="Join only attempts that the log itself says are one call's.")
@click.option(
    "--attempts", "attempts_path", metavar="FILE", help="Write the attempts, too, with their calls (Parquet)."
)
@click.option("--anonymize", is_flag=True, help="Pseudonyms for tenants, clients, sessions, calls and files.")
@click.option("--anonymize-key", metavar="FILE", help="The same pseudonyms in every trace that is made with this key.")
@click.option("--strict", is_flag=True, help="Refuse a log with a row that cannot be used.")
@json_option
@quiet_option
def ingest(
    files: Sequence[str],
    output: str,
    mapping: Sequence[str],
    options: Sequence[str],
    synthetic: Sequence[str],
    scale: Sequence[str],
    no_infer: bool,
    attempts_path: str | None,
    anonymize: bool,
    anonymize_key: str | None,
    as_json: bool,
    quiet: bool,
    **said: Any,
) -> None:
    """Read logs as one trace, and say what was guessed and dropped.

    Logs of the same traffic are merged: those whose ids match, and those named --with (a gateway's and its engine's).
    Logs are files, URIs such as s3://bucket/log.gz, patterns of either, or - for the standard input.
    synthetic:WORKLOAD in the place of files makes a trace from nothing, as in synthetic:overload.
    """
    import msgspec

    from replay.anonymize import anonymized, fresh_key, key_from
    from replay.describe import added_lines, report_lines, session_lines
    from replay.ingest import ingest as read
    from replay.ingest import write_attempts, write_trace
    from replay.progress import progress

    said["mapping"] = pairs(mapping, "--map")
    said["options"], said["synthetic"] = yaml_pairs(options, "--option"), yaml_pairs(synthetic, "--synthetic")
    said["scale"] = yaml_pairs(scale, "--scale")
    said["infer"], said["keep_attempts"] = not no_infer, attempts_path is not None
    key = key_from(anonymize_key) if anonymize_key else fresh_key() if anonymize else None
    with progress("reading", quiet=quiet) as told:
        trace = read(files, on_progress=told, **said)
    if attempts_path is not None:
        write_attempts(trace, attempts_path, anonymous=key is not None)
    if key is not None:
        trace = anonymized(trace, key)
    write_trace(trace, output)
    if as_json:
        click.echo(msgspec.json.encode(trace.about).decode())
    else:
        lines = report_lines(trace.report) + session_lines(trace.about.sessions) + added_lines(trace.about.added)
        note("\n".join(lines), quiet)
        came = "" if trace.report is None else f" from {trace.report.attempts:,} attempts"
        note(f"wrote           {output}: {trace.calls.num_rows:,} calls{came}", quiet)


@cli.command()
@click.argument("trace")
@click.option("--plot", metavar="FILE.png", help="Draw it on a page as well.")
@json_option
def describe(trace: str, plot: str | None, as_json: bool) -> None:
    """Show what a trace (or a log) holds: rates, lengths, outcomes, phases, and what it cannot show."""
    from replay.describe import as_dict
    from replay.describe import describe as figures
    from replay.files import write_whole
    from replay.ingest import read_trace

    read = read_trace(trace)
    description = figures(read)
    if plot is not None:
        from replay.report.trace_plot import trace_png

        write_whole(plot, trace_png(read, description, Path(trace).name))
    click.echo(json.dumps(as_dict(description), indent=1) if as_json else description.text())


@cli.command()
@click.argument("action", type=click.Choice(["list", "show"]), default="list")
@click.argument("name", required=False)
@json_option
def formats(action: str, name: str | None, as_json: bool) -> None:
    """List the log formats that ingest reads, or show one: replay formats show synthetic."""
    from connectors.registry import connector, names, options_of
    from connectors.synthetic import about

    known: dict[str, dict[str, Any]] = {
        key: {"describes": connector(key).describes, "options": options_of(key)} for key in names()
    }
    known["synthetic"] = about()
    if action == "show":
        if name is None:
            raise BadConfig(f"replay formats show NAME: which one? {', '.join(known)}")
        if name not in known:
            raise UnknownName.of("format", name, known)
        known = {name: known[name]}
    if as_json:
        click.echo(json.dumps(known))
        return
    width = max(map(len, known)) + 2
    for key, said in known.items():
        click.echo(f"{key:{width}}{said['describes']}")
        if key != "synthetic":
            click.echo("".join(f"{'':{width}}  --option {k}={v}\n" for k, v in said["options"].items()), nl=False)
        elif action == "show":
            click.echo(synthetic_text(said))


def synthetic_text(said: Mapping[str, Any]) -> str:
    """The workloads and options of synthetic traffic, as aligned text."""
    parts = {
        "workloads": "workloads, as in: replay ingest synthetic:overload -o trace.parquet --option seed=3",
        "traffic": "--option, the traffic of a workload",
        "users": "--option, the users of a workload; or --synthetic, users to lay over a log that shows none",
        "scale": "--scale, a log or a trace made busier or calmer, its calls longer or shorter",
    }
    lines = []
    for part, heading in parts.items():
        lines += ["", heading, *(f"  {key:26}{text}" for key, text in said[part].items())]
    return "\n".join(lines)
