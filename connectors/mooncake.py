"""The Mooncake trace format: JSON lines of arrivals, lengths and prefix hashes.

Mooncake (FAST 2025, appendix A), https://github.com/kvcache-ai/Mooncake. Others write it too, with blocks of their own,
and AIPerf and Dynamo with sessions, whose later turns have a delay in place of a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from connectors.base import Batch, Dropped
from connectors.files import first_object
from connectors.prefixes import misfits
from connectors.rows import attempts_of
from connectors.sessions import Pace, Turns, paced
from connectors.typed_lines import Rows, tables

TIMES = ("timestamp", "delay", "delay_ms")
LENGTHS = ("input_length", "output_length")
OTHERS = {"request_id", "priority", "strict_priority", "policy_class", "extra", "type"}
"""Keys that AIPerf and Dynamo may add, and that say nothing of when and how long."""
SCHEMA = pa.schema(
    [
        *((key, pa.float64()) for key in (*TIMES, *LENGTHS)),
        ("hash_ids", pa.list_(pa.uint64())),
        ("session_id", pa.string()),
    ]
)


class Line(msgspec.Struct, gc=False):
    """One request. Lengths are floats here, so that one which is no whole number can be named."""

    timestamp: float | None = None
    """Milliseconds from the start of the trace."""
    delay: float | None = None
    """Milliseconds from the end of the session's turn before, where there is no timestamp."""
    delay_ms: float | None = None
    """The same."""
    input_length: float | None = None
    output_length: float | None = None
    hash_ids: list[int] | None = None
    """A number for each block of the prompt, the last of which may be partial: equal where all up to its end is."""
    session_id: str | None = None

    def __post_init__(self) -> None:
        if self.hash_ids and not (min(self.hash_ids) >= 0 and max(self.hash_ids) < 2**64):
            raise ValueError("hash_ids holds a number that is not one of 64 bits")


class Mooncake:
    class Options(Pace, frozen=True, kw_only=True):
        """What the file does not say."""

        hash_block_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 512
        """Prompt tokens behind each of hash_ids."""

    name = "mooncake"
    describes = "Mooncake's public traces, and others in their format, JSON lines: times, lengths, prefix hashes"

    def __init__(self, options: Options) -> None:
        self.options = options

    def sniff(self, head: bytes, path: str) -> float:
        first = first_object(head) or {}
        timed = any(isinstance(first.get(key), int | float) for key in TIMES)
        measured = all(isinstance(first.get(key), int | float) for key in LENGTHS)
        if not timed or not measured or not isinstance(first.get("hash_ids", []), list):
            return 0.0
        return 1.0 if first.keys() <= {*SCHEMA.names, *OTHERS} else 0.4

    def read(self, path: str) -> Iterator[Batch]:
        turns = Turns(self.options)
        for table, rows, dropped in tables(path, SCHEMA, Line):
            yield self.batch(table, rows, path, dropped, turns)

    def batch(self, table: pa.Table, rows: Rows, path: str, dropped: Dropped, turns: Turns) -> Batch:
        """The attempts of some lines; those whose hashes cannot be of blocks of this size are dropped."""
        size = self.options.hash_block_tokens
        wrong = misfits(table["input_length"], table["hash_ids"], size)
        if wrong.any():
            reason = f"hash_ids are not as many as the prompt has blocks of {size} tokens (--option hash_block_tokens)"
            dropped.add_all(reason, rows[wrong])
            table, rows = table.filter(pa.array(~wrong)), rows[~wrong]
        lists = table["hash_ids"].combine_chunks()
        columns = {
            "arrival_s": arrivals(table, turns),
            "prompt_tokens": table["input_length"].combine_chunks(),
            "output_tokens": table["output_length"].combine_chunks(),
            "block_hashes": lists,
            "hash_block_tokens": pc.if_else(pc.is_valid(lists), size, pa.scalar(None, pa.int32())),
            "session_id": table["session_id"].combine_chunks(),
        }
        return attempts_of(columns, rows, source_format=self.name, source_file=path, dropped=dropped)

    def notes(self, attempts: pa.Table) -> list[str]:
        """What sessions cannot show."""
        return [paced(self.options)] if attempts["session_id"].null_count < attempts.num_rows else []


def arrivals(table: pa.Table, turns: Turns) -> pa.Array:
    """Seconds: the timestamp, or so long after the session's turn before ended as the delay says."""
    logged = pc.divide(table["timestamp"], 1000.0).combine_chunks()
    if table["session_id"].null_count == table.num_rows:
        return logged
    waits = pc.divide(pc.coalesce(table["delay"], table["delay_ms"]), 1000.0)
    known = (table["session_id"], logged, waits, table["output_length"])
    return pa.array(turns.arrivals(*(column.to_pylist() for column in known)), pa.float64())
