"""More calls than any policy can deliver: what each needs at least, in the time that it has, on all engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from replay.engine import state as st
from replay.engine.intake import column
from replay.engine.setup import new_state
from replay.engine.simulate import idle_e2e_s
from replay.policies.knobs import Policy
from replay.possible.arrivals import Arrivals, arrivals_of
from replay.possible.fluid import most_jobs
from replay.possible.needs import Needs, needs_of
from replay.possible.patience import patience_s, slo_s
from replay.possible.prices import Prices, charged, dearest
from replay.profiles.profile import Profile

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
MIXES = (1.0, 0.75, 0.5, 0.25)
"""Prices are made for all traffic, and for these shares of it that need least, which are what an overloaded engine
would best serve. Each gives a bound; the lowest holds."""


@dataclass(frozen=True, slots=True)
class Possible:
    """No policy delivers more of these calls."""

    calls: int
    """Those that it is about: eligible ones."""
    delivered: int
    on_time: int

    def __add__(self, other: Possible) -> Possible:
        """Of two parts of a trace that have engines of their own."""
        return Possible(self.calls + other.calls, self.delivered + other.delivered, self.on_time + other.on_time)


@dataclass(frozen=True, slots=True)
class Windows:
    """When each call can be worked on, in seconds from the start of the trace."""

    release: Floats
    delivered_by: Floats
    on_time_by: Floats


def most_calls(
    calls: pa.Table,
    policies: Sequence[Policy],
    engines: Sequence[Profile],
    groups: Sequence[Mask],
    slo: float | None = None,
    until_s: float = np.inf,
    *,
    cut_short: bool = False,
) -> list[Possible]:
    """For each group of `calls`, the most that can be delivered of it, and delivered on time.

    It holds for every policy whose clients wait no longer, and whose network is no faster, than those of `policies`.

    Parameters
    ----------
    calls
        Table of `trace_schema.calls.CALLS`, ordered by arrival.
    engines
        The profile of each replica.
    groups
        Masks over `calls`. What is not in a group is taken to need nothing: each has the engines for itself.
    slo
        Seconds from its arrival within which a call is on time; None: the timeout of its client.
    until_s
        When the run is cut.
    cut_short
        Aborts may end a step's work for a row in mid-step, as `oracle` detection has it, and no engine can.

    Raises BadConfig for engines that cannot be one fleet.
    """
    engines = list(engines)
    arrivals = arrivals_of(calls)
    needs = needs_of(calls, engines, arrivals.earliest_s)
    windows = windows_of(calls, policies, engines, needs, arrivals, slo, until_s)
    eligible = eligible_calls(calls, policies[0], engines) & ~needs.too_long
    return [bound(needs, windows, engines, group & eligible, cut_short) for group in groups]


def eligible_calls(calls: pa.Table, policy: Policy, engines: list[Profile]) -> Mask:
    """Calls whose users would stay for the whole answer of an idle engine, by the engine's own measure."""
    leaves = column(calls, "user_cancel_s", np.inf, np.float64), column(calls, "user_cancel_tokens", 0, np.int64)
    if np.isinf(leaves[0]).all() and not leaves[1].any():
        return np.ones(calls.num_rows, bool)
    state = new_state(calls, policy, engines, 0)
    idle_s, travel_s = idle_e2e_s(state)
    patience, tokens = leaves
    reads_all = (tokens <= 0) | (tokens >= state.calls["output"]) | (state.calls["stream"] != st.STREAMED)
    stays: Mask = reads_all & (patience > idle_s + travel_s)
    return stays


def windows_of(
    calls: pa.Table,
    policies: Sequence[Policy],
    engines: list[Profile],
    needs: Needs,
    arrivals: Arrivals,
    slo: float | None,
    until_s: float,
) -> Windows:
    """From when to when each call can be worked on: it travels to the engine first, and its response travels back.

    A call that moves may come as late as it likes, and has no end of its own.
    """
    network = min(p.network.client_gateway_s + p.network.gateway_engine_s for p in policies)
    travel = network + 0.5 * min(p.api_server_s for p in engines)
    arrival = arrivals.earliest_s
    patience = np.where(arrivals.moves, np.inf, patience_s(calls, policies))
    on_time = np.where(arrivals.moves, np.inf, np.minimum(patience, slo_s(calls, policies, slo)))
    slack = 1e-9 * (1.0 + arrival)  # sums of times are rounded otherwise in the engine
    ends = [np.minimum(arrival + wait, until_s) - travel + slack for wait in (patience, on_time)]
    return Windows(needs.arrival_s + travel, *ends)


def bound(needs: Needs, windows: Windows, engines: list[Profile], group: Mask, cut_short: bool) -> Possible:
    """The most of a group of calls, by whichever prices bound it best; `cut_short`: steps may be ended by aborts."""
    calls = int(group.sum())
    delivered = on_time = calls
    if calls == 0:
        return Possible(0, 0, 0)
    for prices in [charged(engines)] if cut_short else price_lists(needs, engines, group):
        seconds = needs.seconds(prices)[group]
        latest = needs.least_latency_s(prices)[group]
        release, by = windows.release[group], windows.delivered_by[group]
        delivered = min(delivered, fitting(release, by, seconds, latest, prices.speed))
        on_time = min(on_time, fitting(release, windows.on_time_by[group], seconds, latest, prices.speed))
    return Possible(calls, delivered, min(on_time, delivered))


def fitting(release: Floats, by: Floats, seconds: Floats, latency: Floats, speed: float) -> int:
    """How many calls are served in time at most, of those that an idle engine could serve in time at all."""
    can = release + latency <= by
    return most_jobs(release[can], by[can], seconds[can], speed)


def price_lists(needs: Needs, engines: list[Profile], group: Mask) -> list[Prices]:
    """The dearest prices for the traffic of a group, and for the parts of it that need least."""
    found: list[Prices] = []
    chosen = np.flatnonzero(group)
    for share in MIXES:
        part = chosen[: max(int(share * len(chosen)), 1)]
        share_of = 1.0 / needs.shared_by[part]
        sums = [
            float((values[part] * share_of).sum()) for values in (needs.fresh, needs.outputs, needs.rows, needs.held)
        ]
        prices = dearest(engines, *sums)
        if prices not in found:
            found.append(prices)
        if share == MIXES[0]:
            chosen = chosen[np.argsort(needs.seconds(prices)[chosen], kind="stable")]
    return found
