"""The command line: parse, call the library, print. Data goes to standard output, everything else to standard error.

Each module holds the commands of one room; `main` turns what they raise into a sentence and an exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from replay.cli import answers, cluster, engines, machine, policies, profiles, recommend, runs, studies, traces
from replay.cli.group import BAD_DATA, FAILED, INTERRUPTED, OK, UNREACHABLE, USAGE, cli
from replay.errors import BadConfig, BadInput, ClusterUnreachable, UserError

__all__ = [
    "answers", "cli", "cluster", "engines", "machine", "main", "policies", "profiles", "recommend", "runs", "studies",
    "traces",
]  # fmt: skip


def fail(message: str, code: int) -> NoReturn:
    click.echo(f"replay: {message}", err=True)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line, and exit with its code."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = cli.main(args, prog_name="replay", standalone_mode=False, auto_envvar_prefix="REPLAY")
        sys.exit(code if isinstance(code, int) else OK)
    except (KeyboardInterrupt, click.Abort):
        fail("interrupted; what was finished is kept, and the same command goes on from there", INTERRUPTED)
    except click.ClickException as error:
        fail(error.format_message(), USAGE)
    except BadConfig as error:
        fail(str(error), USAGE)
    except BadInput as error:
        fail(str(error), BAD_DATA)
    except ClusterUnreachable as error:
        fail(str(error), UNREACHABLE)
    except UserError as error:
        fail(str(error), FAILED)
    except Exception as error:
        if "--debug" in args:
            raise
        fail(f"unexpected {type(error).__name__}: {error} (replay --debug ... shows where)", FAILED)
