"""The gateway format: one JSON object a line for each attempt. For people who write their own exporter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from connectors.base import Batch, Dropped
from connectors.files import first_object, objects
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
        columns: dict[str, list[Any]] = {
            "retry_group": [x.call for x in batch],
            "retry_index": [x.attempt for x in batch],
            "prompt_tokens": [x.prompt for x in batch],
            "output_tokens": [x.output for x in batch],
            "received_tokens": [x.tokens for x in batch],
            "arrival_s": [x.start for x in batch],
            "e2e_s": [None if x.end is None else x.end - x.start for x in batch],
            "ttft_s": [None if x.first is None else x.first - x.start for x in batch],
            "status": [x.status for x in batch],
            "source_request_id": [x.rid for x in batch],
            "session_id": [x.session for x in batch],
            "client_timeout_s": [x.timeout_s for x in batch],
        }
        for name in ("tenant", "client", "model", "stream", "priority", "idempotency_key"):
            columns[name] = [getattr(x, name) for x in batch]
        return attempts_of(
            columns, np.asarray(rows, np.int64), source_format=self.name, source_file=path, dropped=dropped
        )


def reason_of(error: Exception) -> str:
    """Why a line is no attempt, in words that equal offences share."""
    if isinstance(error, msgspec.ValidationError):
        return str(error)
    return "not a JSON object (cut short, or not text)"
