"""Columns that say the same in every row, in memory that all share: a log says nothing in most of its columns."""

from __future__ import annotations

import functools
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

ROWS_MOST = 1 << 18
"""Rows of the longest piece of which such a column is made."""


@functools.lru_cache(maxsize=64)
def alike(value: Any, type: pa.DataType, count: int) -> pa.ChunkedArray:
    """`value` in `count` rows; null for None."""
    rows = min(1 << max(count - 1, 0).bit_length(), ROWS_MOST)
    piece = repeated(value, type, rows)
    whole, rest = divmod(count, rows)
    return pa.chunked_array([piece] * whole + [piece.slice(0, rest)] * (rest > 0), type)


@functools.lru_cache(maxsize=64)
def repeated(value: Any, type: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, type) if value is None else pa.repeat(pa.scalar(value, type), count)


def is_empty(column: pa.ChunkedArray) -> bool:
    """Whether a column is null in every row."""
    return bool(column.null_count == len(column))


def pieces(column: pa.ChunkedArray) -> list[pa.Array]:
    """The chunks of a column without those that are part of another one, memory and all."""
    longest: dict[tuple[int, int], pa.Array] = {}
    for chunk in column.chunks:
        place = (max((buffer.address for buffer in chunk.buffers() if buffer), default=0), chunk.offset)
        if place not in longest or len(chunk) > len(longest[place]):
            longest[place] = chunk
    return list(longest.values())


def words(column: pa.ChunkedArray) -> set[Any]:
    """The values of a column, null as None."""
    return {value for piece in pieces(column) for value in pc.unique(piece).to_pylist()}
