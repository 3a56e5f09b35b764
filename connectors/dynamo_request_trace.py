"""NVIDIA Dynamo's request traces (`DYN_REQUEST_TRACE=1`): JSON lines, one for each request that ended, and for tools.

https://github.com/ai-dynamo/dynamo, schema `dynamo.request.trace.v1`. Traps: events of tools stand between those of
requests; hashes are rolling ones of 64 bits; only rows with a session have durations and how a request finished; the
output of a request that was cancelled is what it had by then, and the row may not say that it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import Batch, Dropped
from connectors.benchmarks import difference, first_known, scaled
from connectors.files import first_object, objects, reason_of
from connectors.rows import attempts_of

SCHEMA = "dynamo.request.trace.v1"
REQUEST = "request_end"
TOOL, OTHER = "an event of a tool, not of a request", "an event of another kind than request_end"
NO_SESSIONS = (
    "no row says how its request ended, so that one that was cancelled looks like a short one: send session headers"
)
ABORTED = ("cancelled", "canceled", "abort", "aborted")


class Prompt(msgspec.Struct, gc=False):
    trace_block_size: int | None = None
    input_length: float | None = None
    input_sequence_hashes: list[int] | None = None

    def __post_init__(self) -> None:
        hashes = self.input_sequence_hashes
        if hashes and not (min(hashes) >= 0 and max(hashes) < 2**64):
            raise ValueError("input_sequence_hashes holds a number that is not one of 64 bits")
        if hashes and self.trace_block_size and (self.input_length or 0) <= (len(hashes) - 1) * self.trace_block_size:
            raise ValueError("input_sequence_hashes are more than the prompt has blocks of trace_block_size tokens")


class Finish(msgspec.Struct, gc=False):
    finish_reason: str | None = None


class Request(msgspec.Struct, gc=False):
    """Times in milliseconds, those of `received` since 1970."""

    request_id: str | None = None
    x_request_id: str | None = None
    model: str | None = None
    request_received_ms: float | None = None
    total_time_ms: float | None = None
    ttft_ms: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    cached_tokens: float | None = None
    finish_reason_metadata: Finish | None = None
    replay: Prompt | None = None

    @property
    def finish(self) -> str | None:
        return None if self.finish_reason_metadata is None else self.finish_reason_metadata.finish_reason


class Agent(msgspec.Struct, gc=False):
    session_id: str | None = None


class Event(msgspec.Struct, gc=False):
    event_type: str | None = None
    event_time_unix_ms: float | None = None
    request: Request | None = None
    agent_context: Agent | None = None


class Line(Event, gc=False):
    """An event, or one that a recorder has wrapped."""

    event: Event | None = None


class DynamoRequestTrace:
    name = "dynamo_request_trace"
    describes = "NVIDIA Dynamo's request traces, JSON lines: times, lengths, prefix hashes, sessions"

    def sniff(self, head: bytes, path: str) -> float:
        first = first_object(head) or {}
        event = first["event"] if isinstance(first.get("event"), dict) else first
        return 1.0 if event.get("schema") == SCHEMA else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        for lines, rows, dropped in objects(path, msgspec.json.Decoder(Line), reason_of):
            requests, numbers = [], []
            for line, row in zip(lines, rows, strict=True):
                event = line.event or line
                if event.request is not None and event.event_type == REQUEST:
                    requests.append(event)
                    numbers.append(row)
                else:
                    dropped.add(TOOL if (event.event_type or "").startswith("tool_") else OTHER, row)
            yield self.attempts(requests, numbers, path, dropped)

    def notes(self, attempts: pa.Table) -> list[str]:
        """What rows without a session cannot show."""
        known = pc.any(pc.not_equal(attempts["status"], "unknown")).as_py()
        return [] if known else [NO_SESSIONS]

    def attempts(self, events: list[Event], rows: list[int], path: str, dropped: Dropped) -> Batch:
        requests = [event.request or Request() for event in events]
        prompts = [request.replay or Prompt() for request in requests]
        statuses = [status(request) for request in requests]
        received = [s == "cancelled" for s in statuses]
        columns: dict[str, Any] = {
            "arrival_s": [scaled(arrival_ms(event), 1e-3) for event in events],
            "e2e_s": [scaled(duration_ms(event), 1e-3) for event in events],
            "ttft_s": [scaled(request.ttft_ms, 1e-3) for request in requests],
            "prompt_tokens": [
                first_known(p.input_length, r.input_tokens) for p, r in zip(prompts, requests, strict=True)
            ],
            "output_tokens": [None if cut else r.output_tokens for cut, r in zip(received, requests, strict=True)],
            "received_tokens": [r.output_tokens if cut else None for cut, r in zip(received, requests, strict=True)],
            "cached_prompt_tokens": [request.cached_tokens for request in requests],
            "block_hashes": [p.input_sequence_hashes for p in prompts],
            "hash_block_tokens": [p.trace_block_size if p.input_sequence_hashes else None for p in prompts],
            "status": statuses,
            "cancel_reason": ["unknown" if cut else None for cut in received],
            "source_request_id": [first_known(r.x_request_id, r.request_id) for r in requests],
            "model": [request.model for request in requests],
            "session_id": [e.agent_context.session_id if e.agent_context else None for e in events],
        }
        return attempts_of(
            columns, np.asarray(rows, np.int64), source_format=self.name, source_file=path, dropped=dropped
        )


def arrival_ms(event: Event) -> Any:
    """When it was received; else its end less how long it took."""
    request = event.request or Request()
    return first_known(request.request_received_ms, difference(event.event_time_unix_ms, request.total_time_ms))


def duration_ms(event: Event) -> Any:
    """How long it took."""
    request = event.request or Request()
    return first_known(request.total_time_ms, difference(event.event_time_unix_ms, request.request_received_ms))


def status(request: Request) -> str:
    """How it finished, where the row says so."""
    if request.finish is None:
        return "unknown"
    if request.finish in ABORTED:
        return "cancelled"
    return "error" if request.finish == "error" else "ok"
