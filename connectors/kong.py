"""Kong's log, as its file-log and other logging plugins write it: JSON, a line for each request.

https://developer.konghq.com/plugins/file-log/ and /ai-gateway/ai-audit-log-reference/. Traps: `started_at` and
latencies are milliseconds; sizes may be texts; the tokens of AI plugins stand under the plugin's name, as
`prompt_tokens` or, before 3.10, `prompt_token`; a client that went during a stream has the code of the response, unless
`custom_fields_by_lua` adds `request_completion`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from connectors.http_log import LEFT, address, failure, other_request, outcome, trace_of
from connectors.record_log import (
    Attempt,
    Record,
    RecordLog,
    amount,
    bytes_of,
    code_of,
    extras,
    first_record,
    positive,
    scaled,
    text,
    within,
)

KEYS = {"latencies", "request", "response", "started_at"}
NO_PLUGIN: Record = {}


LACKS = {
    "prompt_tokens": "Kong knows no tokens without its AI plugins: read it with a log of the engine (--with "
    "vllm.steps.jsonl), or give --bytes-per-token",
    "finish_reason": "no line says whether its response was complete: a client that left during a stream looks like "
    "one that was served; add request_completion (custom_fields_by_lua: return ngx.var.request_completion)",
}


class Kong(RecordLog):
    name = "kong"
    describes = "Kong's file-log, JSON: times, outcomes, bytes; tokens where an AI plugin proxies"
    needed = ("arrival_s",)
    lacks: ClassVar = LACKS

    def sniff(self, head: bytes, path: str) -> float:
        first = first_record(head) or {}
        return 1.0 if first.keys() >= KEYS and isinstance(first["latencies"], dict) else 0.0

    def attempt(self, record: Record) -> Attempt | str:
        request, header = record.get("request"), within(record, "request", "headers") or {}
        path = within(request, "uri") or within(request, "url")
        if (other := other_request(within(request, "method"), path)) is not None:
            return other
        code = within(record, "response", "status")
        status, reason = outcome(code)
        finish = None
        if (completion := record.get("request_completion")) is not None:
            finish = "complete" if completion == "OK" else "incomplete"
            status, reason = LEFT if finish == "incomplete" and status == "ok" else (status, reason)
        plugin = ai_plugin(record.get("ai"))
        usage, meta = within(plugin, "usage") or {}, within(plugin, "meta") or {}
        output = first_of(usage, "completion_tokens", "completion_token")
        prompt = positive(first_of(usage, "prompt_tokens", "prompt_token"))
        tries = record.get("tries")
        return {
            "arrival_s": scaled(record.get("started_at"), 0.001),
            "arrival_basis": "logged_start",
            "source_request_id": text(within(header, "x-request-id")) or text(within(request, "id")),
            "trace_id": trace_of(within(header, "traceparent")),
            "status": status,
            "cancel_reason": reason,
            "http_status": code_of(code),
            "e2e_s": scaled(within(record, "latencies", "request"), 0.001),
            "ttft_s": scaled(within(usage, "time_to_first_token"), 0.001),
            "prompt_tokens": prompt,
            "prompt_token_source": None if prompt is None else "server_usage",
            "output_tokens": positive(output) if status == "ok" else None,
            "received_tokens": output,
            "cached_prompt_tokens": within(usage, "prompt_tokens_details", "cached_tokens"),
            "model": text(within(meta, "request_model")),
            "stream": {"stream": True, "oneshot": False}.get(str(within(meta, "request_mode"))),
            "deployment": text(within(meta, "provider_name")) or text(within(record, "service", "name")),
            "tenant": caller(record),
            "client": text(within(header, "user-agent")),
            "error_class": failure(code, status),
            "finish_reason": finish,
            "retry_index": amount(within(header, "x-stainless-retry-count")),
            "client_timeout_s": amount(within(header, "x-stainless-read-timeout")),
            "idempotency_key": text(within(header, "idempotency-key")),
            "request_bytes": bytes_of(within(request, "size")),
            "response_bytes": bytes_of(within(record, "response", "size")),
            "extra": extras(
                upstream_attempts=len(tries) if isinstance(tries, list) and tries else None,
                upstream_status=record.get("upstream_status"),
            ),
        }


def caller(record: Record) -> str | None:
    """Who asked: the consumer's name, else the address."""
    names = (text(within(record, "consumer", key)) for key in ("username", "custom_id"))
    return next(filter(None, names), None) or address(record.get("client_ip"))


def ai_plugin(ai: Any) -> Any:
    """What the plugin that proxied to a model says; several may be listed, of which one has the tokens."""
    plugins = list(ai.values()) if isinstance(ai, dict) else []
    found = (p for p in plugins if first_of(within(p, "usage"), "prompt_tokens", "prompt_token") is not None)
    return next(found, within(ai, "proxy") or NO_PLUGIN)


def first_of(record: Any, *keys: str) -> Any:
    """The first value that is not null."""
    return next((value for key in keys if (value := within(record, key)) is not None), None)
