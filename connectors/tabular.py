"""Plain CSV, Parquet and JSON lines whose columns carry ATTEMPTS names, or are mapped to them by the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import Batch, Dropped
from connectors.delimited import NUMBERS, TEXTS, TIMES, layout_of, names_in, reason, tables
from connectors.files import first_object, objects, reason_of
from connectors.rows import attempts_of
from trace_schema.attempts import ATTEMPTS
from trace_schema.errors import BadConfig, BadInput, UnknownName

BATCH_ROWS = 100_000
TIME, PROMPT, BYTES = "arrival_s", "prompt_tokens", "request_bytes"
LENGTHS = (PROMPT, BYTES, "source_request_id", "trace_id")
"""What tells how long a prompt is: itself, or its bytes, or an id under which another log knows it."""
READERS_OWN = ("source_format", "source_file", "source_row", "arrival_unix_ns", "time_resolution_s", "extra")
"""Fields that say how a row was read, or follow from others: a file's columns of these names are left alone."""
FIELDS = [name for name in ATTEMPTS.names if name not in READERS_OWN]


Rows = np.ndarray[Any, np.dtype[np.int64]]


class Tabular:
    """What the three file kinds share: which column is which field."""

    name = ""
    describes = ""
    nested = False
    """A column's name may be a path into objects."""

    def __init__(self, mapping: Mapping[str, str] | None = None) -> None:
        self.mapping = dict(mapping or {})
        for field in self.mapping:
            if field not in FIELDS:
                raise BadConfig(f"--map {field}=...: {UnknownName.of('field', field, FIELDS)}")

    def sources(self, columns: list[str], path: str) -> dict[str, str]:
        """Source column by ATTEMPTS field. Raises BadInput when a column is not there, or none says the time."""
        fields = {name: name for name in columns if name in FIELDS} | self.mapping
        for column in fields.values():
            if column not in columns and not (self.nested and column.split(".")[0] in columns):
                raise BadInput.at(path, str(UnknownName.of("column", column, columns)))
            if columns.count(column) > 1:
                raise BadInput.at(path, f"more than one column is called {column!r}; rename them")
        missing = [] if TIME in fields else [TIME]
        missing += [] if any(name in fields for name in LENGTHS) else [PROMPT]
        if missing:
            raise BadInput.at(
                path,
                f"no column for {' and '.join(missing)}; name it with --map {missing[0]}=COLUMN "
                f"(columns: {', '.join(columns[:20])})",
            )
        return fields

    def columns_known(self, columns: list[str]) -> float:
        """How sure it is of a file with these columns."""
        known = {*self.mapping, *columns}
        return 0.9 if TIME in known and any(name in known for name in LENGTHS) else 0.1

    def batch(self, table: pa.Table, fields: Mapping[str, str], rows: Rows, path: str, dropped: Dropped) -> Batch:
        columns = self.columns({field: table[column].combine_chunks() for field, column in fields.items()})
        return self.attempts(columns, rows, path, dropped)

    def attempts(self, columns: Mapping[str, Any], rows: Rows, path: str, dropped: Dropped) -> Batch:
        """Rows without a length are dropped where nothing else could tell it."""
        needed = (TIME, PROMPT) if PROMPT in columns and BYTES not in columns else (TIME,)
        return attempts_of(columns, rows, source_format=self.name, source_file=path, dropped=dropped, needed=needed)

    def columns(self, found: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """What the file's columns, by field, say in the words of ATTEMPTS."""
        return found


class Csv(Tabular):
    name = "csv"
    describes = "CSV with a header line; columns named as in docs/schema.md, or given with --map"

    def sniff(self, head: bytes, path: str) -> float:
        names = names_in(head)
        return self.columns_known(names) if names else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        layout = layout_of(path)
        fields = self.sources(layout.names, path)
        for table, rows, dropped in tables(path, layout, types_of(fields)):
            yield self.batch(table, fields, rows, path, dropped)


def types_of(fields: Mapping[str, str]) -> dict[str, Sequence[pa.DataType]]:
    """By column, the types that it may be read as; as text where fields of several kinds are read from it."""
    types: dict[str, Sequence[pa.DataType]] = {}
    for name, column in fields.items():
        type = ATTEMPTS.field(name).type
        numeric = NUMBERS if pa.types.is_integer(type) or pa.types.is_floating(type) else TEXTS
        kind = TIMES if name == "arrival_s" else numeric
        types[column] = kind if types.get(column, kind) == kind else TEXTS
    return types


class NamedCsv(Csv):
    """A CSV of one kind, whose columns are known by name, in whatever order and with whatever others."""

    needed: ClassVar[Mapping[str, str]]
    """Column by field of ATTEMPTS."""
    optional: ClassVar[Mapping[str, str]]

    def sniff(self, head: bytes, path: str) -> float:
        return 1.0 if set(self.needed.values()) <= set(names_in(head)) else 0.0

    def sources(self, columns: list[str], path: str) -> dict[str, str]:
        missing = [name for name in self.needed.values() if columns.count(name) != 1]
        if missing:
            found = ", ".join(columns[:20])
            raise BadInput.at(
                path, f"is no {self.name} log: one column must be called {missing[0]!r} (columns: {found})"
            )
        there = {field: column for field, column in self.optional.items() if columns.count(column) == 1}
        return {**self.needed, **there}


class Parquet(Tabular):
    name = "parquet"
    describes = "Parquet; columns named as in docs/schema.md, or given with --map (usage.in reaches into objects)"

    nested = True

    def sniff(self, head: bytes, path: str) -> float:
        return 0.9 if head.startswith(b"PAR1") else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        from pyarrow import parquet

        first = 1
        try:
            file = parquet.ParquetFile(path)
            fields = self.sources(file.schema_arrow.names, path)
            columns = list(dict.fromkeys(fields.values()))
            for part in file.iter_batches(BATCH_ROWS, columns=columns):
                rows = np.arange(first, first + part.num_rows)
                table = pa.table({column: within(part, column, path) for column in columns})
                yield self.batch(table, fields, rows, path, Dropped())
                first += part.num_rows
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise BadInput.at(path, f"cannot be read as Parquet: {reason(error)}") from error


def within(part: pa.RecordBatch, column: str, path: str) -> pa.Array:
    """A column, or what a path leads to in one of objects. Raises BadInput."""
    if column in part.schema.names:
        return part[column]
    first, *keys = column.split(".")
    try:
        return pc.struct_field(part[first], keys)
    except (KeyError, pa.ArrowInvalid) as error:
        raise BadInput.at(path, f"column {first!r} has no {'.'.join(keys)!r} in it") from error


class JsonLines(Tabular):
    name = "jsonl"
    describes = "JSON lines; keys named as in docs/schema.md, or given with --map (usage.in reaches into objects)"

    nested = True

    def sniff(self, head: bytes, path: str) -> float:
        first = first_object(head)
        return self.columns_known(list(first)) - 0.05 if first else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        fields: dict[str, str] = {}
        decoder = msgspec.json.Decoder(dict[str, Any])
        for items, rows, dropped in objects(path, decoder, reason_of):
            keys = list(dict.fromkeys(key for item in items for key in item))
            if items and not fields:
                fields = self.sources(keys, path)
            fields = {key: key for key in keys if key in FIELDS} | fields
            columns = {field: [reach(item, source) for item in items] for field, source in fields.items()}
            places = np.asarray(rows, np.int64)
            yield self.attempts(columns, places, path, dropped)


def reach(item: dict[str, Any], path: str) -> Any:
    """`item["a.b"]`, or `item["a"]["b"]`, where a number leads to the n-th of a list; None where it is not."""
    if path in item:
        return item[path]
    value: Any = item
    for key in path.split("."):
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value
