"""The Mooncake trace format: JSON lines of arrivals, lengths and prefix hashes.

Mooncake (FAST 2025, appendix A), https://github.com/kvcache-ai/Mooncake. Others write it too, with blocks of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from connectors.base import Batch, Dropped
from connectors.files import CUT_SHORT, first_object, json_blocks, one_by_one, reason_of
from connectors.rows import attempts_of

KEYS = ("timestamp", "input_length", "output_length")
SCHEMA = pa.schema([*((key, pa.float64()) for key in KEYS), ("hash_ids", pa.list_(pa.uint64()))])


class Line(msgspec.Struct, gc=False):
    """One request. Lengths are floats here, so that one which is no whole number can be named."""

    timestamp: float | None = None
    """Milliseconds from the start of the trace."""
    input_length: float | None = None
    output_length: float | None = None
    hash_ids: list[int] | None = None
    """A number for each block of the prompt, the last of which may be partial: equal where all up to its end is."""

    def __post_init__(self) -> None:
        if self.hash_ids and not (min(self.hash_ids) >= 0 and max(self.hash_ids) < 2**64):
            raise ValueError("hash_ids holds a number that is not one of 64 bits")


class Mooncake:
    class Options(msgspec.Struct, frozen=True):
        """What the file does not say."""

        hash_block_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 512
        """Prompt tokens behind each of hash_ids."""

    name = "mooncake"
    describes = "Mooncake's public traces, and others in their format, JSON lines: times, lengths, prefix hashes"

    def __init__(self, options: Options) -> None:
        self.options = options

    def sniff(self, head: bytes, path: str) -> float:
        first = first_object(head) or {}
        hashes = first.get("hash_ids", [])
        if not all(isinstance(first.get(key), int | float) for key in KEYS) or not isinstance(hashes, list):
            return 0.0
        return 1.0 if first.keys() <= {*KEYS, "hash_ids"} else 0.4

    def read(self, path: str) -> Iterator[Batch]:
        first = 1
        for block in json_blocks(path):
            dropped = Dropped()
            if block is None:
                dropped.add(CUT_SHORT, first)
                yield self.batch(SCHEMA.empty_table(), np.zeros(0, np.int64), path, dropped)
                return
            count = block.count(b"\n") + (not block.endswith(b"\n"))
            table = table_of(block)
            rows = np.arange(first, first + count)
            if table is None or table.num_rows != count:
                lines, numbers = one_by_one(block.split(b"\n"), first, DECODER, reason_of, dropped)
                table, rows = as_table(lines), np.asarray(numbers, np.int64)
            yield self.batch(table, rows, path, dropped)
            first += count

    def batch(self, table: pa.Table, rows: np.ndarray[Any, np.dtype[np.int64]], path: str, dropped: Dropped) -> Batch:
        """The attempts of some lines; those whose hashes cannot be of blocks of this size are dropped."""
        size = self.options.hash_block_tokens
        blocks_of_prompt = pc.divide(table["input_length"], float(size))
        hashes = pc.list_value_length(table["hash_ids"])
        fewer, more = pc.less(hashes, pc.floor(blocks_of_prompt)), pc.greater(hashes, pc.ceil(blocks_of_prompt))
        wrong = np.asarray(pc.fill_null(pc.and_(pc.greater(blocks_of_prompt, 0), pc.or_(fewer, more)), False))
        if wrong.any():
            reason = f"hash_ids are not as many as the prompt has blocks of {size} tokens (--option hash_block_tokens)"
            dropped.add_all(reason, rows[wrong])
            table, rows = table.filter(pa.array(~wrong)), rows[~wrong]
        lists = table["hash_ids"].combine_chunks()
        columns = {
            "arrival_s": pc.divide(table["timestamp"], 1000.0).combine_chunks(),
            "prompt_tokens": table["input_length"].combine_chunks(),
            "output_tokens": table["output_length"].combine_chunks(),
            "block_hashes": lists,
            "hash_block_tokens": pc.if_else(pc.is_valid(lists), size, pa.scalar(None, pa.int32())),
        }
        return attempts_of(columns, rows, source_format=self.name, source_file=path, dropped=dropped)


DECODER = msgspec.json.Decoder(Line)


def table_of(block: bytes) -> pa.Table | None:
    """The lines of a block as a table, if all are as they should be."""
    from pyarrow import json

    try:
        return json.read_json(
            pa.BufferReader(block),
            json.ReadOptions(use_threads=False, block_size=len(block)),
            json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowException:
        return None


def as_table(lines: list[Line]) -> pa.Table:
    return pa.table({name: [getattr(line, name) for line in lines] for name in SCHEMA.names}, SCHEMA)
