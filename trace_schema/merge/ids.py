"""Ids that one log has inside another's: vLLM's cmpl-<request id>-0-<random> holds the id that its gateway gave it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pyarrow as pa

from trace_schema.columns import is_empty

UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
UUID_HYPHENS = 4
SEPARATOR = re.compile(r"[-_:/.#]")
PARTS_MOST = 12
"""An id of more parts is looked up by its first ones."""
SHORTEST = 6
"""A part of an id that is shorter says nothing; a whole id may be."""
PLACES_MOST = 4
OWNERS_MOST = 64
"""An id that more rows have is no id of theirs."""
ID_COLUMNS = ("source_request_id", "engine_request_id", "retry_group")

Owners = dict[str, list[int]]


def plain(name: str) -> str:
    """An id as it is compared: UUIDs with and without hyphens are equal, and so are capitals."""
    text = name.strip().lower()
    return UUID.sub(lambda found: found[0].replace("-", ""), text) if text.count("-") >= UUID_HYPHENS else text


def owners_of(table: pa.Table, columns: tuple[str, ...], owner: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Owners:
    """Whose ids they are: by id, the owners of the rows that have it."""
    owners: Owners = {}
    for name in columns:
        if is_empty(table[name]):
            continue
        for value, whose in zip(table[name].to_pylist(), owner.tolist(), strict=True):
            if value:
                held = owners.setdefault(plain(value), [])
                if whose not in held:
                    held.append(whose)
    return {name: held for name, held in owners.items() if len(held) <= OWNERS_MOST}


class Finder:
    """Looks for known ids in others, where it found the last ones first."""

    def __init__(self, owners: Owners) -> None:
        self.owners = owners
        self.places: list[tuple[int, int]] = []
        """(characters before, characters after) of ids that were found."""

    def find(self, name: str) -> list[int]:
        """The owners of the longest known id within `name`."""
        text = plain(name)
        found = self.owners.get(text)
        if found:
            return found
        for before, after in self.places:
            found = self.owners.get(text[before : len(text) - after])
            if found:
                return found
        cuts = [(cut.start(), cut.end()) for cut in islice(SEPARATOR.finditer(text), PARTS_MOST)]
        starts = [0, *(end for _, end in cuts)]
        ends = [*(start for start, _ in cuts), len(text)]
        for before, after in shapes(len(starts)):
            start, end = starts[before], ends[len(ends) - 1 - after]
            if end - start >= SHORTEST and text[start:end] in self.owners:
                self.places = [(start, len(text) - end), *self.places][:PLACES_MOST]
                return self.owners[text[start:end]]
        return []


def shapes(parts: int) -> Iterator[tuple[int, int]]:
    """(parts before, parts after) of what is within an id, the longest first."""
    for left_out in range(1, parts):
        for before in range(left_out + 1):
            yield before, left_out - before


def found_in(table: pa.Table, owners: Owners) -> list[list[int]]:
    """The owners of each row of `table` by the ids that it has."""
    finder = Finder(owners)
    held: list[list[int]] = [[] for _ in range(table.num_rows)]
    for name in ("source_request_id", "engine_request_id"):
        if is_empty(table[name]):
            continue
        for row, value in enumerate(table[name].to_pylist()):
            if value and not held[row]:
                held[row] = finder.find(value)
    return held


def owners_by_id(main: pa.Table, unit: np.ndarray[tuple[int], np.dtype[np.int64]], other: pa.Table) -> list[list[int]]:
    """The units of `main` to which each row of `other` belongs by an id, whichever of the two holds the other's."""
    inside = found_in(other, owners_of(main, ID_COLUMNS, unit))
    if sum(map(bool, inside)) * 2 >= min(other.num_rows, main.num_rows):
        return inside
    rows = np.arange(other.num_rows)
    around = found_in(main, owners_of(other, ("source_request_id", "engine_request_id"), rows))
    for row, others in enumerate(around):
        for place in others:
            if not inside[place]:
                inside[place] = [int(unit[row])]
    return inside


def owners_by_trace(
    main: pa.Table, unit: np.ndarray[tuple[int], np.dtype[np.int64]], other: pa.Table
) -> list[list[int]]:
    """The units of `main` with the trace id of each row of `other`."""
    owners = owners_of(main, ("trace_id",), unit)
    traces = [None] * other.num_rows if is_empty(other["trace_id"]) else other["trace_id"].to_pylist()
    return [owners.get(plain(trace), []) if trace else [] for trace in traces]
