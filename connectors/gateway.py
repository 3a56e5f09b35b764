"""The gateway format: one JSON object a line for each attempt. For people who write their own exporter."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import Batch, Dropped
from connectors.files import first_object
from connectors.rows import attempts_of
from connectors.typed_lines import Rows, tables


class Line(msgspec.Struct, gc=False):
    """One attempt. Times are seconds, on any clock that all lines share."""

    call: int | str
    """What its attempts have in common."""
    prompt: int | None
    start: float
    """When the client sent it."""
    status: str
    """ok, timeout, cancelled, rejected or error."""
    attempt: int = 0
    output: int | None = None
    """Output tokens of the whole response."""
    end: float | None = None
    first: float | None = None
    """When its first token arrived."""
    tokens: int | None = None
    """Output tokens that the client had when it ended."""
    rid: str | None = None
    tenant: str | None = None
    client: str | None = None
    session: str | None = None
    model: str | None = None
    stream: bool | None = None
    priority: int | None = None
    idempotency_key: str | None = None
    timeout_s: float | None = None
    """Timeout that the client announced."""

    def __post_init__(self) -> None:
        self.call = str(self.call)


WHOLE, PART, TEXT = pa.int64(), pa.float64(), pa.string()
NAMED = pa.schema(
    [
        pa.field("call", TEXT, nullable=False),
        pa.field("prompt", WHOLE),
        pa.field("start", PART, nullable=False),
        pa.field("status", TEXT, nullable=False),
        *((key, WHOLE) for key in ("attempt", "output", "tokens", "priority")),
        *((key, PART) for key in ("end", "first", "timeout_s")),
        *((key, TEXT) for key in ("rid", "tenant", "client", "session", "model", "idempotency_key")),
        ("stream", pa.bool_()),
    ]
)
NUMBERED = NAMED.set(0, pa.field("call", WHOLE, nullable=False))
"""Calls may have names or numbers."""

KEYS = {
    "retry_group": "call", "retry_index": "attempt", "prompt_tokens": "prompt", "output_tokens": "output",
    "received_tokens": "tokens", "arrival_s": "start", "status": "status", "source_request_id": "rid",
    "session_id": "session", "client_timeout_s": "timeout_s", "tenant": "tenant", "client": "client", "model": "model",
    "stream": "stream", "priority": "priority", "idempotency_key": "idempotency_key",
}  # fmt: skip
"""Key of a line by field of ATTEMPTS; its other times count from its start."""


class Gateway:
    name = "gateway"
    describes = (
        "JSON lines of a gateway or a load generator: a line per attempt, with call, attempt, start, end, status"
    )

    def sniff(self, head: bytes, path: str) -> float:
        first = first_object(head)
        return len({"call", "start", "status", "prompt"} & first.keys()) / 4 if first else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        for table, rows, dropped in tables(path, NAMED, Line, NUMBERED):
            yield self.attempts(table, rows, path, dropped)

    def attempts(self, table: pa.Table, rows: Rows, path: str, dropped: Dropped) -> Batch:
        columns = {name: table[key].combine_chunks() for name, key in KEYS.items()}
        columns["retry_index"] = pc.fill_null(columns["retry_index"], 0)
        for name, key in (("e2e_s", "end"), ("ttft_s", "first")):
            columns[name] = pc.subtract(table[key], table["start"]).combine_chunks()
        return attempts_of(columns, rows, source_format=self.name, source_file=path, dropped=dropped)
