"""A trace: calls, and what is known of where they come from; and the Parquet file that holds both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from connectors.synthetic import Added
from replay.errors import BadConfig, BadInput
from replay.files import whole_file
from replay.ingest.report import Report
from replay.ingest.turns import Sessions
from replay.phases import Phase, detect
from trace_schema.check import check_calls
from trace_schema.columns import alike, is_empty
from trace_schema.fields import F64, I32, I64
from trace_schema.fold import ObservedClient

METADATA = b"replay.trace"
ROW_GROUP = 1 << 20
"""Rows that are written, and can be read, apart from others."""
WRITE_ROWS = 1 << 16
"""Rows that are encoded together."""
ENCODINGS = {
    F64: "BYTE_STREAM_SPLIT",
    I32: "DELTA_BINARY_PACKED",
    I64: "DELTA_BINARY_PACKED",
}
"""Of columns that seldom say the same twice; others are written by their dictionary."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace file says of itself, beside its calls."""

    report: Report | None = None
    client: ObservedClient = ObservedClient()
    phases: list[Phase] = []
    phase_rule: str = ""
    added: Added | None = None
    """What is in it that nobody observed."""
    sessions: Sessions | None = None
    """What became of the turns of sessions; null: they are as the log's reader gave them."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Calls (schema CALLS), and what is known of where they come from."""

    calls: pa.Table
    about: About
    attempts: pa.Table | None = None
    """The attempts with their calls, where a log was read and they were asked for: no trace file holds them."""

    @property
    def report(self) -> Report | None:
        return self.about.report

    @property
    def client(self) -> ObservedClient:
        return self.about.client

    @property
    def phases(self) -> list[Phase]:
        return self.about.phases


def write_trace(trace: Trace, path: str) -> None:
    """Write a trace as Parquet, whole or not at all. Raises BadConfig when `path` cannot be written.

    Columns that are null in every call are left out; whoever reads a trace knows them as unknown.
    """
    said = [name for name in trace.calls.column_names if not is_empty(trace.calls[name])]
    table = trace.calls.select(said).replace_schema_metadata({METADATA: msgspec.json.encode(trace.about)})
    encodings = {field.name: ENCODINGS[field.type] for field in table.schema if field.type in ENCODINGS}
    with whole_file(path) as file:
        pq.write_table(
            table,
            file,
            row_group_size=ROW_GROUP,
            compression="zstd",
            column_encoding=encodings,
            write_batch_size=WRITE_ROWS,
            use_dictionary=[name for name in said if name not in encodings],
        )


def write_attempts(trace: Trace, path: str, *, anonymous: bool = False) -> None:
    """Write the attempts of a trace that kept them. Raises BadConfig: it has none, or they would name who is hidden."""
    if anonymous:
        raise BadConfig("--attempts names requests and users: it cannot stand beside --anonymize")
    if trace.attempts is None:
        raise BadConfig("--attempts is for logs: a trace has no attempts any more")
    with whole_file(path) as file:
        pq.write_table(trace.attempts, file, compression="zstd")


def trace_in(path: str) -> Trace | None:
    """The trace that a Parquet file holds; None where it holds a log. Raises BadInput."""
    try:
        with pq.ParquetFile(path) as file:
            if "call_id" not in file.schema_arrow.names:
                return None
            metadata = (file.schema_arrow.metadata or {}).get(METADATA)
            table = lean_table(file, {} if metadata is None else constants(file.metadata))
    except (pa.ArrowException, OSError) as error:
        raise BadInput.at(path, f"cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    calls = check_calls(table, path)
    if metadata is None:
        phases, rule = detect(np.asarray(calls["arrival_s"]))
        return Trace(calls, About(phases=phases, phase_rule=rule))
    try:
        return Trace(calls, msgspec.json.decode(metadata, type=About))
    except msgspec.DecodeError as error:
        raise BadInput.at(path, f"its metadata was not written by this version: {error}") from error


def is_trace(path: str) -> bool:
    """Whether `write_trace` wrote a Parquet file."""
    try:
        return METADATA in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def constants(metadata: pq.FileMetaData) -> dict[str, Any]:
    """The columns of which the file's statistics tell that they say the same in every row, and what.

    Of files that `write_trace` wrote: others may shorten the texts of their statistics.
    """
    found: dict[str, set[Any]] = {}
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            said = column.statistics
            plain = said is not None and said.has_min_max and said.null_count == 0
            found.setdefault(column.path_in_schema, set()).update((said.min, said.max) if plain else (None, ""))
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def lean_table(file: pq.ParquetFile, known: Mapping[str, Any]) -> pa.Table:
    """The table in a file; columns whose one value is `known` are not read, and take no memory."""
    schema, count = file.schema_arrow, file.metadata.num_rows
    read = file.read([name for name in schema.names if name not in known])
    columns = [
        alike(known[field.name], field.type, count) if field.name in known else read[field.name] for field in schema
    ]
    return pa.Table.from_arrays(columns, names=schema.names)
