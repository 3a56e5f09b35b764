"""The best that was possible in a run, as a table beside its cells: what the policies of each cell stand beside."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from queries.blank import TABLES
from replay.censoring import Drawn
from replay.engine.intake import timeouts
from replay.phases import Phase
from replay.policies.knobs import Policy
from replay.possible import Possible, arrivals_of, most_calls
from replay.runner.cells import Cell, traffic

Mask = npt.NDArray[np.bool_]
COLUMNS = TABLES["possible"]


@dataclass(frozen=True, slots=True)
class Counted:
    """Which calls the figures of a run count, and when they are on time."""

    phases: Sequence[Phase]
    slo_s: float | None = None
    until_s: float | None = None
    warmup_s: float = 0.0

    @property
    def named(self) -> Sequence[Phase]:
        """Phases that are not all of the run."""
        return self.phases if len(self.phases) > 1 else []


def possible_table(cells: Sequence[Cell], parts: Sequence[pa.Table], counted: Counted) -> pa.Table:
    """For each profile, fleet and seed of a run, the most that can be delivered: of all calls, and by phase.

    Its phase is null where it is of all calls. Where a policy cuts steps short, which no engine does, such policies
    have rows of their own. `parts[n]` are the calls of part n. The run's policies say how long clients wait at most.
    """
    policies = list({cell.policy.name: cell.policy for cell in cells}.values())
    kinds = sorted({cuts_steps(policy) for policy in policies})
    names = [None, *(phase.name for phase in counted.named)]
    known: dict[Any, list[Possible]] = {}
    sums: dict[tuple[str, str, int, bool], list[Possible]] = {}
    for cell, kind in product(one_for_each_fleet(cells), kinds):
        calls, drawn = traffic(cell, parts[cell.partition])
        same = (cell.profile_key, cell.fleet.name, cell.partition, kind, cell.seed if drawn != Drawn() else None)
        if same not in known:
            known[same] = most_of(calls, policies, cell, counted, kind)
        place = (cell.profile_key, cell.fleet.name, cell.seed, kind)
        before = sums.get(place, [Possible(0, 0, 0)] * len(names))
        sums[place] = [a + b for a, b in zip(before, known[same], strict=True)]
    rows = [
        (*place, name, found.calls, found.delivered, found.on_time)
        for place, group in sums.items()
        for name, found in zip(names, group, strict=True)
    ]
    values = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    return pa.table({name: pa.array(v, t) for (name, t), v in zip(COLUMNS.items(), values, strict=True)})


def cuts_steps(policy: Policy) -> bool:
    """Whether an abort ends a step's work for its row at once, and gives back what is left of it."""
    return policy.cancellation.detection == "oracle"


def most_of(
    calls: pa.Table, policies: Sequence[Policy], cell: Cell, counted: Counted, cut_short: bool
) -> list[Possible]:
    """The most that can be delivered of the calls that a cell replays, of all and by phase."""
    there = calls_that_count(calls, policies, counted)
    groups = [there, *(there & may_arrive(calls, phase) for phase in counted.named)]
    until = math.inf if counted.until_s is None else counted.until_s
    return most_calls(calls, policies, cell.engines, groups, counted.slo_s, until, cut_short=cut_short)


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


def calls_that_count(calls: pa.Table, policies: Sequence[Policy], counted: Counted) -> Mask:
    """Calls that the figures count under some policy: after the warm-up, and not too close to a cut (`views.sql`)."""
    arrivals, moves = arrivals_of(calls)
    there: Mask = moves | (arrivals >= counted.warmup_s)
    if counted.until_s is not None:
        waits = np.min([timeouts(calls, policy.client) for policy in policies], axis=0)
        waits = np.where(np.isinf(waits), 0.0, waits)
        there &= arrivals <= counted.until_s - (waits if counted.slo_s is None else counted.slo_s)
    return there
