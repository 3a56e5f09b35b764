"""Logs of JSON records: what their connectors share."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, ClassVar, cast

import msgspec
import numpy as np
import pyarrow as pa

from connectors.advice import lacking
from connectors.base import Batch, Dropped
from connectors.files import SNIFFED_LINES, UNDECODABLE, first_object, head, objects, reason_of
from connectors.json_values import decoded
from connectors.rows import NEEDED, attempts_of

Record = dict[str, Any]
Attempt = dict[str, Any]
"""Values by name of ATTEMPTS; absent is unknown."""
NOTHING = (None, "", "-", "None", "null")
"""What logs write where they have nothing to say."""
PLANS_MOST = 1000
PREFIX_MOST = 200
"""Bytes that may stand before a record in its line: a time, the name of a container."""


class Freed:
    """A decoder of JSON lines as containers pass them on: with words before the object, or in an object of Docker's."""

    def __init__(self) -> None:
        self.decoder = msgspec.json.Decoder(Record)

    def decode_lines(self, block: bytes) -> list[Record]:
        found = self.decoder.decode_lines(block)
        return [freed(record) for record in found] if found and "log" in found[0] else found

    def decode(self, line: bytes) -> Record:
        try:
            return freed(self.decoder.decode(line))
        except UNDECODABLE:
            start = line.find(b"{")
            if not 0 < start <= PREFIX_MOST:
                raise
            return self.decoder.decode(line[start:])


def freed(record: Record) -> Record:
    """The record that Docker's json-file has as a text, or the record itself."""
    inner = record.get("log")
    if not isinstance(inner, str) or not inner.startswith("{"):
        return record
    found = decoded(inner.encode("utf-8", "surrogatepass"))
    return found if isinstance(found, dict) else record


def first_record(head: bytes) -> Record | None:
    """The first record that a file begins with, whatever stands around it."""
    if (found := first_object(head)) is not None:
        return freed(found)
    for line in head.split(b"\n", SNIFFED_LINES)[:SNIFFED_LINES]:
        start = line.find(b"{")
        if 0 < start <= PREFIX_MOST and isinstance(found := decoded(line[start:]), dict):
            return found
    return None


class RecordLog:
    """A log of JSON records, one for each request."""

    name = ""
    describes = ""
    needed: tuple[str, ...] = NEEDED
    """Fields without which a record is no attempt."""
    lacks: ClassVar[Mapping[str, str]] = {}
    """By field of ATTEMPTS: what a log without it cannot show, and what would write it."""

    def attempt(self, record: Record) -> Attempt | str:
        """What a record says, or why it is no attempt."""
        raise NotImplementedError

    def unwrap(self, record: Record) -> list[Record]:
        """The records that one JSON object of the file holds."""
        return [record]

    def read(self, path: str) -> Iterator[Batch]:
        for found, rows, dropped in self.records(path):
            yield self.batch(map(self.attempt, found), rows, dropped, path)

    def records(self, path: str) -> Iterator[tuple[list[Record], list[int], Dropped]]:
        """(records, their rows, what is none), many at a time. Where objects hold several, the k-th record is row k."""
        first = first_record(head(path))
        parts = objects(path, cast(Any, Freed()), reason_of)
        if first is None or self.unwrap(first) == [first]:
            yield from parts
            return
        last = 0
        for found, _, dropped in parts:
            inner = list(chain.from_iterable(map(self.unwrap, found)))
            yield inner, list(range(last + 1, last + 1 + len(inner))), dropped
            last += len(inner)

    def notes(self, attempts: pa.Table) -> list[str]:
        """What the log cannot show, and how it is made to."""
        return lacking(attempts, self.lacks)

    def batch(self, found: Iterable[Attempt | str], rows: Iterable[int], dropped: Dropped, path: str) -> Batch:
        """Attempts as a batch; texts are why the rows in their place are dropped."""
        attempts, kept = [], []
        for attempt, row in zip(found, rows, strict=True):
            if isinstance(attempt, str):
                dropped.add(attempt, row)
            else:
                attempts.append(attempt)
                kept.append(row)
        names = dict.fromkeys(chain.from_iterable(attempts))
        columns = {name: [attempt.get(name) for attempt in attempts] for name in names}
        places = np.asarray(kept, np.int64)
        return attempts_of(
            columns, places, source_format=self.name, source_file=path, dropped=dropped, needed=self.needed
        )


def within(record: Any, *keys: str) -> Any:
    """`record[a][b]`; None where it is not."""
    for key in keys:
        if not isinstance(record, dict):
            return None
        record = record.get(key)
    return record


@functools.lru_cache(maxsize=4096)
def plain(key: str) -> str:
    """A key without case and separators."""
    return "".join(c for c in key if c.isalnum()).lower()


class Vocabulary:
    """The names of what a record may say, and the keys that say it: without case and separators, the best first."""

    def __init__(self, keys: Mapping[str, tuple[str, ...]]) -> None:
        self.keys = keys
        self.nothing = dict.fromkeys(keys)
        self.plans: dict[tuple[str, ...], list[tuple[str, list[str]]]] = {}

    def plan(self, record: Record) -> list[tuple[str, list[str]]]:
        """The record's own keys for each name; records of one log have few sets of keys."""
        own = tuple(record)
        if (found := self.plans.get(own)) is None:
            places = {plain(key): key for key in own}
            known = ((name, [places[key] for key in keys if key in places]) for name, keys in self.keys.items())
            found = [(name, keys) for name, keys in known if keys]
            if len(self.plans) == PLANS_MOST:
                self.plans.clear()
            self.plans[own] = found
        return found

    def said(self, record: Record) -> dict[str, Any]:
        """What a record says, by name; None where it says nothing."""
        found = self.nothing.copy()
        for name, keys in self.plan(record):
            for key in keys:
                if (value := record[key]) is not None and not (value.__class__ is str and value in NOTHING):
                    found[name] = value
                    break
        return found


def number(value: Any) -> float | None:
    """A finite number, also one in a text; None for anything else."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def scaled(value: Any, factor: float) -> Any:
    """A number times `factor`; what is none stays as it is, so that its row can be named."""
    known = number(value)
    return (None if value in NOTHING else value) if known is None else known * factor


def text(value: Any) -> str | None:
    """A text or a number as a text; None for what says nothing, and for objects."""
    if value.__class__ is str:
        return None if value in NOTHING else str(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value in NOTHING:
        return None
    return str(value)


def positive(value: Any) -> Any:
    """A count; none where it is 0, which logs write when nothing was counted."""
    return None if value in NOTHING or number(value) == 0 else value


def amount(value: Any) -> float | None:
    """A number that is not negative; None for anything else, where a row is good without it."""
    known = number(value)
    return known if known is not None and known >= 0 else None


def bytes_of(value: Any) -> int | None:
    """A number of bytes; None for anything else."""
    known = amount(value)
    return None if known is None or known > 2**53 else int(known)


def code_of(value: Any) -> int | None:
    """An HTTP status code; None where there is none, or no response was begun."""
    known = number(value)
    return int(known) if known is not None and 100 <= known < 1000 else None


def extras(**values: Any) -> list[tuple[str, str]] | None:
    """The values that are known, for the field `extra`."""
    known = [(key, found) for key, value in values.items() if (found := text(value)) is not None]
    return known or None
