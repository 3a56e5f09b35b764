"""Reading logs as bytes: compressed or not, whole or cut short."""

from __future__ import annotations

import bz2
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeVar, cast

import msgspec
import pyarrow as pa

from connectors.base import Dropped
from connectors.digests import raw
from connectors.json_values import SNIFFED_LINES as SNIFFED_LINES
from connectors.json_values import UNDECODABLE as UNDECODABLE
from connectors.json_values import as_lines
from connectors.json_values import first_object as first_object
from trace_schema.errors import BadInput

BLOCK_BYTES = 4 << 20
"""Larger ones cost more than they save: their memory is new each time."""
PART_BYTES = 64 << 10
"""At most so much is lost where compressed data break off."""
LINE_BYTES = 64 << 20
"""A longer line is read as several, so that a file without lines need not fit into memory."""
GZIP, ZSTD, BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh"
UTF8_MARK, UTF16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
PLACE_IN_LIST = re.compile(r"\[\d+\]")
CUT_SHORT = "the file ends in the middle of compressed data, or they are damaged"
BROKEN = (OSError, EOFError, zlib.error)

T = TypeVar("T")


@contextmanager
def open_bytes(path: str) -> Iterator[BinaryIO]:
    """The decompressed content of a file (gzip, zstd and bzip2 are known by their first bytes). Raises BadInput."""
    try:
        file = raw(path)
    except OSError as error:
        raise BadInput.at(path, f"cannot be read: {error.strerror}") from error
    with file:
        magic = file.peek(4)
        if magic.startswith(GZIP):
            yield cast(BinaryIO, gzip.GzipFile(fileobj=file))
        elif magic.startswith(ZSTD):
            yield cast(BinaryIO, io.BufferedReader(cast(Any, pa.input_stream(file, compression="zstd"))))
        elif magic.startswith(BZIP2):
            yield cast(BinaryIO, bz2.BZ2File(file))
        else:
            yield file


def fill(file: Any) -> tuple[list[bytes], bool]:
    """(the next bytes of a file, whether it breaks off after them)."""
    parts, size = list[bytes](), 0
    try:
        while size < BLOCK_BYTES and (part := file.read1(PART_BYTES)):
            parts.append(part)
            size += len(part)
    except BROKEN:
        return parts, True
    return parts, False


def blocks(path: str) -> Iterator[bytes | None]:
    """Whole lines, many at a time, without a byte-order mark; a last None where compressed data break off."""
    rest, at_start = b"", True
    with open_bytes(path) as file:
        while True:
            parts, broken = fill(file)
            lines, rest = whole_lines([rest, *parts])
            if not broken and (not parts or (not lines and len(rest) >= LINE_BYTES)):
                lines, rest = rest, b""
            if lines:
                yield lines.removeprefix(UTF8_MARK) if at_start else lines
                at_start = False
            if broken:
                yield None
            if broken or not parts:
                return


def whole_lines(parts: list[bytes]) -> tuple[bytes, bytes]:
    """(all lines that have an end, what follows)."""
    for k in reversed(range(len(parts))):
        end = parts[k].rfind(b"\n") + 1
        if end:
            return b"".join([*parts[:k], parts[k][:end]]), b"".join([parts[k][end:], *parts[k + 1 :]])
    return b"", b"".join(parts)


def head(path: str) -> bytes:
    """The first lines of a file's content. Raises BadInput when it has none that can be read as UTF-8 could be."""
    parts = blocks(path)
    first = next(parts, b"")
    if first and len(first) < BLOCK_BYTES // 2:
        # A last line without an end is a block of its own; an object over many lines ends with it.
        first += next(parts, b"") or b""
    if first is None:
        raise BadInput.at(path, f"no whole line can be read: {CUT_SHORT}")
    if first.startswith(UTF16_MARKS):
        raise BadInput.at(path, "is UTF-16 text; make it UTF-8, such as with iconv -f UTF-16 -t UTF-8")
    return first


def json_blocks(path: str) -> Iterator[bytes | None]:
    """`blocks` of JSON lines; arrays, and objects laid out otherwise, as a line for each value."""
    return as_lines(blocks(path))


def objects(
    path: str, decoder: msgspec.json.Decoder[T], reason_of: Callable[[Exception], str]
) -> Iterator[tuple[list[T], list[int], Dropped]]:
    """(objects, their 1-based line numbers, lines that hold none) of JSON lines, many at a time; blank lines aside.

    Of JSON that is laid out otherwise, the k-th value counts as line k.
    """
    for block, lines in counted(json_blocks(path)):
        dropped = Dropped()
        if block is None:
            dropped.add(CUT_SHORT, lines.start)
            yield [], [], dropped
        else:
            found, rows = objects_in(block, lines, decoder, reason_of, dropped)
            yield found, rows, dropped


def counted(parts: Iterator[bytes | None]) -> Iterator[tuple[bytes | None, range]]:
    """Blocks of whole lines, each with the 1-based numbers of its lines."""
    first = 1
    for block in parts:
        count = 0 if block is None else block.count(b"\n") + (not block.endswith(b"\n"))
        yield block, range(first, first + count)
        first += count


def objects_in(
    block: bytes,
    lines: range,
    decoder: msgspec.json.Decoder[T],
    reason_of: Callable[[Exception], str],
    dropped: Dropped,
) -> tuple[list[T], list[int]]:
    """(objects, their line numbers) of a block of JSON lines that are numbered so."""
    try:
        found = decoder.decode_lines(block)
    except UNDECODABLE:
        found = []
    if len(found) == len(lines):
        return found, list(lines)
    return one_by_one(block.split(b"\n"), lines.start, decoder, reason_of, dropped)


def one_by_one(
    lines: list[bytes],
    first: int,
    decoder: msgspec.json.Decoder[T],
    reason_of: Callable[[Exception], str],
    dropped: Dropped,
) -> tuple[list[T], list[int]]:
    """(objects, line numbers) of the lines that hold one; the others that are not blank are dropped."""
    found, rows = [], []
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            found.append(decoder.decode(line))
        except UNDECODABLE as error:
            dropped.add(reason_of(error), number)
        else:
            rows.append(number)
    return found, rows


def reason_of(error: Exception) -> str:
    """Why a line is no object, in words that equal offences share."""
    if isinstance(error, msgspec.ValidationError):
        return PLACE_IN_LIST.sub("[]", str(error))
    return "not a JSON object (cut short, or not text)"


class WholeLines(io.RawIOBase):
    """A file, or `blocks` of one, as UTF-8 text in whole lines. Bytes that are not UTF-8 stand as `\\xfc`.

    `broken` once it breaks off.

    `last` is a line that is put after the file's own.
    """

    def __init__(self, lines: str | Iterator[bytes | None], last: bytes = b"") -> None:
        self.last = last
        self.blocks = blocks(lines) if isinstance(lines, str) else lines
        self.ready = memoryview(b"")
        self.broken = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.ready:
            block = next(self.blocks, b"")
            self.broken = self.broken or block is None
            if not block:
                block, self.last = self.last, b""
            if not block:
                return 0
            text = block if block.isascii() else block.decode("utf-8", "backslashreplace").encode()
            self.ready = memoryview(text if text.endswith(b"\n") else text + b"\n")
        size = min(len(buffer), len(self.ready))
        buffer[:size] = self.ready[:size]
        self.ready = self.ready[size:]
        return size
