"""RAGPulse: a week of a university's questions to its retrieval-augmented assistant, `0_trace.jsonl`.

https://github.com/flashserve/RAGPulse (arXiv:2511.12979). Traps: seconds are texts; `hash_ids` is an object of the
prompt's parts, whose lengths are in other files, so that it says what prompts have in common but not how much that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from connectors.base import Batch, Dropped
from connectors.files import first_object, objects, reason_of
from connectors.rows import attempts_of

KEYS = {
    "arrival_s": "timestamp", "prompt_tokens": "input_length", "output_tokens": "output_length",
    "session_id": "session_id",
}  # fmt: skip
"""Key of a line by field of ATTEMPTS."""


class Line(msgspec.Struct, gc=False):
    """One request; `timestamp` in seconds from the start of the trace."""

    timestamp: str | float | None = None
    input_length: float | None = None
    output_length: float | None = None
    session_id: str | None = None


class RagPulse:
    name = "ragpulse"
    describes = "RAGPulse's public trace of retrieval-augmented questions, JSON lines: times, lengths, sessions"

    def sniff(self, head: bytes, path: str) -> float:
        first = first_object(head) or {}
        parts = first.get("hash_ids")
        return 1.0 if set(KEYS.values()) <= first.keys() and isinstance(parts, dict) and "sys_prompt" in parts else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        for lines, rows, dropped in objects(path, msgspec.json.Decoder(Line), reason_of):
            yield self.attempts(lines, rows, path, dropped)

    def notes(self, attempts: pa.Table) -> list[str]:
        """What the file cannot show."""
        return ["prompts share parts, but how long those are is not in this file: each is replayed as unlike any other"]

    def attempts(self, lines: list[Line], rows: list[int], path: str, dropped: Dropped) -> Batch:
        columns: dict[str, Any] = {name: list(map(attrgetter(key), lines)) for name, key in KEYS.items()}
        columns["arrival_s"] = [None if time is None else str(time) for time in columns["arrival_s"]]
        return attempts_of(
            columns, np.asarray(rows, np.int64), source_format=self.name, source_file=path, dropped=dropped
        )
