"""From an experiment and a trace to the cells of a run."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from replay.censoring import Drawn, in_words, to_draw
from replay.config import (
    Experiment,
    Sourced,
    fleets_of,
    other_clients,
    phases_of,
    policies_of,
    profiles_of,
)
from replay.errors import BadConfig
from replay.ingest import Trace
from replay.phases import Phase
from replay.policies.catalogue import CATALOGUE
from replay.policies.effect import Traffic, told_apart
from replay.policies.knobs import Fleet, Policy
from replay.profiles.guess import MARK as GUESS
from replay.profiles.loader import find_profile, with_settings
from replay.profiles.profile import Profile
from replay.runner.cells import Cell
from replay.runner.partitions import Parted, parted


@dataclass(frozen=True, slots=True)
class Plan:
    """The cells of a run, and what they share."""

    experiment: Experiment
    sources: Sourced
    trace: Trace
    policies: list[Policy]
    profiles: list[Profile]
    fleets: list[Fleet]
    phases: list[Phase]
    parts: Parted
    cells: list[Cell]
    drawn: Drawn
    """What the log cut short, and the first seed fills in."""
    notes: list[str]
    """What a person should know of it before it runs."""


def make_plan(experiment: Experiment, sources: Sourced, trace: Trace) -> Plan:
    """Every policy on every fleet of every profile with every seed, the log's own policy first.

    Raises BadConfig and BadInput.
    """
    notes = []
    others = other_clients(experiment.client, trace.client)
    if trace.about.added is not None:
        notes += [f"synthetic, not observed: {sentence}" for sentence in trace.about.added.says]
        if experiment.as_logged:
            what = f"{trace.about.added.what} of this trace are synthetic"
            notes.append(f"{experiment.as_logged} cannot be compared with a log: {what}")
        experiment = msgspec.structs.replace(experiment, as_logged=None)
    elif others:
        experiment = msgspec.structs.replace(experiment, as_logged=None)
        notes.append(f"{'; '.join(others)}: the log's own policy is not compared with it")
    elif experiment.as_logged and sources["as_logged"][1] == "log":
        notes.append(f"the log's own policy is taken to be {experiment.as_logged} (--as-logged names another)")
    policies = policies_of(experiment)
    if experiment.policies is None:
        policies, same = told_apart(by_family(policies), Traffic.of(trace.calls), experiment.as_logged)
        notes += [f"{first} stands for {', '.join(names)}: this trace cannot tell them apart" for first, names in same]
    profiles, fleets = profiles_of(experiment), fleets_of(experiment)
    notes += [f"profile {p.name} is {p.source}" for p in profiles if p.name.endswith(f"/{GUESS}")]
    beside = {
        fleet: tuple(with_settings(find_profile(e.profile), experiment.engine) for e in fleet.beside)
        for fleet in fleets
    }
    parts = parted(trace.calls, experiment.partition_by)
    if len(parts.partitions) > 1:
        shown = [f"{p.name} ({p.calls:,} calls)" for p in parts.partitions[:5]]
        if len(parts.partitions) > 5:
            shown.append(f"{len(parts.partitions) - 5} more")
        notes.append(f"each of {len(parts.partitions)} parts is replayed on a fleet of its own: {', '.join(shown)}")
    cells = [
        Cell(
            policy=policy,
            profile=profile,
            fleet=fleet,
            beside=beside[fleet],
            seed=seed,
            partition=part.index,
            uncensor=experiment.uncensor,
        )
        for policy in policies
        for profile in profiles
        for fleet in fleets
        for seed in range(experiment.seeds)
        for part in parts.partitions
    ]
    refuse_equal_names(cells)
    drawn = to_draw(parts.calls) if experiment.uncensor != "none" else Drawn()
    notes += in_words(drawn)
    phases = phases_of(experiment, trace.phases)
    return Plan(experiment, sources, trace, policies, profiles, fleets, phases, parts, cells, drawn, notes)


def by_family(policies: list[Policy]) -> list[list[Policy]]:
    """The policies of the catalogue in the families that answer one question each."""
    families: dict[str, list[Policy]] = {}
    for policy in policies:
        family = CATALOGUE[policy.name].family if policy.name in CATALOGUE else "retries"
        families.setdefault(family, []).append(policy)
    return list(families.values())


def refuse_equal_names(cells: list[Cell]) -> None:
    """Raise BadConfig when two profiles or two fleets would write to the same place."""
    seen: dict[str, Cell] = {}
    for cell in cells:
        other = seen.setdefault(cell.key, cell)
        if other is not cell:
            what = f"profile {cell.profile.name!r}" if other.profile != cell.profile else f"fleet {cell.fleet.name!r}"
            raise BadConfig(f"{what} is given twice")
