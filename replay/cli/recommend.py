"""From a trace and a goal to the smallest change that reaches it: recommend."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from replay.cli.group import cli, json_option, note, quiet_option
from replay.cli.runs import executor_for, given
from trace_schema.errors import BadConfig

if TYPE_CHECKING:
    from replay.recommend.changes import Who

DEFAULT_SEEDS = 5


@cli.command()
@click.argument("trace")
@click.option(
    "--goal", required=True, metavar="GOAL", help="What is to be reached: FIGURE OP NUMBER, several with commas."
)
@click.option("--can", default="client,gateway,engine", help="Who can change something: client, gateway, engine.")
@click.option("-o", "--output", default="recommended", show_default=True, help="Run directory of the answer.")
@click.option("--config", help="Experiment file (YAML); its policies are not looked at.")
@click.option("--profile", multiple=True, help="Engine profile: a name of replay profiles, or a file.")
@click.option("--replicas", type=int, multiple=True, help="Equal engines behind the gateway.")
@click.option("--seeds", type=int, help=f"Replays of each policy of the last run. Default: {DEFAULT_SEEDS}.")
@click.option("--resamples", type=click.IntRange(min=0), default=40, show_default=True, help="Resampled traffics.")
@click.option("--overload", metavar="START:END", help="When the overload was, in seconds from the trace's start.")
@click.option("--as-logged", help="Policy that the log was recorded under: where the search begins.")
@click.option("--slo-s", type=float, help="A call is on time so many seconds after its arrival.")
@click.option("--drain-s", type=float, help="Cut simulations so long after the last arrival.")
@click.option("--warmup-s", type=float, help="Leave out arrivals before this second.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other setting of an experiment file.")
@click.option("--anyway", is_flag=True, help="Go on where the replay of the log's own policy disagrees with the log.")
@click.option(
    "--executor", type=click.Choice(["ray", "inline"]), default="ray", help="Replays run on Ray, or in this process."
)
@click.option("--workers", type=click.IntRange(min=1), help="Replays at once. Default: one for each CPU.")
@click.option("--address", help="A Ray cluster: auto, host:port or ray://host:port. Default: this machine.")
@json_option
@quiet_option
@click.pass_context
def recommend(ctx: click.Context, /, trace: str, goal: str, can: str, as_json: bool, quiet: bool, **flags: Any) -> None:
    """The smallest change of policy that reaches a goal on your own calls, its margin, its costs, and how sure it is.

    First the log's own policy is replayed; where that disagrees with the log, there is no answer. Then one change is
    tried in every value, then pairs, then three. Where none reaches the goal: the nearest, what was possible, and how
    many engines would.
    """
    import msgspec

    from replay.config import layered, log_settings, read_experiment
    from replay.ingest import read_trace
    from replay.progress import progress
    from replay.recommend import recommend as recommended
    from replay.recommend.bench import Bench
    from replay.recommend.files import save
    from replay.recommend.goal import parse
    from replay.recommend.words import in_words

    goals, who = parse(goal), who_can(can)
    loaded = read_trace(trace)
    config, output = flags.pop("config"), flags.pop("output")
    experiment, sources = layered(
        [
            ("default", {"seeds": DEFAULT_SEEDS}),
            ("log", log_settings(loaded.client, loaded.about.added)),
            (str(config), read_experiment(config) if config else {}),
            ("environment", given(ctx, flags, ParameterSource.ENVIRONMENT)),
            ("flag", given(ctx, flags, ParameterSource.COMMANDLINE)),
        ]
    )
    executor, workers, address = flags["executor"], flags["workers"], flags["address"]
    bench = Bench(
        experiment,
        sources,
        loaded,
        output,
        executor=lambda store: executor_for(store, executor, workers, address),
        progress=lambda what: progress(what, quiet=quiet),
        own=experiment.as_logged or "cancel",
    )
    for line in bench.plan([], experiment.seeds).notes:
        note(line, quiet)
    if experiment.as_logged is None:
        note(
            "the log does not say under which policy it was recorded: cancel stands for it (--as-logged names another)",
            quiet,
        )
    with one_cluster(executor, workers, address):
        answer = recommended(bench, goals, who, resamples=flags["resamples"], anyway=flags["anyway"])
    saved = save(answer)
    click.echo(json.dumps(msgspec.to_builtins(answer), indent=1) if as_json else in_words(answer))
    note(f"\nwrote {', '.join(saved)}; the policies beside each other: replay report {answer.run}", quiet)


def who_can(text: str) -> list[Who]:
    """Who can change something, from words with commas between. Raises BadConfig."""
    from replay.errors import UnknownName
    from replay.recommend.changes import WHO

    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in WHO:
            raise UnknownName.of("--can", name, WHO)
    if not names:
        raise BadConfig(f"--can: is empty; any of {', '.join(WHO)}")
    return [name for name in WHO if name in names]


@contextmanager
def one_cluster(executor: str, workers: int | None, address: str | None) -> Iterator[None]:
    """One Ray for all runs of a command, so that it starts once."""
    held: AbstractContextManager[Any] = nullcontext()
    if executor == "ray":
        from replay.machine import available_cpus
        from replay.runner.session import STORE_BYTES_LEAST, session

        held = session(address, workers=workers or available_cpus(), store_bytes=4 * STORE_BYTES_LEAST)
    with held:
        yield
