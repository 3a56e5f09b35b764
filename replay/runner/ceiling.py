"""The best that was possible in a run, as a table beside its cells: what the policies of each cell stand beside."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from replay.censoring import Drawn
from replay.engine.setup import timeouts
from replay.phases import Phase
from replay.policies.knobs import Policy
from replay.possible import Possible, arrivals_of, most_calls
from replay.runner.cells import Cell, traffic

Mask = npt.NDArray[np.bool_]
COLUMNS = {
    "profile": pa.string(),
    "fleet": pa.string(),
    "seed": pa.int64(),
    "phase": pa.string(),
    "calls": pa.int64(),
    "delivered": pa.int64(),
    "on_time": pa.int64(),
}


def possible_table(
    cells: Sequence[Cell],
    parts: Sequence[pa.Table],
    phases: Sequence[Phase],
    slo_s: float | None,
    until_s: float | None,
    warmup_s: float,
) -> pa.Table:
    """For each profile, fleet and seed of a run, the most that can be delivered: of all calls, and by phase.

    Its phase is null where it is of all calls. `parts[n]` are the calls of part n. The policies of the run say how long
    clients wait at most.
    """
    policies = list({cell.policy.name: cell.policy for cell in cells}.values())
    named = phases if len(phases) > 1 else []
    known: dict[Any, list[Possible]] = {}
    sums: dict[tuple[str, str, int], list[Possible]] = {}
    for cell in one_for_each_fleet(cells):
        calls, drawn = traffic(cell, parts[cell.partition])
        same = (cell.profile_key, cell.fleet.name, cell.partition, cell.seed if drawn != Drawn() else None)
        if same not in known:
            counted = calls_that_count(calls, policies, slo_s, until_s, warmup_s)
            groups = [counted, *(counted & may_arrive(calls, phase) for phase in named)]
            until = math.inf if until_s is None else until_s
            known[same] = most_calls(calls, policies, cell.engines, groups, slo_s, until)
        place = (cell.profile_key, cell.fleet.name, cell.seed)
        before = sums.get(place, [Possible(0, 0, 0)] * (len(named) + 1))
        sums[place] = [a + b for a, b in zip(before, known[same], strict=True)]
    names = [None, *(phase.name for phase in named)]
    rows = [
        (*place, name, found.calls, found.delivered, found.on_time)
        for place, group in sums.items()
        for name, found in zip(names, group, strict=True)
    ]
    values = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    return pa.table({name: pa.array(v, t) for (name, t), v in zip(COLUMNS.items(), values, strict=True)})


def one_for_each_fleet(cells: Sequence[Cell]) -> Iterator[Cell]:
    """A cell for each part on each fleet of each profile with each seed, whatever its policy."""
    seen = set()
    for cell in cells:
        place = (cell.profile_key, cell.fleet.name, cell.seed, cell.partition)
        if place not in seen:
            seen.add(place)
            yield cell


def may_arrive(calls: pa.Table, phase: Phase) -> Mask:
    """Calls that arrive in a phase, or may under some policy: a turn that waits for another may come later."""
    arrivals, moves = arrivals_of(calls)
    soon_enough: Mask = arrivals < (math.inf if phase.end_s is None else phase.end_s)
    return np.where(moves, soon_enough, phase.holds(arrivals))


def calls_that_count(
    calls: pa.Table, policies: Sequence[Policy], slo_s: float | None, until_s: float | None, warmup_s: float
) -> Mask:
    """Calls that the figures count under some policy: after the warm-up, and not too close to a cut (`views.sql`)."""
    arrivals, moves = arrivals_of(calls)
    counted: Mask = moves | (arrivals >= warmup_s)
    if until_s is not None:
        waits = np.min([timeouts(calls, policy.client) for policy in policies], axis=0)
        waits = np.where(np.isinf(waits), 0.0, waits)
        counted &= arrivals <= until_s - (waits if slo_s is None else slo_s)
    return counted
