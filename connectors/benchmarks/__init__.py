"""Results of benchmark tools: traces of what they sent, and measurements of the engine that they sent it to.

A benchmark file has one reader, a connector that says, beside its rows, what the file knows of the engine.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec
import numpy as np

from connectors.base import Batch, Connector, Dropped
from connectors.files import CUT_SHORT, UNDECODABLE, blocks
from connectors.rows import attempts_of
from trace_schema.errors import BadInput

BATCH_ROWS = 100_000

Document = TypeVar("Document")
Column = Sequence[Any]


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What a benchmark file says of the engine that it measured; null or empty where it says nothing."""

    model: str | None = None
    gpu: str | None = None
    tp: int | None = None
    dtype: str | None = None
    engine: str | None = None
    """Name and version, as in "vllm 0.19.0"."""
    settings: dict[str, Any] = {}
    """Of the engine's scheduler, by the names of `EngineSettings`."""


@runtime_checkable
class Benchmark(Connector, Protocol):
    """A connector whose file was written by a tool that measures an engine."""

    def served(self, path: str) -> Served:
        """What the file, or one that the tool wrote beside it, says of the engine. Raises BadInput."""
        ...


def documents(path: str, kind: type[Document]) -> list[Document]:
    """The JSON documents in a file: one, or one after the other as when a tool appends to its result.

    NaN and Infinity, which Python writes although JSON has neither, count as null. Raises BadInput.
    """
    parts = list(blocks(path))
    if None in parts:
        raise BadInput.at(path, CUT_SHORT)
    data = b"".join(part for part in parts if part is not None)
    if not data.strip():
        raise BadInput.at(path, "holds nothing")
    try:
        return decoded(data, kind)
    except UNDECODABLE as error:
        if isinstance(error, msgspec.ValidationError):
            raise BadInput.at(path, f"is not as its tool writes it: {error}") from error
        problem = str(error)
    try:
        return [document for text in texts(data.decode()) for document in decoded(plain_json(text), kind)]
    except msgspec.ValidationError as error:
        raise BadInput.at(path, f"is not as its tool writes it: {error}") from error
    except (ValueError, RecursionError):
        raise BadInput.at(path, f"is not whole JSON (cut short?): {problem}") from None


def decoded(data: bytes, kind: type[Document]) -> list[Document]:
    """One document, or one a line."""
    try:
        return [msgspec.json.decode(data, type=kind)]
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.json.Decoder(kind).decode_lines(data)


def texts(text: str) -> Iterator[Any]:
    """The values of JSON texts that follow each other, with null for NaN and Infinity. Raises ValueError."""
    decoder = json.JSONDecoder(parse_constant=lambda _: None)
    end, space = 0, re.compile(r"\s*")
    while (start := space.match(text, end).end()) < len(text):  # type: ignore[union-attr]
        value, end = decoder.raw_decode(text, start)
        yield value


def plain_json(value: Any) -> bytes:
    """A value as JSON."""
    return msgspec.json.encode(value)


def batches(columns: Mapping[str, Column], count: int, *, source_format: str, path: str) -> Iterator[Batch]:
    """Attempts from `count` rows of columns by ATTEMPTS name, numbered from 1 as they stand in the file."""
    for start in range(0, count, BATCH_ROWS):
        rows = np.arange(start + 1, min(start + BATCH_ROWS, count) + 1)
        part = {name: values[start : start + BATCH_ROWS] for name, values in columns.items()}
        yield attempts_of(part, rows, source_format=source_format, source_file=path, dropped=Dropped())


def number(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def difference(later: Any, earlier: Any) -> float | None:
    """later - earlier where both are numbers."""
    a, b = number(later), number(earlier)
    return None if a is None or b is None else a - b


def scaled(value: Any, factor: float) -> Any:
    """A number times `factor`; what is none stays as it is, so that its row can be named."""
    known = number(value)
    return value if known is None else known * factor


def first_known(*values: Any) -> Any:
    """The first value that is not null."""
    return next((value for value in values if value is not None), None)
