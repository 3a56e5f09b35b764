"""The command `replay`, and what its commands share: options, notes, key=value flags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from trace_schema.errors import BadConfig, UnknownName

OK, FAILED, USAGE, BAD_DATA, UNREACHABLE, BREACHED, INTERRUPTED = 0, 1, 2, 3, 4, 99, 130


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
