"""Requests exported from Helicone (`npx @helicone/export`, or its query API), JSON or JSON lines.

https://docs.helicone.ai/tools/export. Traps: `delay_ms` and `time_to_first_token` are milliseconds; a stream whose
client left has the status -3, one that Helicone gave up has -2; what Helicone's cache answered never reached a model.
"""

from __future__ import annotations

from typing import Any

import msgspec

from connectors.bodies import keyed_hash
from connectors.clocks import moment
from connectors.http_log import GATEWAY_TIMEOUT, LEFT, failure, other_request, outcome
from connectors.record_log import (
    Attempt,
    Record,
    RecordLog,
    amount,
    code_of,
    first_record,
    number,
    positive,
    scaled,
    text,
    within,
)

KEYS = {"request_created_at", "response_status", "delay_ms", "request_id"}
CODES = {-3.0: LEFT, -2.0: GATEWAY_TIMEOUT}
"""Helicone's own, beside those of HTTP; the other negative ones are errors of its own."""
SESSION, RETRY = "helicone-session-id", "x-stainless-retry-count"


class Helicone(RecordLog):
    name = "helicone"
    describes = "requests exported from Helicone, JSON: times, first token, outcomes, tokens, users"
    needed = ("arrival_s",)

    def sniff(self, head: bytes, path: str) -> float:
        first = first_record(head)
        found = self.unwrap(first)[:1] if first else []
        return 1.0 if found and found[0].keys() >= KEYS else 0.0

    def unwrap(self, record: Record) -> list[Record]:
        data = record.get("data")
        return [item if isinstance(item, dict) else {} for item in data] if isinstance(data, list) else [record]

    def attempt(self, record: Record) -> Attempt | str:
        if (other := other_request(None, record.get("request_path"))) is not None:
            return other
        if record.get("cache_reference_id") not in (None, "", "00000000-0000-0000-0000-000000000000"):
            return "answered from Helicone's cache"
        code = number(record.get("response_status"))
        status, reason = CODES.get(code, ("error", None)) if code is not None and code < 0 else outcome(code)
        output = record.get("completion_tokens")
        body = record.get("request_body")
        own = within(record, "request_properties")
        properties = {str(key).lower(): value for key, value in own.items()} if isinstance(own, dict) else {}
        prompt = positive(record.get("prompt_tokens"))
        return {
            "arrival_s": record.get("request_created_at"),
            "arrival_basis": "logged_start",
            "source_request_id": text(record.get("request_id")),
            "session_id": text(properties.get(SESSION)),
            "tenant": text(record.get("request_user_id")) or text(record.get("helicone_user")),
            "model": text(record.get("request_model")) or text(record.get("model")),
            "deployment": text(record.get("provider")),
            "status": status,
            "cancel_reason": reason,
            "http_status": code_of(code),
            "error_class": failure(code, status),
            "stream": within(body, "stream") if isinstance(within(body, "stream"), bool) else None,
            "max_tokens": amount(within(body, "max_completion_tokens") or within(body, "max_tokens")),
            "body_hash": keyed_hash(msgspec.json.encode(body)) if body else None,
            "prompt_tokens": prompt,
            "prompt_token_source": None if prompt is None else "server_usage",
            "cached_prompt_tokens": record.get("prompt_cache_read_tokens"),
            "output_tokens": positive(output) if status == "ok" else None,
            "received_tokens": amount(output),
            "retry_index": amount(properties.get(RETRY)),
            "ttft_s": scaled(positive(record.get("time_to_first_token")), 0.001),
            "e2e_s": length(record),
        }


def length(record: Record) -> Any:
    """How long a request took, in seconds."""
    if number(record.get("delay_ms")) is not None:
        return scaled(record["delay_ms"], 0.001)
    began, ended = moment(record.get("request_created_at")), moment(record.get("response_created_at"))
    if began is None or ended is None or (began.tzinfo is None) != (ended.tzinfo is None):
        return None
    return max((ended - began).total_seconds(), 0.0)
