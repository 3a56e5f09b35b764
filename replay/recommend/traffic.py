"""Other traffic of the same kind: resampled, or with more or fewer calls, made of the calls of a trace.

Resampling is a block bootstrap in time (Künsch 1989): the trace is cut into blocks of equal length, and each place is
filled with a block drawn from the same phase, so that an overload stays where it is. Blocks are as long as n ** (1/3)
calls take on average (Hall, Horowitz and Jing, 1995). A session moves as a whole, with the block of its first call, and
the attempts of a call are one call anyway.

A call that occurs more than once in what comes out is a different one each time: its content and its session are given
another name, unless calls of other blocks share them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replay.engine.identity import dense
from replay.phases import Phase

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
SALT = np.uint64(0x9E3779B97F4A7C15)
"""Between a block hash and that of its copies."""


def sessions(calls: pa.Table) -> Ints:
    """The place of the first call of each call's session; its own where it has none."""
    own = np.arange(calls.num_rows)
    if calls["session_id"].null_count == calls.num_rows:
        return own
    names = dense(calls["session_id"])
    _, first, group = np.unique(names, return_index=True, return_inverse=True)
    return np.where(np.asarray(calls["session_id"].is_valid()), first[group], own)


def block_s(calls: pa.Table) -> float:
    """Seconds of a block."""
    arrivals = np.asarray(calls["arrival_s"])
    return float(max(float(arrivals[-1]), 1e-9) * len(arrivals) ** (-2 / 3))


def resampled(calls: pa.Table, phases: Sequence[Phase], rng: np.random.Generator) -> pa.Table:
    """As many blocks as the trace has, drawn with replacement within each phase."""
    arrivals = np.asarray(calls["arrival_s"], dtype=np.float64)
    leader = sessions(calls)
    blocks, starts, drawn = block_of(arrivals[leader], phases, block_s(calls), float(arrivals[-1]), rng)
    order = np.argsort(blocks, kind="stable")
    first = np.searchsorted(blocks[order], np.arange(len(starts) + 1))
    members = [order[first[b] : first[b + 1]] for b in drawn]
    times = np.zeros(len(starts), np.int64)
    copies = []
    for b, held in zip(drawn, members, strict=True):
        copies.append(np.full(len(held), times[b]))
        times[b] += 1
    shifts = np.repeat(starts - starts[drawn], [len(m) for m in members])
    return assembled(calls, np.concatenate(members), shifts, np.concatenate(copies), blocks)


def block_of(
    times: Floats, phases: Sequence[Phase], length: float, end: float, rng: np.random.Generator
) -> tuple[Ints, Floats, Ints]:
    """(the block of each time, where blocks start, which block is drawn for each place)."""
    starts: list[float] = []
    drawn: list[int] = []
    for phase in phases:
        until = end + 1e-9 if phase.end_s is None else min(phase.end_s, end + 1e-9)
        if until <= phase.start_s:
            continue
        number = max(round((until - phase.start_s) / length), 1)
        drawn += (len(starts) + rng.integers(number, size=number)).tolist()
        starts += np.linspace(phase.start_s, until, number, endpoint=False).tolist()
    edges = np.array(starts)
    return np.maximum(np.searchsorted(edges, times, side="right") - 1, 0), edges, np.array(drawn, dtype=np.int64)


def scaled(calls: pa.Table, factor: float, rng: np.random.Generator) -> pa.Table:
    """`factor` times as many sessions: some are left out, or come again within a block's length of themselves."""
    leader = sessions(calls)
    leaders = np.unique(leader)
    whole, rest = int(factor), factor - int(factor)
    index, shifts, copies = [], [], []
    for copy in range(whole + 1):
        if copy < whole:
            chosen = leaders
        else:
            chosen = rng.choice(leaders, size=round(rest * len(leaders)), replace=False)
        held = np.flatnonzero(np.isin(leader, chosen))
        moved = rng.uniform(-1.0, 1.0, size=calls.num_rows) * block_s(calls) if copy else np.zeros(calls.num_rows)
        index.append(held)
        shifts.append(moved[leader[held]])
        copies.append(np.full(len(held), copy))
    return assembled(calls, np.concatenate(index), np.concatenate(shifts), np.concatenate(copies), leader)


def assembled(calls: pa.Table, index: Ints, shifts: Floats, copies: Ints, blocks: Ints) -> pa.Table:
    """A trace of the calls at `index`, each moved by its shift; those of a copy above 0 are calls of their own."""
    arrivals = np.maximum(np.asarray(calls["arrival_s"])[index] + shifts, 0.0)
    order = np.argsort(arrivals, kind="stable")
    index, copies = index[order], copies[order]
    made = calls.take(pa.array(index))
    ids = np.asarray(made["call_id"])
    stride = int(np.asarray(calls["call_id"]).max()) + 1
    contents = np.asarray(made["content_id"])
    alone = only_there(np.asarray(calls["content_id"]), blocks)[index]
    largest = int(np.asarray(calls["content_id"]).max(initial=0)) + 1
    columns = {
        "call_id": pa.array(ids + copies * stride),
        "content_id": pa.array(contents + np.where(alone, copies, 0) * largest),
        "arrival_s": pa.array(arrivals[order]),
        "previous_call_id": pc.add(made["previous_call_id"], pa.array(copies * stride)),
        "session_id": renamed(made["session_id"], copies),
        "idempotency_key": renamed(made["idempotency_key"], copies),
        "block_hashes": rehashed(made["block_hashes"], calls["block_hashes"], copies, blocks),
    }
    for name, column in columns.items():
        place = calls.column_names.index(name)
        made = made.set_column(place, calls.schema.field(place), column)
    return made


def only_there(values: Ints, blocks: Ints) -> npt.NDArray[np.bool_]:
    """For each value, whether all that equal it are in one block."""
    _, group = np.unique(values, return_inverse=True)
    low = np.full(int(group.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    high = np.full_like(low, -1)
    np.minimum.at(low, group, blocks)
    np.maximum.at(high, group, blocks)
    same: npt.NDArray[np.bool_] = (low == high)[group]
    return same


def renamed(names: pa.ChunkedArray, copies: Ints) -> pa.ChunkedArray:
    """Names that those of a copy have for themselves."""
    if names.null_count == len(names) or not copies.any():
        return names
    marked = pc.binary_join_element_wise(names, pa.array([f"#{c}" for c in copies.tolist()]), "")
    return pc.if_else(pa.array(copies > 0), marked, names)


def rehashed(made: pa.ChunkedArray, trace: pa.ChunkedArray, copies: Ints, blocks: Ints) -> pa.ChunkedArray:
    """Block hashes, of copies other ones where no other block of the trace has them."""
    if trace.null_count == len(trace) or not copies.any():
        return made
    lists = pa.concat_arrays(made.chunks) if made.num_chunks != 1 else made.chunk(0)
    known = pa.concat_arrays(trace.chunks) if trace.num_chunks != 1 else trace.chunk(0)
    lengths = np.asarray(pc.fill_null(pc.list_value_length(known), 0), dtype=np.int64)
    held = np.asarray(known.flatten()).astype(np.uint64)
    alone = only_there(held.view(np.int64), np.repeat(blocks, lengths))
    single = np.unique(held[alone])
    values = np.asarray(lists.flatten()).astype(np.uint64)
    copy = np.repeat(copies, np.asarray(pc.fill_null(pc.list_value_length(lists), 0), dtype=np.int64)).astype(np.uint64)
    with np.errstate(over="ignore"):
        other = np.where(np.isin(values, single), values ^ (copy * SALT), values)
    offsets = np.concatenate([[0], np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(lists), 0)))])
    mask = pa.array(~np.asarray(lists.is_valid()))
    made_lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(other), mask=mask)
    return pa.chunked_array([made_lists])
