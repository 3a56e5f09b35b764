"""The gateway format: one JSON object a line for each attempt. For people who write their own exporter."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from connectors.base import Batch, Dropped
from connectors.files import first_object, objects, reason_of
from connectors.rows import attempts_of


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
        for batch, rows, dropped in objects(path, msgspec.json.Decoder(Line), reason_of):
            yield self.attempts(batch, rows, path, dropped)

    def attempts(self, batch: list[Line], rows: list[int], path: str, dropped: Dropped) -> Batch:
        columns: dict[str, Any] = {name: list(map(attrgetter(key), batch)) for name, key in KEYS.items()}
        columns["e2e_s"] = [None if x.end is None else x.end - x.start for x in batch]
        columns["ttft_s"] = [None if x.first is None else x.first - x.start for x in batch]
        return attempts_of(
            columns, np.asarray(rows, np.int64), source_format=self.name, source_file=path, dropped=dropped
        )
