"""Which KV blocks are the same: identities of prompt blocks, from the hashes of a log or from whole contents."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replay.engine.log_blocks import count_keys, write_keys
from replay.engine.memory import zeros
from replay.errors import BadInput

Ints = npt.NDArray[np.int64]
NUMBERS_PER_VALUE = 4
"""Numbers below so many times their count are taken as they are: arrays that they index are not much too large."""


class BlockKeys(NamedTuple):
    """Keys of the leading blocks of each call that the log has hashes for; the others are keyed by content."""

    keys: npt.NDArray[np.int32]
    """Keys of all calls, one after the other."""
    ends: Ints
    """Where a call's keys end; those of the next one follow."""
    content_base: int
    """Smallest key that no hash has."""

    @property
    def first(self) -> Ints:
        """Where a call's keys start."""
        return self.ends - self.number

    @property
    def number(self) -> Ints:
        """How many keys a call has."""
        return np.diff(self.ends, prepend=0)


def in_one(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array; one that it is already is not copied."""
    if isinstance(values, pa.Array):
        return values
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def dense(values: pa.ChunkedArray | pa.Array) -> Ints:
    """0, 1, 2, ... for each distinct value."""
    return np.asarray(pc.dictionary_encode(in_one(values), null_encoding="encode").indices, dtype=np.int64)


def numbered(values: pa.ChunkedArray | pa.Array) -> Ints:
    """Equal numbers for equal values, none below 0 and none much larger than there are values; not to be written to."""
    values = in_one(values)
    if pa.types.is_integer(values.type) and values.null_count == 0 and len(values):
        ends = pc.min_max(values).as_py()
        if ends["min"] >= 0 and ends["max"] < NUMBERS_PER_VALUE * len(values):
            numbers = np.asarray(values)
            return fixed(numbers.view(np.int64) if numbers.itemsize == 8 else numbers.astype(np.int64))
    return fixed(dense(values))


def fixed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array, read-only: Arrow's are, and compiled code takes one kind."""
    array = array.view()
    array.flags.writeable = False
    return array


def content_keys(n: int) -> BlockKeys:
    """No call has hashes."""
    return BlockKeys(np.zeros(1, np.int32), np.zeros(n, np.int64), 0)


def block_keys(calls: pa.Table, block_size: int) -> BlockKeys:
    """Keys of the engine's blocks of `block_size` tokens from a log's chained hashes of `hash_block_tokens` each.

    A chained hash stands for everything up to its block's end, so that an engine block is identified by the log block
    that holds its last token and its place in it. Blocks that reach into a partial log block have no key.
    """
    n = calls.num_rows
    if "block_hashes" not in calls.column_names or calls["block_hashes"].null_count == n:
        return content_keys(n)
    lists = in_one(calls["block_hashes"])
    numbers, offsets = numbered(lists.flatten()), where_lists_begin(lists)
    log_tokens, sizes = block_sizes(calls, block_size)
    ends = np.empty(n, np.int64)
    count_keys(offsets, fixed(np.asarray(calls["prompt_tokens"], dtype=np.int64)), log_tokens, block_size, ends)
    grain = math.gcd(block_size, *sizes)
    span = max(sizes) // grain
    content_base = (int(numbers.max(initial=-1)) + 1) * span
    if content_base > np.iinfo(np.int32).max:
        raise BadInput.at(
            "calls", f"more different blocks than {np.iinfo(np.int32).max // span:,}", field="block_hashes"
        )
    keys = zeros(int(ends[-1]) + 1, np.int32)
    write_keys(numbers, offsets, ends, log_tokens, block_size, grain, span, keys)
    return BlockKeys(keys, ends, content_base)


def where_lists_begin(lists: pa.ListArray) -> npt.NDArray[np.int64]:
    """Place of the first value of each list among all values, and their number; a null has none."""
    if lists.null_count:
        lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0), dtype=np.int64)
        return fixed(np.concatenate(([0], np.cumsum(lengths))))
    return fixed(np.asarray(lists.offsets, dtype=np.int64))


def block_sizes(calls: pa.Table, missing: int) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Tokens of a log block of each call, `missing` where it does not say; and the sizes that there are."""
    n = calls.num_rows
    if "hash_block_tokens" not in calls.column_names:
        return fixed(np.full(n, missing, np.int64)), [missing]
    tokens = pc.fill_null(calls["hash_block_tokens"].cast(pa.int64()), missing)
    return fixed(np.asarray(tokens)), pc.unique(tokens).to_pylist()
