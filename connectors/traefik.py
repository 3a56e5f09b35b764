"""Traefik's access log as JSON (`accessLog.format: json`).

https://doc.traefik.io/traefik/observe/logs-and-access-logs/. Traps: durations are nanoseconds; `time` is when the line
was written, the request began at StartUTC; request headers are there only where `fields.headers` keeps them; a client
that went before its response has the code 499, one that went during it cannot be told from one that was served.
"""

from __future__ import annotations

from typing import Any, ClassVar

from connectors.clocks import moment, unix_s
from connectors.http_log import address, failure, other_request, outcome
from connectors.record_log import (
    Attempt,
    Record,
    RecordLog,
    amount,
    bytes_of,
    code_of,
    extras,
    first_record,
    number,
    scaled,
    text,
)

KEYS = {"RequestMethod", "DownstreamStatus", "OriginStatus", "StartUTC", "RequestCount", "RouterName"}


LACKS = {
    "prompt_tokens": "Traefik knows no tokens: read it with a log of the engine (--with "
    "vllm.steps.jsonl), or give --bytes-per-token",
    "source_request_id": "no line has an id by which an engine's log could be joined to it: keep X-Request-Id "
    "(accessLog.fields.headers.names)",
    "retry_index": "no line says whether it is a retry: keep the header X-Stainless-Retry-Count",
    "client_timeout_s": "no line says how long its client waits: keep the header X-Stainless-Read-Timeout",
    "finish_reason": "Traefik does not say whether a response was complete: a client that left during a stream looks "
    "like one that was served",
}


class Traefik(RecordLog):
    name = "traefik"
    describes = "Traefik's access log, JSON: times, outcomes, bytes"
    needed = ("arrival_s",)
    lacks: ClassVar = LACKS

    def sniff(self, head: bytes, path: str) -> float:
        known = KEYS & (first_record(head) or {}).keys()
        return 1.0 if "DownstreamStatus" in known and len(known) > 2 else 0.0

    def attempt(self, record: Record) -> Attempt | str:
        if (other := other_request(record.get("RequestMethod"), record.get("RequestPath"))) is not None:
            return other
        status, reason = outcome(record.get("DownstreamStatus"))
        header = headers(record)
        start, basis = began(record)
        return {
            "arrival_s": start,
            "arrival_basis": basis,
            "source_request_id": text(header.get("x-request-id")),
            "trace_id": text(record.get("TraceId")),
            "status": status,
            "cancel_reason": reason,
            "http_status": code_of(record.get("DownstreamStatus")),
            "e2e_s": scaled(record.get("Duration"), 1e-9),
            "tenant": text(record.get("ClientUsername")) or address(record.get("ClientHost")),
            "client": text(header.get("user-agent")),
            "error_class": failure(record.get("DownstreamStatus"), status),
            "deployment": text(record.get("ServiceName")),
            "retry_index": amount(header.get("x-stainless-retry-count")),
            "client_timeout_s": amount(header.get("x-stainless-read-timeout")),
            "idempotency_key": text(header.get("idempotency-key")),
            "request_bytes": bytes_of(record.get("RequestContentSize")),
            "response_bytes": bytes_of(record.get("DownstreamContentSize")),
            "extra": extras(upstream_retries=record.get("RetryAttempts"), upstream_status=record.get("OriginStatus")),
        }


def began(record: Record) -> tuple[Any, str]:
    """(when a request began, how that is known): StartUTC, or the line's time less the duration."""
    start = record.get("StartUTC") or record.get("StartLocal")
    written, length = moment(record.get("time")), number(record.get("Duration"))
    if start is not None or written is None or written.tzinfo is None or length is None:
        return start, "logged_start"
    ended = unix_s(written)
    return None if ended is None else ended - length * 1e-9, "end_minus_duration"


def headers(record: Record) -> dict[str, Any]:
    """The request's headers in lower case."""
    return {key[8:].lower(): value for key, value in record.items() if key.startswith("request_")}
