"""Which KV blocks are the same: identities of prompt blocks, from the hashes of a log or from whole contents."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replay.engine.log_blocks import write_keys
from replay.errors import BadInput

Ints = npt.NDArray[np.int64]
NUMBERS_PER_VALUE = 4
"""Numbers below so many times their count are taken as they are: arrays that they index are not much too large."""


class BlockKeys(NamedTuple):
    """Keys of the leading blocks of each call that the log has hashes for; the others are keyed by content."""

    keys: npt.NDArray[np.int32]
    """Keys of all calls, one after the other."""
    first: Ints
    """Where a call's keys start."""
    number: Ints
    """How many keys a call has."""
    content_base: int
    """Smallest key that no hash has."""


def dense(values: pa.ChunkedArray | pa.Array) -> Ints:
    """0, 1, 2, ... for each distinct value."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return np.asarray(pc.dictionary_encode(values, null_encoding="encode").indices, dtype=np.int64)


def numbered(values: pa.ChunkedArray | pa.Array) -> Ints:
    """Equal numbers for equal values, none below 0 and none much larger than there are values; not to be written to."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
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
    return BlockKeys(np.zeros(1, np.int32), np.zeros(n, np.int64), np.zeros(n, np.int64), 0)


def block_keys(calls: pa.Table, block_size: int) -> BlockKeys:
    """Keys of the engine's blocks of `block_size` tokens from a log's chained hashes of `hash_block_tokens` each.

    A chained hash stands for everything up to its block's end, so that an engine block is identified by the log block
    that holds its last token and its place in it. Blocks that reach into a partial log block have no key.
    """
    n = calls.num_rows
    if "block_hashes" not in calls.column_names or calls["block_hashes"].null_count == n:
        return content_keys(n)
    lists = calls["block_hashes"].combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks)
    numbers = numbered(lists.flatten())
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0), dtype=np.int64)
    prompt = np.asarray(calls["prompt_tokens"], dtype=np.int64)
    log_size = np.full(n, block_size, np.int64)
    if "hash_block_tokens" in calls.column_names:
        log_size = np.array(pc.fill_null(calls["hash_block_tokens"], block_size), dtype=np.int64)
    full = np.minimum(lengths, prompt // log_size) * log_size
    count = np.minimum(full, prompt) // block_size
    start = np.cumsum(count) - count
    grain = math.gcd(block_size, *np.unique(log_size).tolist())
    span = int(log_size.max()) // grain
    content_base = (int(numbers.max(initial=-1)) + 1) * span
    if content_base > np.iinfo(np.int32).max:
        raise BadInput.at(
            "calls", f"more different blocks than {np.iinfo(np.int32).max // span:,}", field="block_hashes"
        )
    keys = np.empty(int(count.sum()) + 1, np.int32)
    keys[-1] = 0
    write_keys(numbers, np.cumsum(lengths) - lengths, start, count, log_size, block_size, grain, span, keys)
    return BlockKeys(keys, start, count, content_base)
