"""Text logs line by line, freed from what containers and terminals put around them."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator

from connectors.base import Dropped
from connectors.clocks import moment
from connectors.files import CUT_SHORT, blocks, counted
from connectors.json_values import decoded

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
STAMP = re.compile(
    r"\[?(?P<when>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)\]?"
    r"(?: (?:stdout|stderr) [FP])?[ :|-]*"
)
COMPOSE = re.compile(r"[\w.-]{1,60} +\| ")
"""The service's name before each line of `docker compose logs`."""


def lines(path: str) -> Iterator[tuple[int, list[str], Dropped]]:
    """(number of the first, the lines, what broke off), many at a time; colours are taken out.

    Docker's json-file, in which each line is `{"log": ..., "time": ...}`, is read as its text with the time before it.
    """
    for block, numbers in counted(blocks(path)):
        dropped = Dropped()
        if block is None:
            dropped.add(CUT_SHORT, numbers.start)
            yield numbers.start, [], dropped
            return
        found = [plain(line) for line in block.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n")]
        yield numbers.start, found, dropped


def plain(line: str) -> str:
    """A line without colours, carriage return, and Docker's JSON around it."""
    if line.startswith('{"log":') and isinstance(record := decoded(line.encode()), dict):
        line = f"{record.get('time', '')} {record.get('log', '')}".strip()
    line = line.rstrip("\r")
    return COLOURS.sub("", line) if "\x1b" in line else line


def stamped(line: str) -> tuple[datetime.datetime | None, str]:
    """(the time that was put before a line, the line without it)."""
    if not line[:1].isalnum() and line[:1] != "[":
        return None, line
    named = COMPOSE.match(line)
    start = named.end() if named else 0
    found = STAMP.match(line, start)
    if found is None:
        return None, line[start:]
    return moment(found["when"]), line[found.end() :]
