"""`python -m replay`: the command line, where the script is not on the path."""

from __future__ import annotations

from replay.cli import main

main()
