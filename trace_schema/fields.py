"""The vocabulary of a schema: a field is a name, an Arrow type, a unit, a nullability and one sentence."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pyarrow as pa

F64, I64, I32, BOOL, TEXT = pa.float64(), pa.int64(), pa.int32(), pa.bool_(), pa.string()
NAME = pa.dictionary(pa.int8(), pa.string())
"""One of a few words."""


@dataclass(frozen=True, slots=True)
class Field:
    """One column. `unit` is "s", "ns", "tokens", "blocks", "bytes", "count", "id", "name" or "" where none applies."""

    name: str
    type: pa.DataType
    unit: str
    nullable: bool
    doc: str


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A named table: its fields in order, and what one row is."""

    name: str
    row: str
    fields: tuple[Field, ...]

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema; each field carries its unit and sentence as metadata."""
        return arrow_schema(self.fields)

    @property
    def names(self) -> list[str]:
        return [f.name for f in self.fields]

    def field(self, name: str) -> Field:
        """The field called `name`; KeyError when there is none."""
        for f in self.fields:
            if f.name == name:
                return f
        raise KeyError(name)


@functools.cache
def arrow_schema(fields: tuple[Field, ...]) -> pa.Schema:
    return pa.schema(
        [pa.field(f.name, f.type, nullable=f.nullable, metadata={"unit": f.unit, "doc": f.doc}) for f in fields]
    )


def required(name: str, type: pa.DataType, unit: str, doc: str) -> Field:
    """A field that every row has."""
    return Field(name, type, unit, False, doc)


def optional(name: str, type: pa.DataType, unit: str, doc: str) -> Field:
    """A field whose null means unknown (in a trace) or did not happen (in a result), never 0."""
    return Field(name, type, unit, True, doc)
