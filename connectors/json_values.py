"""JSON that is not a value a line: arrays, and objects that follow each other however they are laid out, as JSON lines.

A tool's export is often one array, or a pretty-printed object after another. Both are cut here into a line for each
value, in one pass and without holding the file, so that a reader of JSON lines reads them too. A top-level array stands
for its items. What is no value (a word between two objects, an object that does not end) is a line of its own, which
its reader then drops and counts.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

SNIFFED_LINES = 20
SNIFFED_BYTES = 1 << 20
"""A first value that is longer is looked for in all that was read."""
VALUE_BYTES = 64 << 20
"""A value that is longer is cut."""
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
BETWEEN = re.compile(r"[\s,\[\]]*")
"""What stands between values: those of an array have brackets around them, and commas."""
BRACKET = re.compile(r'[^"{}\[\]]*(?:"(?:[^"\\]|\\.)*"[^"{}\[\]]*)*([{}\[\]])', re.DOTALL)
"""Up to the next bracket that is in no text."""
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,\[\]{}]+', re.DOTALL)
SCANNER = json.JSONDecoder(strict=False)
BREAKS = bytes.maketrans(b"\r\n", b"  ")
"""Line breaks between the parts of a value are spaces; inside of its texts JSON allows none."""


def as_lines(blocks: Iterator[bytes | None]) -> Iterator[bytes | None]:
    """`blocks` of a file as JSON lines: themselves where each line is a value already; a None is passed on."""
    first = next(blocks, b"")
    if first is None:
        yield None
        return
    chained = itertools.chain([first], blocks)
    yield from (cut(chained) if is_laid_out(first) else chained)


@functools.lru_cache(maxsize=1)
def is_laid_out(head: bytes) -> bool:
    """Whether the values of a file that begins with `head` are not one a line."""
    start = head.lstrip()
    line = start.split(b"\n", 1)[0]
    if start.startswith(b"["):
        # A line of text may begin with a time in brackets.
        if start[1:].lstrip()[:1] not in (b"{", b"[", b"]"):
            return False
        whole = decoded(line) if len(line) <= SNIFFED_BYTES else None
        return whole is None or (bool(whole) and all(isinstance(item, dict) for item in whole))
    if not start.startswith(b"{") or decoded(line) is not None:
        return False
    found, ended = first_value(head)
    if isinstance(found, dict):
        return True
    # Objects inside of one that is laid out may have a line each, but they are indented.
    lines = start.split(b"\n", SNIFFED_LINES)[:SNIFFED_LINES]
    return not ended and not any(line.startswith(b"{") and isinstance(decoded(line), dict) for line in lines)


@functools.lru_cache(maxsize=1)
def first_object(head: bytes) -> dict[str, Any] | None:
    """The first JSON object that a file begins with: of its first lines, or of its values if they are laid out.

    Every format asks: the answer to the last file is kept. Nobody may change it.
    """
    found, _ = first_value(head) if is_laid_out(head) else (None, False)
    return found if isinstance(found, dict) else object_in_lines(head)


def first_value(head: bytes) -> tuple[Any, bool]:
    """(the first object in values that are laid out, None for what is none, whether it ends)."""
    for data in (head[:SNIFFED_BYTES], head):
        text = data.decode("latin-1")
        place = after(BETWEEN, text, 0)
        end = end_of_object(text, place) if text[place : place + 1] == "{" else place
        if end is not None:
            return decoded(data[place:end]), True
    return None, False


def object_in_lines(head: bytes) -> dict[str, Any] | None:
    """The first of the first lines that is a JSON object."""
    lines = map(decoded, head.split(b"\n", SNIFFED_LINES)[:SNIFFED_LINES])
    return next((item for item in lines if isinstance(item, dict)), None)


def decoded(text: bytes) -> Any:
    """A JSON value, None for what is none."""
    try:
        return msgspec.json.decode(text)
    except UNDECODABLE:
        return None


def cut(blocks: Iterator[bytes | None]) -> Iterator[bytes | None]:
    """A line for each value in `blocks`, as many at a time as a block has."""
    rest = b""
    for block in blocks:
        if block is None:
            yield None
            return
        values, rest = split(rest + block, whole=False)
        if len(rest) > VALUE_BYTES:
            values, rest = [*values, rest.translate(BREAKS)], b""
        if values:
            yield b"\n".join(values) + b"\n"
    values, _ = split(rest, whole=True)
    if values:
        yield b"\n".join(values) + b"\n"


def split(data: bytes, *, whole: bool) -> tuple[list[bytes], bytes]:
    """(the values in `data`, the rest in which one has begun that does not end); no rest where the data are `whole`.

    Brackets of arrays around values are left out, and so are the commas between them.
    """
    values = array_at_once(data)
    if values is not None:
        return values, b""
    values = []
    text = data.decode("latin-1")
    place = after(BETWEEN, text, 0)
    while place < len(text):
        end = end_of_object(text, place) if text[place] == "{" else after(WORD, text, place) or place + 1
        if end is None or (end == len(text) and text[place] != "{" and not whole):
            return ([*values, data[place:].translate(BREAKS)], b"") if whole else (values, data[place:])
        values.append(data[place:end].translate(BREAKS))
        place = after(BETWEEN, text, end)
    return values, b""


def after(pattern: re.Pattern[str], text: str, place: int) -> int:
    """Where the match of `pattern` at `place` ends; 0 where there is none."""
    found = pattern.match(text, place)
    return found.end() if found else 0


def end_of_object(text: str, place: int) -> int | None:
    """Where the object that begins at `place` ends, whether or not it is good JSON; None where it does not."""
    try:
        return SCANNER.raw_decode(text, place)[1]
    except (ValueError, RecursionError):
        pass
    depth = 0
    while found := BRACKET.match(text, place):
        depth += 1 if found[1] in "{[" else -1
        place = found.end()
        if not depth:
            return place
    return None


def array_at_once(data: bytes) -> list[bytes] | None:
    """The items of a whole array of objects, which is much faster than token by token; None for anything else."""
    if not data.lstrip().startswith(b"["):
        return None
    try:
        items = msgspec.json.decode(data, type=list[msgspec.Raw])
    except UNDECODABLE:
        return None
    texts = [bytes(item).translate(BREAKS) for item in items]
    return texts if all(text.startswith(b"{") for text in texts) else None
