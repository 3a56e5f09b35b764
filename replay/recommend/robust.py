"""How sure an answer is: on resampled traffic, and where load, timeouts or engines are other than they were."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from connectors.synthetic.scaling import scaled
from replay.policies.knobs import Policy
from replay.profiles.profile import Profile
from replay.recommend.bench import Bench, on_traffic, with_cells
from replay.recommend.goal import Figures, Goal, figures
from replay.recommend.traffic import block_s, resampled
from replay.runner.cells import Cell
from replay.runner.store import Store

LOADS = (0.8, 0.9, 1.1, 1.2)
TIMEOUTS = (0.8, 1.2)
SPEEDS = (0.9, 1.1)
SEED = 20_240_000
"""Of the draws of other traffic; no replay has it."""
Values = list[list[float | None]]
"""For each replay, the figure of each goal."""


@dataclass(frozen=True, slots=True)
class Variant:
    """The same with one thing changed."""

    name: str
    calls: Callable[[pa.Table, np.random.Generator], pa.Table] = lambda calls, _: calls
    profile: Callable[[Profile], Profile] = lambda profile: profile
    policy: Callable[[Policy], Policy] = lambda policy: policy


def on_resampled_traffic(bench: Bench, goals: Sequence[Goal], policies: Sequence[Policy], times: int) -> Figures:
    """The figures of policies on traffic that is resampled so many times; "seeds" are resamples."""
    plan = bench.plan(policies, 1)
    tables = [
        [resampled(part, plan.phases, np.random.default_rng([SEED, k, n])) for n, part in enumerate(plan.parts.calls)]
        for k in range(times)
    ]
    return figures(bench.run("on resampled traffic", on_traffic(plan, tables), "resampled"), goals)


def variants() -> list[Variant]:
    """What is changed, one thing at a time."""
    found = [Variant("as it was")]
    found += [Variant(f"load {f - 1:+.0%}", calls=with_load(f)) for f in LOADS]
    found += [Variant(f"timeout {f - 1:+.0%}", calls=with_timeouts(f), policy=with_timeout(f)) for f in TIMEOUTS]
    found += [Variant(f"engine speed {f - 1:+.0%}", profile=at_speed(f)) for f in SPEEDS]
    return found


def sensitivity(
    bench: Bench, goals: Sequence[Goal], policies: Sequence[Policy], seeds: int
) -> dict[str, dict[str, Values]]:
    """By variant and policy, the figures of each replay.

    All are one run, in which each variant has seeds, and where need be a profile or policies, of its own; which, its
    table `variants.parquet` says.
    """
    plan = bench.plan(policies, 1)
    own = plan.policies[0].name
    cells, tables, rows = [], [], []
    for v, variant in enumerate(variants()):
        for k in range(seeds):
            seed = v * seeds + k
            tables.append(
                [
                    variant.calls(part, np.random.default_rng([SEED + 1, k, n]))
                    for n, part in enumerate(plan.parts.calls)
                ]
            )
            for cell in plan.cells:
                policy, profile = variant.policy(cell.policy), variant.profile(cell.profile)
                cells.append(
                    replace(cell, policy=policy, profile=profile, beside=tuple(map(variant.profile, cell.beside)),
                            seed=seed, partition=seed * len(plan.parts.partitions) + cell.partition)
                )  # fmt: skip
                rows.append((variant.name, cell.policy.name, cells[-1]))
    moved = with_cells(on_traffic(plan, tables), cells)
    moved = dataclasses.replace(moved, policies=list({c.policy.name: c.policy for c in cells}.values()))
    run = bench.run(f"with other load, timeouts and speed than {own} had", moved, "sensitivity")
    write_variants(run, rows)
    found = figures(run, goals)
    values: dict[str, dict[str, Values]] = {}
    for name, of_policy, cell in rows:
        value = found[cell.policy.name, cell.profile_key, cell.fleet.name][cell.seed]
        values.setdefault(name, {}).setdefault(of_policy, []).append(value)
    return values


def write_variants(run: str, rows: Sequence[tuple[str, str, Cell]]) -> None:
    """The table that says what each replay of a run of variants is."""
    columns = {
        "variant": [name for name, _, _ in rows],
        "of_policy": [policy for _, policy, _ in rows],
        "policy": [cell.policy.name for _, _, cell in rows],
        "profile": [cell.profile_key for _, _, cell in rows],
        "seed": pa.array([cell.seed for _, _, cell in rows], pa.int64()),
    }
    Store(run).write_table("variants.parquet", pa.table(columns))


def with_load(factor: float) -> Callable[[pa.Table, np.random.Generator], pa.Table]:
    """So many times as many sessions, others like them near them in time."""

    def busier(calls: pa.Table, rng: np.random.Generator) -> pa.Table:
        seed = int(rng.integers(2**62))
        return scaled(calls, {"rate": factor, "seed": seed, "jitter_s": block_s(calls)})[0]

    return busier


def with_timeouts(factor: float) -> Callable[[pa.Table, np.random.Generator], pa.Table]:
    """Timeouts of the trace so many times as long."""

    def longer(calls: pa.Table, _: np.random.Generator) -> pa.Table:
        place = calls.column_names.index("client_timeout_s")
        return calls.set_column(place, calls.schema.field(place), pc.multiply(calls["client_timeout_s"], factor))

    return longer


def with_timeout(factor: float) -> Callable[[Policy], Policy]:
    """The timeout that a policy itself sets so many times as long."""

    def longer(policy: Policy) -> Policy:
        timeout = policy.client.timeout_s
        if timeout is None:
            return policy
        client = replace(policy.client, timeout_s=timeout * factor)
        return replace(policy, name=f"{policy.name}-timeout-{factor * 100:.0f}pct", client=client)

    return longer


def at_speed(factor: float) -> Callable[[Profile], Profile]:
    """An engine whose steps take the time of so many."""

    def other(profile: Profile) -> Profile:
        step = profile.step_time
        seconds = {
            name: getattr(step, name) / factor
            for name in (
                "decode_s",
                "kv_token_s",
                "prefill_attention_s",
                "prefill_context_s",
                "overhead_s",
                "sequence_s",
            )
        }
        knots = tuple(s / factor for s in step.knots_s)
        overheads = {
            mode: replace(o, step_s=o.step_s / factor, sequence_s=o.sequence_s / factor)
            for mode, o in profile.overheads.items()
        }
        return replace(
            profile, name=f"{profile.name}-at-{factor * 100:.0f}pct", overheads=overheads,
            step_time=replace(step, knots_s=knots, **seconds),
        )  # fmt: skip

    return other
