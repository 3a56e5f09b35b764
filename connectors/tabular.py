"""Plain CSV, Parquet and JSON lines whose columns carry ATTEMPTS names, or are mapped to them by the user."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from connectors.base import Batch, Dropped
from connectors.files import CUT_SHORT, lines, open_bytes
from connectors.rows import attempts_of
from trace_schema.attempts import ATTEMPTS
from trace_schema.errors import BadConfig, BadInput, UnknownName

BATCH_ROWS = 100_000
NEEDED = ("arrival_s", "prompt_tokens")


class Tabular:
    """What the three file kinds share: which column is which field."""

    name = ""
    describes = ""

    def __init__(self, mapping: Mapping[str, str] | None = None) -> None:
        self.mapping = dict(mapping or {})
        for field in self.mapping:
            if field not in ATTEMPTS.names:
                raise BadConfig(f"--map {field}=...: {UnknownName.of('field', field, ATTEMPTS.names)}")

    def sources(self, columns: list[str], path: str) -> dict[str, str]:
        """Source column by ATTEMPTS field. Raises BadInput when a column is not there, or none says the time."""
        fields = {name: name for name in columns if name in ATTEMPTS.names}
        for field, column in self.mapping.items():
            if column.split(".")[0] not in columns and column not in columns:
                raise BadInput.at(path, str(UnknownName.of("column", column, columns)))
            fields[field] = column
        missing = [name for name in NEEDED if name not in fields]
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
        return 0.9 if all(name in known for name in NEEDED) else 0.1

    def batch(self, table: pa.Table, first_row: int, path: str, dropped: Dropped) -> Batch:
        fields = self.sources(table.column_names, path)
        columns = {field: table[column].combine_chunks() for field, column in fields.items()}
        rows = np.arange(first_row, first_row + table.num_rows)
        return attempts_of(columns, rows, source_format=self.name, source_file=path, dropped=dropped)


class Csv(Tabular):
    name = "csv"
    describes = "CSV with a header line; columns named as in docs/schema.md, or given with --map"

    def sniff(self, head: bytes, path: str) -> float:
        first = head.split(b"\n", 1)[0]
        if b"," not in first or b"\x00" in head or first.lstrip()[:1] in (b"{", b"["):
            return 0.0
        names = first.decode("utf-8", "replace").strip().removeprefix("\ufeff").split(",")
        return self.columns_known([name.strip('" ') for name in names])

    def read(self, path: str) -> Iterator[Batch]:
        from pyarrow import csv

        dropped = Dropped()

        def skip(row: csv.InvalidRow) -> str:
            dropped.add(f"has {row.actual_columns} columns instead of {row.expected_columns}", row.number or 0)
            return "skip"

        with open_bytes(path) as file:
            try:
                names = csv.open_csv(
                    file, parse_options=csv.ParseOptions(invalid_row_handler=lambda _: "skip")
                ).schema.names
            except (pa.ArrowInvalid, OSError, EOFError, zlib.error) as error:
                raise BadInput.at(path, f"cannot be read as CSV: {error}") from error
        self.sources(names, path)
        with open_bytes(path) as file:
            reader = csv.open_csv(
                file,
                read_options=csv.ReadOptions(use_threads=False),
                parse_options=csv.ParseOptions(invalid_row_handler=skip),
                convert_options=csv.ConvertOptions(
                    column_types={n: pa.string() for n in names}, strings_can_be_null=True
                ),
            )
            row = 2
            while True:
                try:
                    table = pa.Table.from_batches([reader.read_next_batch()])
                except StopIteration:
                    break
                except (pa.ArrowInvalid, OSError, EOFError, zlib.error):
                    dropped.add(CUT_SHORT, row)
                    break
                yield self.batch(table, row, path, Dropped())
                row += table.num_rows
        yield self.batch(pa.table({n: pa.array([], pa.string()) for n in names}), row, path, dropped)


class Parquet(Tabular):
    name = "parquet"
    describes = "Parquet; columns named as in docs/schema.md, or given with --map"

    def sniff(self, head: bytes, path: str) -> float:
        return 0.9 if head.startswith(b"PAR1") else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        from pyarrow import parquet

        try:
            file = parquet.ParquetFile(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise BadInput.at(path, f"cannot be read as Parquet: {str(error).splitlines()[0]}") from error
        self.sources(file.schema_arrow.names, path)
        row = 1
        for part in file.iter_batches(BATCH_ROWS):
            yield self.batch(pa.Table.from_batches([part]), row, path, Dropped())
            row += part.num_rows


class JsonLines(Tabular):
    name = "jsonl"
    describes = "JSON lines; keys named as in docs/schema.md, or given with --map (usage.in reaches into objects)"

    def sniff(self, head: bytes, path: str) -> float:
        try:
            first = msgspec.json.decode(head.split(b"\n", 1)[0].removeprefix(b"\xef\xbb\xbf"))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return 0.0
        return self.columns_known(list(first)) - 0.05 if isinstance(first, dict) else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        objects: list[dict[str, Any]] = []
        rows: list[int] = []
        dropped = Dropped()
        for number, line in lines(path):
            if line is None:
                dropped.add(CUT_SHORT, number)
                break
            try:
                objects.append(decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError):
                dropped.add("not a JSON object (cut short, or not text)", number)
                continue
            rows.append(number)
            if len(objects) == BATCH_ROWS:
                yield self.attempts(objects, rows, path, dropped)
                objects, rows, dropped = [], [], Dropped()
        yield self.attempts(objects, rows, path, dropped)

    def attempts(self, objects: list[dict[str, Any]], rows: list[int], path: str, dropped: Dropped) -> Batch:
        keys = list(dict.fromkeys(key for item in objects for key in item))
        fields = self.sources(keys, path) if objects else {}
        columns = {field: [reach(item, source) for item in objects] for field, source in fields.items()}
        return attempts_of(
            columns, np.asarray(rows, np.int64), source_format=self.name, source_file=path, dropped=dropped
        )


def reach(item: dict[str, Any], path: str) -> Any:
    """`item["a.b"]`, or `item["a"]["b"]`; None where it is not."""
    if path in item:
        return item[path]
    value: Any = item
    for key in path.split("."):
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return value
