"""Pairs that no id tells: by time, where only one request can be meant, and by a proxy's own retries."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from trace_schema.columns import is_empty
from trace_schema.fold.pairs import EARLY_S, Pairing
from trace_schema.fold.units import keys_of, units_of
from trace_schema.merge.sides import Executions, Fit, Requests

CLEARLY = 5.0
"""A pair is certain where every other lies so many times as far apart."""
SURELY_S = 0.01
"""And no nearer than this."""
CROWDED = 1.2
"""Executions by free request from which a proxy is seen to try again by itself."""
END_MOST_S = 0.5
"""A request's end and that of its only execution lie at most so far apart."""
SAMPLED = 2000
"""Requests by whose durations two clocks are compared."""
ALIKE_LEAST = 10
"""Requests of equal durations that must agree on the difference of two clocks."""
ALIKE_S = 0.05
"""What durations, and differences of clocks, may differ by to be equal."""


def chains(requests: Requests, executions: Executions, window_s: float) -> list[list[int]]:
    """Rows that look like tries of one request, in order of time: equal prompt and limit, soon after one that failed.

    The last try of a request that was answered, or left, is the last of its chain.
    """
    table = executions.table
    if is_empty(table["prompt_tokens"]) or not executions.failed.any():
        return [[row] for row in range(table.num_rows)]
    units = units_of(table.set_column(table.column_names.index("retry_group"), table.schema.field("retry_group"),
                                      pa.nulls(table.num_rows, pa.string())), executions.failed)  # fmt: skip
    keys = keys_of(table, ["prompt_tokens"], ["max_tokens"])
    ended = (executions.owner >= 0) & ~(requests.units.failed & ~requests.left)[executions.owner]
    tails = executions.failed & ~ended
    Pairing(table, units).pairs(keys, keys, np.ones(units.number, bool), tails, (EARLY_S, window_s))
    root = units.roots()
    held: dict[int, list[int]] = {}
    for row in np.argsort(executions.start, kind="stable").tolist():
        held.setdefault(int(root[row]), []).append(row)
    return list(held.values())


def take_by_time(requests: Requests, executions: Executions, fit: Fit, window_s: float) -> int:
    """Give executions to the requests that start when they do, as far as only one of either can be meant. How many.

    Where a proxy tries again by itself, it is the first tries that start when their requests do.
    """
    free = Free(requests, fit)
    rows = np.flatnonzero(executions.owner < 0).tolist()
    if is_proxied(requests, executions):
        rows = first_tries(requests, executions, window_s)
    given = 0
    for row, unit in zip(rows, settled(free.near(executions, row) for row in rows), strict=True):
        if unit is not None:
            executions.owner[row] = unit
            requests.taken[unit] = True
            given += 1
    return given


def is_proxied(requests: Requests, executions: Executions) -> bool:
    """Whether there are so many more executions than requests that a proxy must try again by itself."""
    return int((executions.owner < 0).sum()) > CROWDED * int((~requests.taken).sum())


def first_tries(requests: Requests, executions: Executions, window_s: float) -> list[int]:
    """The rows without an owner that begin their chain, in order of time."""
    return [chain[0] for chain in chains(requests, executions, window_s) if executions.owner[chain[0]] < 0]


def take_nearest(requests: Requests, executions: Executions, fit: Fit, window_s: float) -> int:
    """Give first tries to the nearest requests that agree with them, where more than one would. How many.

    Calls of a proxy that came together may get each other's lengths; without any they would be left out.
    """
    free = Free(requests, fit)
    rows = first_tries(requests, executions, window_s)
    pairs = sorted((away, row, unit) for row in rows for unit, away in free.near(executions, row).items())
    given = 0
    for _, row, unit in pairs:
        if executions.owner[row] < 0 and not requests.taken[unit]:
            executions.owner[row] = unit
            requests.taken[unit] = True
            given += 1
    return given


def take_chains(requests: Requests, executions: Executions, fit: Fit, window_s: float) -> int:
    """Give a proxy's own tries to the request of which another one is known. How many.

    Those are the rows of a chain that no request that is free could have for its own: a gateway that writes a line for
    each try has one.
    """
    if (executions.owner >= 0).all():
        return 0
    free = Free(requests, fit)
    given = 0
    for chain in chains(requests, executions, window_s):
        owner = -1
        waiting: list[int] = []
        for row in chain:
            if executions.owner[row] >= 0:
                owner = int(executions.owner[row])
                began = requests.start[owner] + fit.lag_s[0]
                inside = [other for other in waiting if executions.start[other] - fit.offset_s >= began]
                executions.owner[inside] = owner
                given += len(inside)
                waiting = []
            elif free.near(executions, row):
                owner, waiting = -1, []
            elif owner >= 0 and goes_on(requests, executions, fit, owner, row):
                executions.owner[row] = owner
                given += 1
            else:
                waiting.append(row)
    return given


def goes_on(requests: Requests, executions: Executions, fit: Fit, unit: int, row: int) -> bool:
    """Whether a request may have another try as late as this: one that was answered, or left, ended with its last."""
    if requests.units.failed[unit] and not requests.left[unit]:
        return True
    return bool(executions.start[row] - fit.offset_s <= requests.end[unit])


class Free:
    """Requests to which no execution belongs yet, in order of their starts."""

    def __init__(self, requests: Requests, fit: Fit) -> None:
        free = np.flatnonzero(~requests.taken)
        order = free[np.argsort(requests.start[free], kind="stable")]
        self.requests, self.fit = requests, fit
        self.units: list[int] = order.tolist()
        self.starts: list[float] = requests.start[order].tolist()

    def near(self, executions: Executions, row: int) -> dict[int, float]:
        """The units with which an execution may begin, and how far from the usual lag."""
        start = float(executions.start[row]) - self.fit.offset_s
        low, high = self.fit.lag_s
        places = range(bisect_left(self.starts, start - high), bisect_right(self.starts, start - low))
        return {
            self.units[place]: abs(start - self.starts[place] - self.fit.usual_lag_s)
            + self.ends_apart(place, executions, row)
            for place in places
            if self.fit.agrees(self.requests, self.units[place], executions, row)
        }

    def ends_apart(self, place: int, executions: Executions, row: int) -> float:
        """How far apart a request and an execution end; a proxy's request ends with the last of its executions."""
        apart = abs(executions.end[row] - self.fit.offset_s - self.requests.end[self.units[place]])
        return END_MOST_S if np.isnan(apart) else min(float(apart), END_MOST_S)


def settled(candidates: Iterable[Mapping[int, float]]) -> list[int | None]:
    """The unit of each row of which it is certain, given how far each that comes into question lies.

    A row and a unit belong together when every other of either lies clearly farther; each pair that is found leaves
    fewer for the others.
    """
    near = [dict(units) for units in candidates]
    rows: dict[int, dict[int, float]] = {}
    for row, units in enumerate(near):
        for unit, distance in units.items():
            rows.setdefault(unit, {})[row] = distance
    found: list[int | None] = [None] * len(near)
    asked = list(range(len(near)))
    while asked:
        again: set[int] = set()
        for row in asked:
            if found[row] is not None or not near[row]:
                continue
            unit = min(near[row], key=near[row].__getitem__)
            distance = near[row][unit]
            others = [d for u, d in near[row].items() if u != unit] + [d for r, d in rows[unit].items() if r != row]
            if all(other >= CLEARLY * distance + SURELY_S for other in others):
                found[row] = unit
                for loser in rows.pop(unit):
                    near[loser].pop(unit, None)
                    again.add(loser)
                for left in near[row]:
                    rows[left].pop(row, None)
                    again.update(rows[left])
                near[row] = {}
        asked = sorted(again)
    return found


def offset_by_durations(requests: Requests, executions: Executions) -> float | None:
    """The clock of executions less that of requests, where no id tells; None where too little does.

    It is the difference on which the starts of those agree that took equally long.
    """
    took, ran = requests.end - requests.start, executions.end - executions.start
    lasted = np.flatnonzero(requests.units.answered & (took > 0))
    ended = np.flatnonzero(~executions.failed & (ran > 0))
    # The longest are the fewest of their length.
    lasted = lasted[np.argsort(-took[lasted])][:SAMPLED]
    ended = ended[np.argsort(ran[ended])]
    low = np.searchsorted(ran[ended], took[lasted] * 0.98 - ALIKE_S)
    high = np.searchsorted(ran[ended], took[lasted] + ALIKE_S)
    apart = [executions.start[ended[a:b]] - requests.start[unit] for unit, a, b in zip(lasted, low, high, strict=True)]
    values = np.sort(np.concatenate(apart)) if apart else np.zeros(0)
    if not len(values):
        return None
    inside = np.searchsorted(values, values + ALIKE_S, side="right") - np.arange(len(values))
    densest = int(np.argmax(inside))
    if inside[densest] < max(ALIKE_LEAST, 0.2 * min(len(lasted), len(ended))):
        return None
    return float(np.median(values[densest : densest + inside[densest]]))
