"""A trace made busier or calmer, and its calls longer or shorter.

Busier is not faster: to multiply the rate by stretching time would turn each burst into another, and each session's
thoughts too. Sessions are thinned and superposed instead (Cox and Isham, Point Processes, 1980, ch. 4): some are left
out, or others like them come on top, under new names and at their own moments. What belongs together stays together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from connectors.synthetic.draws import Floats, stream
from connectors.synthetic.options import Scale, read, written
from connectors.synthetic.users import Added, put
from trace_schema.errors import BadConfig

Counts = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

NAMED_ANEW = ("source_call", "idempotency_key", "client", "session_id")
"""Names that a copy does not share with what it is a copy of. Tenants it does: they are billed for more users."""
LONGEST = 2**31 - 1


def scaled_trace(calls: pa.Table, given: Mapping[str, Any], before: Added | None) -> tuple[pa.Table, Added]:
    """(the scaled calls, all that is then synthetic in them); `before` is what was already."""
    calls, scale = scaled(calls, given)
    before = before or Added(workload=None, options={}, says=[])
    return calls, replace(before, says=[*before.says, *in_words(scale)], scales=[*before.scales, written(scale)])


def scaled(calls: pa.Table, given: Mapping[str, Any]) -> tuple[pa.Table, Scale]:
    """`calls` (schema CALLS) as the options of `Scale` say. Equal options give equal tables.

    Raises BadConfig for options that cannot be, that say nothing, or that leave no call.
    """
    scale = read(given, Scale, "scale")
    if scale.rate == scale.prompt == scale.output == scale.stretch == 1.0:
        raise BadConfig("scale: nothing is changed: give rate, prompt, output or stretch")
    if scale.rate != 1.0:
        calls = in_rate(calls, scale)
    return in_time(in_length(calls, scale), scale), scale


@dataclass(frozen=True, slots=True)
class Sessions:
    """The calls of a log, and what belongs together: a session, or a call that is of none."""

    calls: pa.Table
    unit: Counts
    """Which one each call is of."""
    begins_s: Floats
    """When each begins."""
    private: npt.NDArray[np.bool_] | None
    """Of all block hashes, one call's after another's, which only one session has; None where there are no hashes."""


def in_rate(calls: pa.Table, scale: Scale) -> pa.Table:
    """Whole copies of all sessions, and one of some of them."""
    unit, begins_s = units(calls)
    log = Sessions(calls, unit, begins_s, private_blocks(calls, unit))
    chance = stream(scale.seed, "which sessions").random(len(begins_s))[unit]
    copies = []
    for copy in range(int(np.ceil(scale.rate))):
        rows = chance < scale.rate - copy
        copies.append((np.flatnonzero(rows), copied(log, rows, copy, scale) if copy else calls.filter(pa.array(rows))))
    if not any(len(rows) for rows, _ in copies):
        raise BadConfig(f"scale: rate={scale.rate:g} leaves none of the {len(begins_s):,} sessions and single calls")
    return in_order(pa.concat_tables([table for _, table in copies]), [rows for rows, _ in copies], calls.num_rows)


def units(calls: pa.Table) -> tuple[Counts, Floats]:
    """(the session that each call is of, or the call itself where it is of none; when each such unit begins)."""
    n = calls.num_rows
    root = np.arange(n)
    previous = np.asarray(pc.fill_null(calls["previous_call_id"], -1))
    root = np.where(previous >= 0, previous, root)
    while not np.array_equal(root[root], root):
        root = root[root]
    named = np.asarray(calls["session_id"].is_valid())
    if named.any():
        codes = np.asarray(pc.fill_null(calls["session_id"].combine_chunks().dictionary_encode().indices, 0))
        earliest = np.full(int(codes.max()) + 1, n)
        np.minimum.at(earliest, codes[named], np.flatnonzero(named))
        root = np.where(named, earliest[codes], root)
    begins, unit = np.unique(root, return_inverse=True)
    return unit, np.asarray(calls["arrival_s"])[begins]


def copied(log: Sessions, rows: npt.NDArray[np.bool_], copy: int, scale: Scale) -> pa.Table:
    """The calls in `rows` as those of other people, each session moved as a whole, within the time of the trace."""
    moves = scale.jitter_s * (2.0 * stream(scale.seed, f"copy {copy}").random(len(log.begins_s)) - 1.0)
    begins = np.abs(log.begins_s + moves)
    last = float(log.calls["arrival_s"][-1].as_py())
    begins = np.where(begins > last, np.maximum(2.0 * last - begins, 0.0), begins)
    moved = (begins - log.begins_s)[log.unit[rows]]
    contents = np.asarray(log.calls["content_id"])
    table = log.calls.filter(pa.array(rows))
    anew = {name: pc.binary_join_element_wise(table[name], f"copy{copy}", "~") for name in NAMED_ANEW}
    made = {name: column.combine_chunks() for name, column in anew.items()}
    made["arrival_s"] = pa.array(np.asarray(table["arrival_s"]) + moved)
    made["content_id"] = pa.array(contents[rows] + copy * (int(contents.max()) + 1))
    if log.private is not None:
        made["block_hashes"] = other_blocks(table, log.private[np.repeat(rows, block_counts(log.calls))], copy)
    return put(table, made)


def own_blocks(calls: pa.Table, unit: Counts, copy: int) -> pa.Array:
    """The block hashes of a copy of all calls, which have some: what only one of `unit` has is the copy's own."""
    private = private_blocks(calls, unit)
    assert private is not None
    return other_blocks(calls, private, copy)


def other_blocks(calls: pa.Table, private: npt.NDArray[np.bool_], copy: int) -> pa.Array:
    """Block hashes of a copy: those of `private` blocks are its own."""
    lists = calls["block_hashes"].combine_chunks()
    values = np.asarray(lists.flatten())
    offsets = np.concatenate([[0], np.cumsum(block_counts(calls))]).astype(np.int32)
    anew = pa.array(np.where(private, another(values, copy), values))
    return pa.ListArray.from_arrays(pa.array(offsets), anew, mask=lists.is_null())


def private_blocks(calls: pa.Table, unit: Counts) -> npt.NDArray[np.bool_] | None:
    """Which blocks only one session has, and no copy of it. What several share, such as a system prompt, all do."""
    if calls["block_hashes"].null_count == calls.num_rows:
        return None
    values = np.asarray(calls["block_hashes"].combine_chunks().flatten())
    owner = np.repeat(unit, block_counts(calls))
    order = np.lexsort((owner, values))
    begins = np.diff(values[order], prepend=values[order[:1]]) != 0
    begins[:1] = True
    group = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(values)) - 1
    private = np.empty(len(values), bool)
    private[order] = (owner[order][first] == owner[order][last])[group]
    return private


def block_counts(calls: pa.Table) -> Counts:
    """How many block hashes each call has."""
    return np.asarray(pc.fill_null(pc.list_value_length(calls["block_hashes"].combine_chunks()), 0))


def another(values: Hashes, copy: int) -> Hashes:
    """Other 64-bit numbers, one for each (SplitMix64's finalizer, which maps no two to one)."""
    x = values + np.uint64(copy * 0x9E3779B97F4A7C15 % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def in_order(table: pa.Table, rows: list[Counts], n: int) -> pa.Table:
    """Calls in order of arrival under new numbers; `rows` are the numbers that those of each copy had, out of `n`."""
    order = np.argsort(np.asarray(table["arrival_s"]), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    previous = np.full(len(order), -1)
    begin = 0
    for numbers in rows:
        now = np.full(n, -1)
        now[numbers] = place[begin : begin + len(numbers)]
        before = np.asarray(pc.fill_null(table["previous_call_id"].slice(begin, len(numbers)), -1))
        previous[begin : begin + len(numbers)] = np.where(before >= 0, now[before], -1)
        begin += len(numbers)
    table = put(table, {"previous_call_id": pa.array(previous, mask=previous < 0)}).take(pa.array(order))
    return put(table, {"call_id": pa.array(np.arange(len(order)))})


def in_length(calls: pa.Table, scale: Scale) -> pa.Table:
    """Prompts and outputs times their factors. Blocks grow with the prompts, so that as large a share is shared."""
    made: dict[str, pa.Array] = {}
    if scale.output != 1.0:
        for name in ("output_tokens", "max_tokens", "user_cancel_tokens"):
            made[name] = times(calls[name], scale.output)
    if scale.prompt != 1.0:
        made["prompt_tokens"] = times(calls["prompt_tokens"], scale.prompt)
        made["hash_block_tokens"] = times(calls["hash_block_tokens"], scale.prompt)
        calls = put(calls, made)
        made = {"block_hashes": fitting(calls)} if calls["block_hashes"].null_count < calls.num_rows else {}
    return put(calls, made)


def times(column: pa.ChunkedArray, factor: float) -> pa.Array:
    """Lengths times a factor, whole and at least 1; null stays null."""
    values = np.asarray(pc.fill_null(column, 1), dtype=np.float64) * factor
    return pa.array(np.clip(np.rint(values), 1, LONGEST).astype(np.int64), mask=np.asarray(column.is_null()))


def fitting(calls: pa.Table) -> pa.Array:
    """The block hashes that fit into their prompts, whose blocks were rounded."""
    lists = calls["block_hashes"].combine_chunks()
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
    room = np.asarray(calls["prompt_tokens"]) // np.asarray(pc.fill_null(calls["hash_block_tokens"], LONGEST))
    kept = np.minimum(lengths, room)
    place = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    values = np.asarray(lists.flatten())[place < np.repeat(kept, lengths)]
    offsets = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=lists.is_null())


def in_time(calls: pa.Table, scale: Scale) -> pa.Table:
    """Arrivals stretched, where that is asked for."""
    if scale.stretch == 1.0:
        return calls
    return put(calls, {"arrival_s": pa.array(scale.stretch * np.asarray(calls["arrival_s"]))})


def in_words(scale: Scale) -> list[str]:
    """What was done to the log."""
    said = []
    if scale.rate < 1.0:
        said.append(f"{100.0 * scale.rate:.4g}% of the log's sessions and single calls, drawn with seed {scale.seed}")
    if scale.rate > 1.0:
        said.append(
            f"{scale.rate:g} times the log's sessions and single calls: others like them, moved by up to "
            f"{scale.jitter_s:g} s, come on top (seed {scale.seed})"
        )
    if scale.prompt != 1.0 or scale.output != 1.0:
        said.append(f"prompts of {scale.prompt:g} and outputs of {scale.output:g} times their length")
    if scale.stretch != 1.0:
        said.append(f"times stretched by {scale.stretch:g}")
    return said
