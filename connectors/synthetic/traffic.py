"""Calls made from nothing: when they arrive, how long they are, what they share, and what their users do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.synthetic.arrivals import CALLS_MOST
from connectors.synthetic.conversations import BLOCK_TOKENS, Counts, hashes_of, short_enough, turns_each, turns_of
from connectors.synthetic.draws import stream
from connectors.synthetic.options import Traffic, read
from connectors.synthetic.population import Arrivals, arrivals_of, client_factors
from connectors.synthetic.users import Added, added, columns, put
from connectors.synthetic.words import sentences
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
    table = calls_of(traffic)
    overload, last_s = overload_of(traffic), table["arrival_s"][-1].as_py()
    if overload is not None and last_s < overload[1]:
        raise BadConfig(
            f"{where}: the last of the {table.num_rows:,} calls arrives at {last_s:.4g} s, before the "
            f"overload ends at {overload[1]:g} s: raise calls or duration_s, or lower overload_start_s or overload_s"
        )
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


def calls_of(traffic: Traffic) -> pa.Table:
    """The calls, without their users. Raises BadConfig when there is none, or are too many."""
    arrivals = arrivals_of(traffic)
    fields = single_calls(arrivals, traffic) if traffic.session_turns is None else session_calls(arrivals, traffic)
    n = len(fields["arrival_s"])
    always: dict[str, Any] = {
        "call_id": np.arange(n),
        "content_id": np.arange(n),
        "priority": np.zeros(n, np.int32),
        "output_censored": np.zeros(n, bool),
        "patience_censored": np.zeros(n, bool),
        "observed_attempts": np.zeros(n, np.int32),
    }
    return conform(pa.table(always | fields), CALLS)


def single_calls(arrivals: Arrivals, traffic: Traffic) -> dict[str, Any]:
    """Calls that know nothing of each other."""
    n = len(arrivals.times_s)
    text, output = (lengths(traffic, what, n, arrivals.client) for what in ("prompt_tokens", "output_tokens"))
    fields: dict[str, Any] = {"arrival_s": arrivals.times_s, "prompt_tokens": text, "output_tokens": output}
    if arrivals.client is not None:
        fields["client"] = named("client", arrivals.client)
    if traffic.prefixes is not None:
        prefix, which = prefix_of(traffic, n)
        fields["prompt_tokens"] = text + prefix
        fields["block_hashes"] = shared(which, prefix > 0)
        fields["hash_block_tokens"] = np.full(n, traffic.prefix_tokens, np.int32)
    return fields


def session_calls(begins: Arrivals, traffic: Traffic) -> dict[str, Any]:
    """The turns of sessions, in order of arrival, up to the end of the trace."""
    each = turns_each(traffic, len(begins.times_s))
    session = np.repeat(np.arange(len(each)), each)
    if len(session) > CALLS_MOST:
        raise BadConfig(f"there would be {len(session):,} turns, at most {CALLS_MOST:,}: lower calls or session_turns")
    whose = None if begins.client is None else begins.client[session]
    text, output = (lengths(traffic, what, len(session), whose) for what in ("prompt_tokens", "output_tokens"))
    turns = turns_of(begins.times_s, each, text, output, traffic)
    prefix, which = prefix_of(traffic, len(each))
    prompt = prefix[session] + turns.said_before + text
    happens = short_enough(turns, traffic.prompt_tokens_max)
    if traffic.duration_s is not None:
        happens &= turns.arrival_s < traffic.duration_s
    rows = np.flatnonzero(happens)
    rows = rows[np.argsort(turns.arrival_s[rows], kind="stable")][: traffic.calls]
    number = np.zeros(len(session), np.int64)
    number[rows] = np.arange(len(rows))
    follows = turns.turn[rows] > 0
    closed = follows & (traffic.session_loop == "closed")
    fields = {
        "arrival_s": turns.arrival_s[rows],
        "prompt_tokens": prompt[rows],
        "output_tokens": output[rows],
        "session_id": named("session", session[rows]),
        "turn": turns.turn[rows],
        "previous_call_id": pa.array(number[rows - 1], mask=~follows),
        "think_time_s": pa.array(turns.think_s[rows], mask=~closed),
        "block_hashes": hashes_of(session[rows], prompt[rows], prefix[session[rows]], which[session[rows]]),
        "hash_block_tokens": np.full(len(rows), BLOCK_TOKENS, np.int32),
    }
    return fields if whose is None else fields | {"client": named("client", whose[rows])}


def named(what: str, numbers: Counts) -> pa.Array:
    """Names such as client-7."""
    found, places = np.unique(numbers, return_inverse=True)
    return pa.array([f"{what}-{k}" for k in found.tolist()]).take(pa.array(places))


def lengths(traffic: Traffic, what: str, n: int, client: Counts | None) -> Counts:
    """`n` prompt or output lengths in tokens, those of each client by its own factor."""
    drawn = getattr(traffic, what).draw(stream(traffic.seed, what), n)
    if client is not None:
        drawn = drawn * client_factors(traffic, what)[client]
    return np.asarray(np.clip(np.rint(drawn), 1, getattr(traffic, f"{what}_max")).astype(np.int64))


def prefix_of(traffic: Traffic, n: int) -> tuple[Counts, npt.NDArray[np.uint64]]:
    """How many tokens of a shared prefix each of `n` begins with, and which prefix that is."""
    if traffic.prefixes is None:
        return np.zeros(n, np.int64), np.zeros(n, np.uint64)
    begins = stream(traffic.seed, "who shares a prefix").random(n) < traffic.prefix_share
    which = (stream(traffic.seed, "which prefix").random(n) * traffic.prefixes).astype(np.uint64)
    return traffic.prefix_tokens * begins, which


def shared(which: npt.NDArray[np.uint64], begins: npt.NDArray[np.bool_]) -> pa.Array:
    """The shared prefix of each call as one block of all its tokens, null where it has none.

    The engine cuts a log's blocks into its own, so that one hash says the same as one for each 16 tokens would.
    """
    offsets = np.concatenate([[0], np.cumsum(begins)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(which[begins]), mask=pa.array(~begins))
