"""The installation: doctor."""

from __future__ import annotations

import json

import click

from replay.cli.group import cli, json_option


@cli.command()
@click.option("--warm", is_flag=True, help="Compile the engine now.")
@json_option
def doctor(warm: bool, as_json: bool) -> None:
    """Check the installation: the packages come from one place, and the engine is compiled."""
    from replay.doctor import examine

    findings = examine(warm=warm)
    click.echo(json.dumps(findings, indent=1) if as_json else "\n".join(f"{k:16}{v}" for k, v in findings.items()))
