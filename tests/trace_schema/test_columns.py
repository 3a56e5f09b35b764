"""Columns that say the same everywhere take no memory, and are told from others by what they say."""

from __future__ import annotations

import pyarrow as pa
import pytest

from trace_schema.columns import ROWS_MOST, alike, is_empty, words


@pytest.mark.parametrize("count", [0, 1, 5, ROWS_MOST, 3 * ROWS_MOST + 7])
@pytest.mark.parametrize(
    ("value", "type"), [(None, pa.int64()), (7, pa.int32()), ("ok", pa.string()), (True, pa.bool_())]
)
def test_a_column_of_one_value_has_it_in_every_row(value: object, type: pa.DataType, count: int) -> None:
    column = alike(value, type, count)
    assert (len(column), column.type) == (count, type)
    assert set(column.to_pylist()) <= {value}
    assert is_empty(column) == (value is None or not count)
    assert words(column) == ({value} if count else set())


def test_a_long_column_of_one_value_takes_the_memory_of_a_piece() -> None:
    before = pa.total_allocated_bytes()
    column = alike(123456, pa.int64(), 100 * ROWS_MOST)
    assert pa.total_allocated_bytes() - before < 3 * ROWS_MOST * 8
    assert len(column) == 100 * ROWS_MOST


def test_words_are_those_of_every_part_of_shared_memory() -> None:
    values = pa.array(["a"] * 10 + ["b"] * 10 + [None, "c"])
    column = pa.chunked_array([values.slice(0, 10), values.slice(10, 2), values.slice(0, 3), values.slice(20)])
    assert words(column) == {"a", "b", "c", None}
    assert words(pa.chunked_array([], pa.string())) == set()
