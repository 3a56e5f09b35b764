"""Traces of Qwen models on Alibaba's Bailian: JSON lines of chats, their turns, lengths and prefix hashes.

KVCache Cache in the Wild (ATC 2025), https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon. Traps: seconds where
Mooncake has milliseconds; `input_length` is the whole prompt, with the history; each hash is of its block alone, so
that blocks are the same only where all before them are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from connectors.base import Batch, Dropped
from connectors.files import first_object
from connectors.prefixes import chained, misfits
from connectors.rows import attempts_of
from connectors.typed_lines import Rows, tables

KEYS = ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length")
NO_PARENT = -1
SLACK = 1
"""Blocks: hashes are of what the cache held, which differs from the prompt by padding and by its template's tokens."""
SCHEMA = pa.schema(
    [
        ("chat_id", pa.int64()),
        ("parent_chat_id", pa.int64()),
        *((key, pa.float64()) for key in ("timestamp", "input_length", "output_length", "turn")),
        ("type", pa.string()),
        ("hash_ids", pa.list_(pa.uint64())),
    ]
)


Id = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Line(msgspec.Struct, gc=False):
    """One request."""

    chat_id: Id | None = None
    parent_chat_id: Id | None = None
    """The chat that it goes on with; -1 for the first of a session."""
    timestamp: float | None = None
    """Seconds from the start of the trace."""
    input_length: float | None = None
    output_length: float | None = None
    turn: float | None = None
    """From 1."""
    type: str | None = None
    """text, search, image, file or thinking."""
    hash_ids: list[int] | None = None
    """A number for each block of the prompt, the last of which may be partial: equal where its tokens are."""

    def __post_init__(self) -> None:
        if self.hash_ids and not (min(self.hash_ids) >= 0 and max(self.hash_ids) < 2**64):
            raise ValueError("hash_ids holds a number that is not one of 64 bits")


class QwenBailian:
    class Options(msgspec.Struct, frozen=True):
        """What the file's name says, and the file does not."""

        hash_block_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 16
        """Prompt tokens behind each of hash_ids."""

    name = "qwen_bailian"
    describes = "Alibaba's traces of Qwen on Bailian, JSON lines: times, lengths, sessions, prefix hashes"

    def __init__(self, options: Options) -> None:
        self.options = options

    def sniff(self, head: bytes, path: str) -> float:
        first = first_object(head) or {}
        return 1.0 if all(isinstance(first.get(key), int | float) for key in KEYS) else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        roots: dict[int, int] = {}
        for table, rows, dropped in tables(path, SCHEMA, Line):
            yield self.batch(table, rows, path, dropped, roots)

    def batch(self, table: pa.Table, rows: Rows, path: str, dropped: Dropped, roots: dict[int, int]) -> Batch:
        """The attempts of some lines; `roots` knows the first chat of each chat's session, and learns of these."""
        size = self.options.hash_block_tokens
        chats = sessions(table, roots)
        wrong = misfits(table["input_length"], table["hash_ids"], size, SLACK)
        if wrong.any():
            reason = f"hash_ids are not as many as the prompt has blocks of {size} tokens (--option hash_block_tokens)"
            dropped.add_all(reason, rows[wrong])
            kept = pa.array(~wrong)
            table, chats, rows = table.filter(kept), chats.filter(kept), rows[~wrong]
        lists = chained(table["hash_ids"].combine_chunks())
        columns: dict[str, Any] = {
            "arrival_s": table["timestamp"].combine_chunks(),
            "prompt_tokens": table["input_length"].combine_chunks(),
            "output_tokens": table["output_length"].combine_chunks(),
            "block_hashes": lists,
            "hash_block_tokens": pc.if_else(pc.is_valid(lists), size, pa.scalar(None, pa.int32())),
            "source_request_id": table["chat_id"].combine_chunks(),
            "session_id": chats,
        }
        return attempts_of(columns, rows, source_format=self.name, source_file=path, dropped=dropped)


def sessions(table: pa.Table, roots: dict[int, int]) -> pa.Array:
    """The first chat of each row's session; of a session that began before the trace, the first that is named."""
    found = []
    for chat, parent in zip(table["chat_id"].to_pylist(), table["parent_chat_id"].to_pylist(), strict=True):
        root = chat if parent is None or parent == NO_PARENT else roots.get(parent, parent)
        found.append(root)
        if chat is not None:
            roots[chat] = root
    return pa.array(found, pa.int64())
