"""What access logs share: which requests are for a model's output, and what a status code says of an attempt."""

from __future__ import annotations

import functools
from typing import Any

from connectors.record_log import number, text

LEFT = ("cancelled", "client_disconnect")
GATEWAY_TIMEOUT = ("timeout", "gateway_timeout")
CODES: dict[int, tuple[str, str | None]] = {
    # 0: no response was begun; 499: nginx, and those who follow it, for a client that went first.
    0: LEFT, 499: LEFT, 408: GATEWAY_TIMEOUT, 504: GATEWAY_TIMEOUT,
    # 524: Cloudflare's; 529: Anthropic's overload.
    524: GATEWAY_TIMEOUT, 503: ("rejected", None), 529: ("rejected", None),
}  # fmt: skip
VERBS = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "CONNECT", "TRACE")
PATHS_REMEMBERED = 4096
OTHER_ENDS = ("embeddings", "tokenize", "detokenize", "count_tokens", "rerank", "score", "classify", "pooling",
              "moderations", "transcriptions", "speech", "translations", "mcp", "render", "abort", "lora_adapter",
              "files", "batches")  # fmt: skip
"""How paths end that ask for something other than generated text."""


def outcome(code: Any) -> tuple[str, str | None]:
    """(status, cancel_reason) of an attempt by its HTTP status code; `unknown` where there is none."""
    known = number(code)
    if known is None:
        return "unknown", None
    if (found := CODES.get(int(known))) is not None:
        return found
    if known < 100:
        return "unknown", None
    return "ok" if known < 400 else "rejected" if known < 500 else "error", None


def failure(code: Any, status: str) -> str | None:
    """What a status code says of a failure, as `error_class` has it."""
    known = number(code)
    return f"HTTP {known:.0f}" if known and known >= 400 and status not in ("ok", "cancelled") else None


def other_request(method: Any, path: Any) -> str | None:
    """Why a request is none for generated text; None when it may be one."""
    if (verb := text(method)) is not None and verb.upper() != "POST":
        return f"not a request for text ({verb.upper() if verb.upper() in VERBS else 'no verb of HTTP'})"
    return other_path(text(path) or "")


@functools.lru_cache(maxsize=PATHS_REMEMBERED)
def other_path(path: str) -> str | None:
    end = path.partition("?")[0].rstrip("/").rpartition("/")[2].lower()
    return next((f"not a request for text ({known})" for known in OTHER_ENDS if end.endswith(known)), None)


def address(value: Any) -> str | None:
    """A client's address: the first of a list, without its port."""
    first = (text(value) or "").partition(",")[0].strip()
    host, colon, port = first.rpartition(":")
    plain = host if colon and port.isdigit() and (":" not in host or host.startswith("[")) else first
    return plain.strip("[]") or None


def trace_of(traceparent: Any) -> str | None:
    """The trace id in a W3C traceparent header, or the id itself."""
    parts = (text(traceparent) or "").split("-")
    return parts[1] if len(parts) == 4 else text(traceparent)
