"""NVIDIA AIPerf's `profile_export.jsonl`: JSON lines, one for each request, in the order in which they ended.

https://github.com/ai-dynamo/aiperf, docs/tutorials/working-with-profile-exports.md. Traps: each metric has its own
unit; lengths that the server counted stand beside the client's; a request that was cancelled has an error of code 499
and no metrics but its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from connectors.base import Batch, Dropped
from connectors.benchmarks import Served, difference, first_known, number, scaled
from connectors.files import first_object, objects, reason_of
from connectors.rows import attempts_of
from trace_schema.errors import BadInput

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}


class Metric(msgspec.Struct, frozen=True, gc=False):
    value: Any = None
    unit: str = ""


class Metadata(msgspec.Struct, frozen=True, gc=False):
    """Who and when; times are nanoseconds since 1970."""

    request_start_ns: int | None = None
    request_end_ns: int | None = None
    x_request_id: str | None = None
    conversation_id: str | None = None
    turn_index: int | None = None
    was_cancelled: bool = False
    cancellation_time_ns: int | None = None


class Metrics(msgspec.Struct, frozen=True, gc=False):
    usage_prompt_tokens: Metric = Metric()
    input_sequence_length: Metric = Metric()
    error_isl: Metric = Metric()
    usage_completion_tokens: Metric = Metric()
    output_sequence_length: Metric = Metric()
    usage_prompt_cache_read_tokens: Metric = Metric()
    time_to_first_token: Metric = Metric()
    request_latency: Metric = Metric()


class Error(msgspec.Struct, frozen=True, gc=False):
    code: int | None = None
    type: str | None = None


class Line(msgspec.Struct, frozen=True, gc=False):
    metadata: Metadata
    metrics: Metrics = Metrics()
    error: Error | None = None


class AiPerf:
    name = "aiperf"
    describes = "NVIDIA AIPerf's profile_export.jsonl, a line per request: start, lengths, TTFT, latency, cancels"

    def sniff(self, head: bytes, path: str) -> float:
        first = first_object(head) or {}
        metadata = first.get("metadata")
        if isinstance(metadata, dict) and "request_start_ns" in metadata:
            return 1.0
        return 0.9 if b'"aiperf_version"' in head[:4096] else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        for lines, rows, dropped in objects(path, msgspec.json.Decoder(Line), reason_of):
            if not lines and dropped.total and looks_summed(path):
                raise BadInput.at(path, "holds sums alone; single requests are in profile_export.jsonl beside it")
            yield self.attempts(lines, rows, path, dropped)

    def attempts(self, lines: list[Line], rows: list[int], path: str, dropped: Dropped) -> Batch:
        ended = [seconds_between(line) for line in lines]
        columns: dict[str, Any] = {
            "arrival_s": [scaled(x.metadata.request_start_ns, 1e-9) for x in lines],
            "prompt_tokens": [
                first_known(m.usage_prompt_tokens.value, m.input_sequence_length.value, m.error_isl.value)
                for m in (x.metrics for x in lines)
            ],
            "output_tokens": [
                first_known(m.usage_completion_tokens.value, m.output_sequence_length.value)
                for m in (x.metrics for x in lines)
            ],
            "cached_prompt_tokens": [x.metrics.usage_prompt_cache_read_tokens.value for x in lines],
            "ttft_s": [in_seconds(x.metrics.time_to_first_token) for x in lines],
            "e2e_s": [first_known(in_seconds(x.metrics.request_latency), e) for x, e in zip(lines, ended, strict=True)],
            "status": [status(x) for x in lines],
            "http_status": [None if x.error is None else x.error.code for x in lines],
            "cancel_reason": ["client_disconnect" if x.metadata.was_cancelled else None for x in lines],
            "source_request_id": [x.metadata.x_request_id for x in lines],
            "session_id": [x.metadata.conversation_id for x in lines],
        }
        return attempts_of(
            columns, np.asarray(rows, np.int64), source_format=self.name, source_file=path, dropped=dropped
        )

    def served(self, path: str) -> Served:
        return Served()


def looks_summed(path: str) -> bool:
    """Whether a file is AIPerf's profile_export_aiperf.json."""
    with open(path, "rb") as file:
        return b'"aiperf_version"' in file.read(4096)


def status(line: Line) -> str:
    if line.metadata.was_cancelled:
        return "cancelled"
    return "ok" if line.error is None else "error"


def in_seconds(metric: Metric) -> Any:
    """A duration in seconds; what has no unit of time stays as it is, so that its row is dropped with the reason."""
    if metric.value is None:
        return None
    factor = SECONDS.get(metric.unit)
    return f"{metric.value} {metric.unit}" if factor is None or number(metric.value) is None else metric.value * factor


def seconds_between(line: Line) -> Any:
    """From start to end, or to the cancel."""
    end = first_known(line.metadata.cancellation_time_ns, line.metadata.request_end_ns)
    return scaled(difference(end, line.metadata.request_start_ns), 1e-9)
