"""The two studies, each in one command: study."""

from __future__ import annotations

import json

import click

from replay.cli.group import cli, json_option, note, quiet_option
from replay.cli.runs import executor_for

NAMES = ("cancellation", "overload")


@cli.command()
@click.argument("name", type=click.Choice(NAMES))
@click.option("-o", "--output", required=True, metavar="RUN", help="Directory; one that was broken off is finished.")
@click.option("--quick", is_flag=True, help="Fewer scenarios and seeds: under a minute, with wider intervals.")
@click.option(
    "--seeds", type=click.IntRange(min=2), help="Traffic and waits of so many seeds. Default: the study's own."
)
@click.option(
    "--executor", type=click.Choice(["ray", "inline"]), default="ray", help="Replays run on Ray, or in this process."
)
@click.option("--workers", type=click.IntRange(min=1), help="Replays at once. Default: one for each CPU.")
@click.option("--address", help="A Ray cluster: auto, host:port or ray://host:port. Default: this machine.")
@json_option
@quiet_option
def study(
    name: str,
    output: str,
    quick: bool,
    seeds: int | None,
    executor: str,
    workers: int | None,
    address: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Ask what cancellation is worth, or what brings a service back from overload, on traffic made for it.

    Writes RUN/results/*.csv and RUN/plots/*.png, and prints each claim beside what was found. See docs/studies.md.
    """
    from replay.progress import progress
    from replay.runner import Store
    from replay.studies.study import conclude, in_words, prepare, run, verdicts

    store = Store(output)
    where = executor_for(store, executor, workers, address)
    prepared = prepare(name, store, quick, seeds)
    with progress(f"{len(prepared.scenarios)} scenarios", quiet=quiet) as told:
        run(prepared, store, where, told)
    with progress("tables and plots", quiet=quiet) as told:
        found = verdicts(prepared, conclude(prepared, told))
    click.echo(json.dumps(found, indent=1) if as_json else in_words(found))
    note(f"\nwrote {output}/results and {output}/plots; each {output}/scenario=* is a run to ask more of", quiet)
