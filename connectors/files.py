"""Reading logs as bytes: compressed or not, whole or cut short."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar, cast

import msgspec
import pyarrow as pa

from connectors.base import Dropped
from connectors.json_values import SNIFFED_LINES as SNIFFED_LINES
from connectors.json_values import UNDECODABLE as UNDECODABLE
from connectors.json_values import as_lines
from connectors.json_values import first_object as first_object
from trace_schema.errors import BadInput

BLOCK_BYTES = 8 << 20
PART_BYTES = 64 << 10
"""At most so much is lost where compressed data break off."""
LINE_BYTES = 64 << 20
"""A longer line is read as several, so that a file without lines need not fit into memory."""
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
UTF8_MARK, UTF16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
CUT_SHORT = "the file ends in the middle of compressed data, or they are damaged"
BROKEN = (OSError, EOFError, zlib.error)

T = TypeVar("T")


def open_bytes(path: str) -> BinaryIO:
    """The decompressed content of a file (gzip and zstd are known by their first bytes). Raises BadInput."""
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise BadInput.at(path, f"cannot be read: {error.strerror}") from error
    if magic.startswith(GZIP):
        return cast(BinaryIO, gzip.open(path, "rb"))
    if magic == ZSTD:
        return cast(BinaryIO, io.BufferedReader(cast(Any, pa.input_stream(path, compression="zstd"))))
    return open(path, "rb")


def fill(file: Any) -> tuple[bytes, bool]:
    """(the next bytes of a file, whether it breaks off after them)."""
    parts, size = [], 0
    try:
        while size < BLOCK_BYTES and (part := file.read1(PART_BYTES)):
            parts.append(part)
            size += len(part)
    except BROKEN:
        return b"".join(parts), True
    return b"".join(parts), False


def blocks(path: str) -> Iterator[bytes | None]:
    """Whole lines, many at a time, without a byte-order mark; a last None where compressed data break off."""
    rest, at_start = b"", True
    with open_bytes(path) as file:
        while True:
            data, broken = fill(file)
            text = rest + data
            if at_start:
                text, at_start = text.removeprefix(UTF8_MARK), False
            end = text.rfind(b"\n") + 1
            if not broken and (not data or (not end and len(text) >= LINE_BYTES)):
                end = len(text)
            rest = text[end:]
            if end:
                yield text[:end]
            if broken:
                yield None
            if broken or not data:
                return


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
    first = 1
    for block in json_blocks(path):
        dropped = Dropped()
        if block is None:
            dropped.add(CUT_SHORT, first)
            yield [], [], dropped
            return
        count = block.count(b"\n") + (not block.endswith(b"\n"))
        rows = list(range(first, first + count))
        try:
            found = decoder.decode_lines(block)
        except UNDECODABLE:
            found = []
        if len(found) != count:
            found, rows = one_by_one(block.split(b"\n"), first, decoder, reason_of, dropped)
        yield found, rows, dropped
        first += count


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
        return str(error)
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
