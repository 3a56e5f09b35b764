"""The installation: doctor."""

from __future__ import annotations

import json
import sys

import click

from replay.cli.group import FAILED, cli, json_option


@cli.command()
@click.option("--warm", is_flag=True, help="Compile the engine now.")
@click.option("--ray", is_flag=True, help="See whether Ray starts.")
@click.option("--address", help="See whether this cluster can be reached.")
@json_option
def doctor(warm: bool, ray: bool, address: str | None, as_json: bool) -> None:
    """Check the installation and the machine: ok, warn or bad, and what to do. Exit code 1 when something is bad."""
    import msgspec

    from replay.doctor import examine

    findings = examine(warm=warm, ray=ray, address=address)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(findings), indent=1))
    else:
        for finding in findings:
            advice = f"; {finding.advice}" if finding.advice else ""
            click.echo(f"{finding.state:6}{finding.name:17}{finding.found}{advice}")
    if any(finding.state == "bad" for finding in findings):
        sys.exit(FAILED)
