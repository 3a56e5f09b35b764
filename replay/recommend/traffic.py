"""Other traffic of the same kind: a trace resampled.

A block bootstrap in time (Künsch 1989): the trace is cut into blocks of equal length, and each place is filled with a
block drawn from the same phase, so that an overload stays where it is. Blocks are as long as n ** (1/3) calls take on
average (Hall, Horowitz and Jing, 1995). A session moves as a whole, with the block of its first call, and the attempts
of a call are one call anyway.

A block that comes more than once brings different calls each time: contents and prompt blocks that no other block of
the trace has, sessions and keys get other names.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connectors.synthetic.scaling import other_blocks, private_blocks, units
from replay.phases import Phase

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Truths = npt.NDArray[np.bool_]


def block_s(calls: pa.Table) -> float:
    """Seconds of a block."""
    arrivals = np.asarray(calls["arrival_s"])
    return float(max(float(arrivals[-1]), 1e-9) * len(arrivals) ** (-2 / 3))


def resampled(calls: pa.Table, phases: Sequence[Phase], rng: np.random.Generator) -> pa.Table:
    """As many blocks as `calls` (schema CALLS) have, drawn with replacement within each phase; in order of arrival.

    Calls keep their numbers, copies get those beyond them.
    """
    unit, begins = units(calls)
    end = float(np.asarray(calls["arrival_s"])[-1])
    blocks, starts, drawn = block_of(begins, phases, block_s(calls), end, rng)
    held = blocks[unit]  # the block of each call
    order = np.argsort(held, kind="stable")
    first = np.searchsorted(held[order], np.arange(len(starts) + 1))
    times = np.zeros(len(starts), np.int64)
    rows: list[Ints] = []
    shifts: list[Floats] = []
    copies: list[Ints] = []
    for place, block in enumerate(drawn.tolist()):
        members = order[first[block] : first[block + 1]]
        rows.append(members)
        shifts.append(np.full(len(members), starts[place] - starts[block]))
        copies.append(np.full(len(members), times[block]))
        times[block] += 1
    return assembled(calls, np.concatenate(rows), np.concatenate(shifts), np.concatenate(copies), held)


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


def assembled(calls: pa.Table, rows: Ints, shifts: Floats, copies: Ints, blocks: Ints) -> pa.Table:
    """The calls in `rows`, each moved by its shift, those of a copy above 0 as calls of their own."""
    private = private_blocks(calls, blocks)
    alone = only_there(np.asarray(calls["content_id"]), blocks)
    tables = []
    for copy in np.unique(copies).tolist():
        mine = copies == copy
        moved = np.asarray(calls["arrival_s"])[rows[mine]] + shifts[mine]
        table = as_copy(calls, rows[mine], copy, alone, private) if copy else calls.take(pa.array(rows[mine]))
        tables.append(put(table, "arrival_s", pa.array(np.maximum(moved, 0.0))))
    together = pa.concat_tables(tables)
    return together.take(pa.array(np.argsort(np.asarray(together["arrival_s"]), kind="stable")))


def as_copy(calls: pa.Table, rows: Ints, copy: int, alone: Truths, private: Truths | None) -> pa.Table:
    """The calls in `rows` under names that their copy alone has, of contents `alone` and blocks that are `private`."""
    table = calls.take(pa.array(rows))
    contents = np.asarray(calls["content_id"])
    shift = copy * (int(contents.max()) + 1)
    table = put(table, "content_id", pa.array((contents + np.where(alone, shift, 0))[rows]))
    stride = copy * (int(np.asarray(calls["call_id"]).max()) + 1)
    for name in ("call_id", "previous_call_id"):
        table = put(table, name, pc.add(table[name], pa.scalar(stride, pa.int64())))
    for name in ("session_id", "idempotency_key"):
        table = put(table, name, pc.binary_join_element_wise(table[name], f"copy{copy}", "~"))
    if private is not None:
        table = put(table, "block_hashes", other_blocks(calls, private, copy).take(pa.array(rows)))
    return table


def put(calls: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The calls with another column in the place of one."""
    place = calls.column_names.index(name)
    field = calls.schema.field(place)
    return calls.set_column(place, field, column.cast(field.type))


def only_there(values: Ints, blocks: Ints) -> Truths:
    """For each value, whether all that equal it are in one block."""
    _, group = np.unique(values, return_inverse=True)
    low = np.full(int(group.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    high = np.full_like(low, -1)
    np.minimum.at(low, group, blocks)
    np.maximum.at(high, group, blocks)
    same: Truths = (low == high)[group]
    return same
