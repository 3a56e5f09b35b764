"""What operators can turn: policies, and clients by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from replay.cli.group import cli, json_option
from replay.errors import BadConfig, UnknownName


@cli.command()
@click.argument("action", type=click.Choice(["list", "show"]), default="list")
@click.argument("name", required=False)
@json_option
def policies(action: str, name: str | None, as_json: bool) -> None:
    """List the policies of the catalogue, or show all knobs of one: replay policies show NAME, or FILE.yaml."""
    import msgspec

    from replay.config import policy_of
    from replay.policies.catalogue import CATALOGUE
    from replay.policies.knobs import Policy

    if action == "show":
        if name is None:
            raise BadConfig(f"replay policies show NAME: which one? {', '.join(CATALOGUE)}")
        show(msgspec.to_builtins(policy_of(name, Policy(name="base"))), as_json)
        return
    summarize({key: entry.summary for key, entry in CATALOGUE.items()}, as_json)


@cli.command()
@click.argument("action", type=click.Choice(["list", "show"]), default="list")
@click.argument("name", required=False)
@json_option
def clients(action: str, name: str | None, as_json: bool) -> None:
    """List SDKs and proxies for --set client=NAME, or show how one waits and retries: replay clients show NAME."""
    import msgspec

    from replay.policies.clients import CLIENTS

    if action == "show":
        if name is None:
            raise BadConfig(f"replay clients show NAME: which one? {', '.join(CLIENTS)}")
        if name not in CLIENTS:
            raise UnknownName.of("client", name, CLIENTS)
        show(msgspec.to_builtins(CLIENTS[name]), as_json)
        return
    summarize({key: preset.says for key, preset in CLIENTS.items()}, as_json)


def show(knobs: Mapping[str, Any], as_json: bool) -> None:
    """Everything about one."""
    import yaml

    click.echo(json.dumps(knobs) if as_json else yaml.safe_dump(dict(knobs), sort_keys=False, width=110).rstrip())


def summarize(known: Mapping[str, str], as_json: bool) -> None:
    """A line for each."""
    width = max(map(len, known)) + 2
    click.echo(json.dumps(known) if as_json else "\n".join(f"{key:{width}}{text}" for key, text in known.items()))
