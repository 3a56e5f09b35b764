"""Delimited text as Arrow tables: by types where all is well, as texts and row by row where it is not."""

from __future__ import annotations

import csv as plain_csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from connectors.base import Dropped
from connectors.files import BLOCK_BYTES, CUT_SHORT, WholeLines, blocks, head
from trace_schema.errors import BadInput

DELIMITERS = (",", ";", "\t", "|")
QUOTE = b'"'
END = "\x01 end"
"""Begins a line that is put after a table's own, to see whether a quote that was never closed has taken it in."""
HEADER_BYTES = 1 << 20
"""The line that names the columns is no longer."""
SAMPLED_ROWS = 100
"""Rows that tell of which type a column is."""
ROW_BYTES = 4 * BLOCK_BYTES
"""A longer row with quoted line breaks is not read."""

NUMBERS = (pa.int64(), pa.float64())
TIMES = (pa.float64(), pa.timestamp("ns"), pa.timestamp("ns", "UTC"))
TEXTS = ()
"""Types that a column may be of, whichever all of its first values are of first; else text."""

Rows = np.ndarray[Any, np.dtype[np.int64]]
Types = Mapping[str, Sequence[pa.DataType]]


@dataclass(frozen=True, slots=True)
class Layout:
    """How the rows of a file are written, which its first line tells."""

    names: list[str]
    delimiter: str
    lines: int
    """Lines before the first row."""


def layout_of(path: str) -> Layout:
    """The layout of a file, by its first line that is not blank. Raises BadInput."""
    text = head(path)[:HEADER_BYTES].decode("utf-8", "backslashreplace").replace("\0", "")
    delimiter = delimiter_of(first_line(text))
    reader = plain_csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        names = next(filter(None, reader), [])
    except plain_csv.Error as error:
        raise BadInput.at(path, f"has no header line of a CSV: {error}") from error
    return Layout(names, delimiter, reader.line_num)


def names_in(head: bytes) -> list[str]:
    """The column names that a file begins with, if it may be a table of more than one column."""
    first = first_line(head[:HEADER_BYTES].decode("utf-8", "replace")).removeprefix("\ufeff")
    delimiter = delimiter_of(first)
    if delimiter not in first or "\x00" in first or first.lstrip()[:1] in ("{", "["):
        return []
    return [name.strip('" ') for name in first.strip("\r\n ").split(delimiter)]


def first_line(text: str) -> str:
    return text.lstrip("\r\n").split("\n", 1)[0]


def delimiter_of(line: str) -> str:
    """What parts a header line into the most columns; a comma where nothing does."""
    return max(DELIMITERS, key=line.count)


def tables(path: str, layout: Layout, used: Types) -> Iterator[tuple[pa.Table, Rows, Dropped]]:
    """(columns `used`, 1-based rows of the file, rows that were dropped) in batches; the header line counts as row 1.

    Blank lines do not count. Raises BadInput when there is nothing that could be read as delimited text.
    """
    reader = Reader(path, layout, used)
    lines = blocks(path)
    start = next(lines, None)
    if start is not None:
        start = start.split(b"\n", layout.lines)[layout.lines] if start.count(b"\n") >= layout.lines else b""
    for block in chain([start], lines):
        if block is None:
            yield reader.nothing(CUT_SHORT)
        elif (table := reader.typed(block)) is not None:
            yield table, reader.next_rows(table.num_rows), Dropped()
        elif QUOTE in block:
            # A quoted line break may lie between two blocks: from here on, all is one text.
            yield from reader.row_by_row(chain([block], lines), ROW_BYTES)
        else:
            yield from reader.row_by_row(iter([block]), len(block) + ROW_BYTES)


class Reader:
    """Where in the file the reading is, and of which types its columns have been so far."""

    def __init__(self, path: str, layout: Layout, used: Types) -> None:
        self.path, self.layout, self.used = path, layout, used
        self.row = 2
        self.types: dict[str, pa.DataType] = {}

    def next_rows(self, count: int) -> Rows:
        self.row += count
        return np.arange(self.row - count, self.row)

    def nothing(self, reason: str) -> tuple[pa.Table, Rows, Dropped]:
        """That one row cannot be read, for a reason."""
        dropped = Dropped({reason: (1, [self.row])})
        return pa.table({name: pa.nulls(0, pa.string()) for name in self.used}), self.next_rows(0), dropped

    def typed(self, block: bytes) -> pa.Table | None:
        """A block's rows, if it holds whole ones only, and each value is of its column's type."""
        quoted = QUOTE in block
        if not block or (quoted and block.count(QUOTE) % 2):
            return None
        try:
            if not self.types:
                sample = b"\n".join(block[:HEADER_BYTES].split(b"\n", SAMPLED_ROWS)[:-1]) or block
                self.types = fitting(self.parsed(sample, dict.fromkeys(self.used, pa.string()), quoted), self.used)
            table = self.parsed(block, self.types, quoted)
        except pa.ArrowInvalid:
            return None
        return None if quoted and table.num_rows != block.rstrip().count(b"\n") + 1 else table

    def parsed(self, block: bytes, types: Mapping[str, pa.DataType], quoted: bool) -> pa.Table:
        return csv.read_csv(
            pa.BufferReader(block),
            csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=self.layout.names),
            csv.ParseOptions(delimiter=self.layout.delimiter, quote_char='"' if quoted else False),
            csv.ConvertOptions(include_columns=[*types], column_types=types, strings_can_be_null=True),
        )

    def row_by_row(self, lines: Iterator[bytes | None], block_size: int) -> Iterator[tuple[pa.Table, Rows, Dropped]]:
        """Rows as texts; those that have too few or too many columns are dropped."""
        end = END + self.layout.delimiter * len(self.layout.names)
        first, skipped, dropped, closed = self.row, list[int](), Dropped(), False

        def skip(row: csv.InvalidRow) -> str:
            nonlocal closed
            closed = end in row.text
            if row.text != end:
                number = first + row.number - 1
                dropped.add(f"has {row.actual_columns} columns instead of {row.expected_columns}", number)
                skipped.append(number)
            return "skip"

        file = WholeLines(lines, end.encode())
        held: tuple[pa.Table, Rows] | None = None
        try:
            for part in self.texts(file, skip, block_size):
                if held:
                    yield *held, Dropped()
                held = pa.Table.from_batches([part]), self.rows_beside(skipped, part.num_rows)
        except pa.ArrowInvalid as error:
            if self.row == 2:
                raise BadInput.at(self.path, f"cannot be read as CSV: {reason(error)}") from error
            dropped.add(f"cannot be read as CSV from here on: {reason(error)}", self.row + len(skipped))
            closed = True
        if held:
            table, rows = held
            if len(rows) and not closed:
                dropped.add("a quoted text begins here and does not end", int(rows[-1]))
                table, rows = table.slice(0, len(rows) - 1), rows[:-1]
            yield table, rows, Dropped()
        self.row += len(skipped)
        if file.broken:
            dropped.add(CUT_SHORT, self.row)
        table, rows, _ = self.nothing("")
        yield table, rows, dropped

    def texts(self, file: io.RawIOBase, skip: Any, block_size: int) -> Iterable[pa.RecordBatch]:
        yield from csv.open_csv(
            io.BufferedReader(file),
            csv.ReadOptions(use_threads=False, block_size=block_size, column_names=self.layout.names),
            csv.ParseOptions(delimiter=self.layout.delimiter, invalid_row_handler=skip, newlines_in_values=True),
            csv.ConvertOptions(
                include_columns=[*self.used],
                column_types=dict.fromkeys(self.used, pa.string()),
                strings_can_be_null=True,
            ),
        )

    def rows_beside(self, skipped: list[int], count: int) -> Rows:
        """The next `count` rows that were not skipped."""
        rows = np.arange(self.row, self.row + count + len(skipped))
        rows = rows[~np.isin(rows, skipped)][:count]
        self.row = int(rows[-1]) + 1 if count else self.row
        skipped[:] = [row for row in skipped if row >= self.row]
        return rows


def fitting(sample: pa.Table, used: Types) -> dict[str, pa.DataType]:
    """For each column the first of its types that all its values are of; text where none is."""
    return {name: next((t for t in used[name] if fits(sample[name], t)), pa.string()) for name in used}


def fits(texts: pa.ChunkedArray, type: pa.DataType) -> bool:
    try:
        texts.cast(type)
    except pa.ArrowInvalid:
        return False
    return True


def reason(error: Exception) -> str:
    """What Arrow says, in one line that is not too long."""
    return str(error).split("\n")[0][:200]
