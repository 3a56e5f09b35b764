"""Calls made from nothing: when they arrive, how long they are, what they share, and what their users do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.synthetic.arrivals import (
    Rate,
    calls_until,
    first_calls,
    overloaded,
    periodic_bursts,
    random_bursts,
)
from connectors.synthetic.draws import Floats, stream
from connectors.synthetic.gaps import Gaps
from connectors.synthetic.laws import Law
from connectors.synthetic.options import Traffic, read
from connectors.synthetic.users import Added, added, columns, percent, put
from connectors.synthetic.workloads import workload
from trace_schema.calls import CALLS
from trace_schema.check import conform
from trace_schema.errors import BadConfig


@dataclass(frozen=True, slots=True)
class Made:
    """Calls (schema CALLS), and what is true of them because they were made so."""

    calls: pa.Table
    overload_s: tuple[float, float] | None
    """When the overload begins and ends, where there is one."""
    added: Added


def make(name: str, options: Mapping[str, Any] | None = None) -> Made:
    """The calls of the workload `name`, with `options` in the place of its own.

    A pure function: equal arguments give equal tables. Raises UnknownName and BadConfig.
    """
    where = f"synthetic:{name}"
    traffic = read(options or {}, Traffic, where, workload(name).options)
    check(traffic, where)
    arrivals = arrival_times(traffic)
    overload = overload_of(traffic)
    if overload is not None and arrivals[-1] < overload[1]:
        raise BadConfig(
            f"{where}: the last of the {len(arrivals):,} calls arrives at {arrivals[-1]:.4g} s, before the "
            f"overload ends at {overload[1]:g} s: raise calls or duration_s, or lower overload_start_s or overload_s"
        )
    table = calls_at(arrivals, traffic)
    table = put(table, columns(traffic, table))
    return Made(table, overload, added(name, traffic, table, sentences(traffic)))


def check(traffic: Traffic, where: str) -> None:
    """Raises BadConfig for options that cannot be true together."""
    if traffic.calls is None and traffic.duration_s is None:
        raise BadConfig(f"{where}: give calls or duration_s")
    if traffic.burst_every_s is not None and traffic.burst_s >= traffic.burst_every_s:
        raise BadConfig(
            f"{where}: burst_s is {traffic.burst_s:g}, and must be less than burst_every_s, {traffic.burst_every_s:g}"
        )


def overload_of(traffic: Traffic) -> tuple[float, float] | None:
    if traffic.overload_s is None:
        return None
    return traffic.overload_start_s, traffic.overload_start_s + traffic.overload_s


def arrival_times(traffic: Traffic) -> Floats:
    """When the calls arrive, in order."""

    def rate(until_s: float) -> Rate:
        shape = Rate(np.zeros(1), np.array([traffic.rate_per_s]))
        if traffic.overload_s is not None:
            shape = shape.times(
                overloaded(
                    traffic.overload_start_s, traffic.overload_s, traffic.overload_factor, traffic.recovery_factor
                )
            )
        if traffic.burst_every_s is not None:
            law = (traffic.burst_every_s, traffic.burst_s, traffic.burst_factor, traffic.quiet_factor, until_s)
            random = traffic.burst_law == "random"
            shape = shape.times(random_bursts(*law, traffic.seed) if random else periodic_bursts(*law))
        return shape

    gaps = Gaps.of_cv(traffic.arrival_family, traffic.arrival_cv)
    if traffic.calls is not None:
        return first_calls(rate, traffic.rate_per_s, traffic.calls, gaps, traffic.seed)
    assert traffic.duration_s is not None
    return calls_until(rate, traffic.duration_s, gaps, traffic.seed)


def calls_at(arrivals: Floats, traffic: Traffic) -> pa.Table:
    """The calls that arrive at these times, without their users."""
    n = len(arrivals)
    seed = traffic.seed
    prompt = lengths(traffic.prompt_tokens, stream(seed, "prompt_tokens"), n, traffic.prompt_tokens_max)
    output = lengths(traffic.output_tokens, stream(seed, "output_tokens"), n, traffic.output_tokens_max)
    fields: dict[str, Any] = {
        "call_id": np.arange(n),
        "content_id": np.arange(n),
        "arrival_s": arrivals,
        "priority": np.zeros(n, np.int32),
        "prompt_tokens": prompt,
        "output_tokens": output,
        "output_censored": np.zeros(n, bool),
        "patience_censored": np.zeros(n, bool),
        "observed_attempts": np.zeros(n, np.int32),
    }
    if traffic.prefixes is not None:
        begins = stream(seed, "who shares a prefix").random(n) < traffic.prefix_share
        which = (stream(seed, "which prefix").random(n) * traffic.prefixes).astype(np.uint64)
        fields["prompt_tokens"] = prompt + traffic.prefix_tokens * begins
        fields["block_hashes"] = shared(which, begins)
        fields["hash_block_tokens"] = np.full(n, traffic.prefix_tokens, np.int32)
    return conform(pa.table(fields), CALLS)


def lengths(law: Law, random: np.random.Generator, n: int, most: int) -> npt.NDArray[np.int64]:
    """`n` lengths in tokens."""
    return np.clip(np.rint(law.draw(random, n)), 1, most).astype(np.int64)


def shared(which: npt.NDArray[np.uint64], begins: npt.NDArray[np.bool_]) -> pa.Array:
    """The shared prefix of each call as one block of all its tokens, null where it has none.

    The engine cuts a log's blocks into its own, so that one hash says the same as one for each 16 tokens would.
    """
    offsets = np.concatenate([[0], np.cumsum(begins)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(which[begins]), mask=pa.array(~begins))


def sentences(traffic: Traffic) -> list[str]:
    """What the options say of arrivals and lengths."""
    said = [f"{gaps_in_words(traffic)} arrivals at {traffic.rate_per_s:g} /s"]
    if traffic.overload_s is not None:
        start_s, end_s = traffic.overload_start_s, traffic.overload_start_s + traffic.overload_s
        said[0] += f", x {traffic.overload_factor:g} from {start_s:g} to {end_s:g} s"
        if traffic.recovery_factor != 1.0:
            said[0] += f" and x {traffic.recovery_factor:g} from there on"
    if traffic.burst_every_s is not None:
        said[0] += f", x {traffic.burst_factor:g} in {traffic.burst_law} bursts of {traffic.burst_s:g} s"
        said[0] += f" every {traffic.burst_every_s:g} s"
        if traffic.quiet_factor != 1.0:
            said[0] += f" and x {traffic.quiet_factor:g} between them"
    said.append(f"prompts of {traffic.prompt_tokens} tokens, outputs of {traffic.output_tokens}")
    if traffic.prefixes is not None:
        said.append(
            f"{percent(traffic.prefix_share)} of the prompts begin with one of {traffic.prefixes:,} prefixes of "
            f"{traffic.prefix_tokens:,} tokens more"
        )
    return said


def gaps_in_words(traffic: Traffic) -> str:
    """The name of the arrival process."""
    if traffic.arrival_cv == 0.0:
        return "evenly spaced"
    return "Poisson" if traffic.arrival_cv == 1.0 else f"{traffic.arrival_family.title()} (cv {traffic.arrival_cv:g})"
