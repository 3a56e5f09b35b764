"""JSON however it is laid out: the same values, one a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.json_values import as_lines, cut, first_object, is_laid_out

OBJECTS = [{"a": k, "text": 'x"]}{[,\\', "n": {"b": [1, {"c": None}]}} for k in range(5)]
LAYOUTS = {
    "array": json.dumps(OBJECTS),
    "pretty array": json.dumps(OBJECTS, indent=1),
    "an item a line": "[\r\n" + ",\r\n".join(map(json.dumps, OBJECTS)) + "\r\n]",
    "pretty objects": "\n".join(json.dumps(item, indent=2) for item in OBJECTS),
    "objects side by side": "".join(map(json.dumps, OBJECTS)),
    "two arrays": json.dumps(OBJECTS[:2]) + "\n" + json.dumps(OBJECTS[2:], indent=3),
}


def pieces(data: bytes, size: int) -> Iterator[bytes | None]:
    return (data[at : at + size] for at in range(0, len(data), size))


def values(blocks: Iterator[bytes | None]) -> list[Any]:
    return [json.loads(line) for block in blocks for line in (block or b"").splitlines()]


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_layout_is_read_as_its_values(name: str) -> None:
    data = LAYOUTS[name].encode()
    assert is_laid_out(data)
    assert first_object(data) == OBJECTS[0]
    assert values(as_lines(pieces(data, len(data)))) == OBJECTS


def test_json_lines_pass_as_they_are() -> None:
    data = b"\n" + "\n".join(map(json.dumps, OBJECTS)).encode()
    assert not is_laid_out(data)
    lines = data.splitlines(keepends=True)
    assert list(as_lines(iter(lines))) == lines


@pytest.mark.parametrize("name", LAYOUTS)
@given(size=st.integers(1, 200))
def test_where_blocks_end_changes_nothing(name: str, size: int) -> None:
    assert values(cut(pieces(LAYOUTS[name].encode(), size))) == OBJECTS


def test_a_broken_first_line_makes_no_layout_of_json_lines() -> None:
    assert not is_laid_out(b'\n{"call": \n{"call": 0, "attempt": 1}\n')
    assert not is_laid_out(b'[]\n{"call": 0}\n')
    assert first_object(b'\n{"call": \n{"call": 0}\n') == {"call": 0}


def test_what_is_no_value_stands_alone_and_so_does_one_that_does_not_end() -> None:
    lines = b"".join(block or b"" for block in as_lines(iter([b'[{"a": 1}, oops, {"b" 3}, {"c":\n 2}, {"d": [4'])))
    assert lines.splitlines() == [b'{"a": 1}', b"oops", b'{"b" 3}', b'{"c":  2}', b'{"d": [4']


def test_a_break_in_compressed_data_is_passed_on() -> None:
    assert list(as_lines(iter([b'[{"a": 1}, {"b":', None]))) == [b'{"a": 1}\n', None]
    assert list(as_lines(iter([None]))) == [None]
