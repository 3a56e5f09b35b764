"""What the attributes of a span say of a request to a model, in every vocabulary that exporters use.

OpenTelemetry's gen_ai.* in the names of its drafts (prompt_tokens, completion_tokens) and of today (input_tokens,
output_tokens), those that vLLM adds (gen_ai.latency.*), OpenInference's llm.*, and what OpenLLMetry wrote before both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from connectors.bodies import keyed_hash

Attributes = Mapping[str, Any]

GENERATES = {
    "chat",
    "completion",
    "text_completion",
    "generate_content",
    "generate",
    "responses",
    "message",
    "LLM",
    "llm",
}
"""Kinds of operation that write text; a span that names another kind is none."""
KINDS = ("gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind", "llm.request.type")
MARKS = re.compile(r"^(gen_ai\.(usage|request|response|latency|prompt|completion|input|output)|llm\.(token_count|usage|"
                   r"request|model_name|invocation_parameters|input_messages))")  # fmt: skip
"""What a span of no stated kind has if it is a request to a model."""
NAMES: dict[str, tuple[str, ...]] = {
    "prompt_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt",
                      "llm.usage.prompt_tokens", "gen_ai.usage.prompt", "usage.prompt_tokens"),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
                      "llm.usage.completion_tokens", "gen_ai.usage.completion", "usage.completion_tokens"),
    "cached_prompt_tokens": ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_tokens",
                             "gen_ai.usage.details.cache_read_tokens", "gen_ai.usage.cache_read_input_tokens",
                             "llm.token_count.prompt_details.cache_read", "llm.usage.cache_read_input_tokens"),
    "max_tokens": ("gen_ai.request.max_tokens", "llm.request.max_tokens", "llm.max_tokens"),
    "model": ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name", "llm.request.model"),
    "session_id": ("gen_ai.conversation.id", "session.id", "langfuse.session.id", "thread.id"),
    "tenant": ("user.id", "enduser.id", "gen_ai.user.id", "langfuse.user.id", "llm.user", "gen_ai.request.user"),
    "priority": ("gen_ai.request.priority",),
    "request_id": ("gen_ai.request.id", "gen_ai.response.id", "llm.response.id", "http.request.header.x-request-id"),
    "response_id": ("gen_ai.response.id", "llm.response.id"),
    "deployment": ("server.address", "gen_ai.provider.name", "gen_ai.system", "llm.provider"),
    "stream": ("gen_ai.request.stream", "gen_ai.request.streaming", "llm.is_streaming", "gen_ai.is_streaming",
               "llm.request.streaming"),
    "ttft_s": ("gen_ai.latency.time_to_first_token", "gen_ai.response.time_to_first_chunk",
               "gen_ai.server.time_to_first_token", "llm.time_to_first_token"),
    "e2e_s": ("gen_ai.latency.e2e",),
    "error": ("error.type", "exception.type", "error.name"),
    "http_status": ("http.response.status_code", "http.status_code"),
    "retry": ("http.request.resend_count", "http.resend_count", "gen_ai.request.retry_count"),
    "input": ("gen_ai.input.messages", "gen_ai.prompt", "input.value", "input", "traceloop.entity.input"),
    "output": ("gen_ai.output.messages", "gen_ai.completion", "output.value", "output", "gen_ai.output.text",
               "traceloop.entity.output"),
}  # fmt: skip
"""Attributes by what they say, the surest first."""
PARAMETERS = ("llm.invocation_parameters", "gen_ai.request.parameters")
FIRST_TOKENS = re.compile(r"first.?token|completion\.chunk", re.I)
INDEXED = re.compile(r"^(gen_ai\.prompt|llm\.input_messages|llm\.prompts)\.\d+\.(?!.*role$)")
"""Messages as an attribute for each of their parts."""
TEXTS = ("content", "text", "arguments", "response", "value")
TIMED_OUT, GIVEN_UP = re.compile(r"time.?out|deadline", re.I), re.compile(r"cancel|disconnect|abort", re.I)
REFUSED = re.compile(r"rate.?limit|429|503|overload|bad.?request|unauthori|forbidden|invalid|4\d\d", re.I)


@dataclass(slots=True)
class Span:
    """A span, whoever exported it. Times are seconds since 1970."""

    attributes: Attributes
    name: str = ""
    trace_id: str | None = None
    span_id: str | None = None
    parent_id: str | None = None
    start: Any = None
    end: Any = None
    failed: bool = False
    message: str = ""
    events: list[tuple[str, Any]] = field(default_factory=list)
    """(name, time) of what happened within it."""
    resource: Attributes = field(default_factory=dict)


def dotted(attributes: Mapping[str, Any], under: str = "") -> dict[str, Any]:
    """Attributes by their whole names, where an exporter writes objects within objects."""
    found: dict[str, Any] = {}
    for name, value in attributes.items():
        whole = under + name
        found |= dotted(value, f"{whole}.") if isinstance(value, Mapping) and value else {whole: value}
    return found


def get(attributes: Attributes, what: str) -> Any:
    """The first attribute that says it; None where none does."""
    return next((attributes[name] for name in NAMES[what] if attributes.get(name) not in (None, "", [])), None)


def is_generation(span: Span) -> bool:
    """Whether a span is a request to a model for text."""
    kinds = [str(span.attributes[name]) for name in KINDS if span.attributes.get(name)]
    if kinds:
        return any(kind.lower() in GENERATES for kind in kinds)
    return span.name == "llm_request" or any(MARKS.match(name) for name in span.attributes)


def fields_of(span: Span) -> dict[str, Any]:
    """A span's fields of ATTEMPTS."""
    said = span.attributes
    parameters = next((as_object(said[name]) for name in PARAMETERS if name in said), {})
    limit = get(said, "max_tokens") or parameters.get("max_tokens") or parameters.get("max_completion_tokens")
    stream = get(said, "stream")
    outcome = outcome_of(span)
    output = get(said, "output_tokens")
    whole = outcome["status"] == "ok"
    asked, answered = texts_of(said, "input"), texts_of(said, "output")
    prompt = get(said, "prompt_tokens")
    known = isinstance(span.start, float) and isinstance(span.end, float)
    e2e = number(get(said, "e2e_s"))
    return {
        "arrival_s": span.start,
        "arrival_basis": "span_start",
        "e2e_s": e2e if e2e is not None else span.end - span.start if known else None,
        "ttft_s": ttft_of(span),
        **outcome,
        "prompt_tokens": prompt or None,
        "prompt_token_source": "server_usage" if prompt else None,
        "output_tokens": output if whole and output else None,
        "received_tokens": output,
        "cached_prompt_tokens": get(said, "cached_prompt_tokens"),
        "max_tokens": limit,
        "source_request_id": get(said, "request_id"),
        "engine_request_id": get(said, "response_id"),
        "trace_id": span.trace_id,
        "retry_index": get(said, "retry"),
        "session_id": get(said, "session_id") or session_of(said),
        "tenant": get(said, "tenant"),
        "model": get(said, "model"),
        "deployment": get(said, "deployment") or span.resource.get("service.name"),
        "priority": get(said, "priority"),
        "stream": stream if stream is not None else parameters.get("stream"),
        "request_bytes": sum(len(text.encode()) for text in asked) or None,
        "response_bytes": sum(len(text.encode()) for text in answered) or None,
        "body_hash": keyed_hash("\0".join(asked)) if asked else None,
    }


def session_of(attributes: Attributes) -> Any:
    """The session under a name of the application's own, such as acme.session.id."""
    return next((value for name, value in attributes.items() if name.endswith(".session.id")), None)


def ttft_of(span: Span) -> float | None:
    """Seconds from the span's start to its first token, as it says or as an event of that name shows."""
    told = number(get(span.attributes, "ttft_s"))
    if told is not None or not isinstance(span.start, float):
        return told
    times = [t for name, t in span.events if FIRST_TOKENS.search(name) and isinstance(t, float)]
    return min(times) - span.start if times else None


def outcome_of(span: Span) -> dict[str, Any]:
    """status, finish_reason, http_status, error_class and cancel_reason."""
    reason = finish_reason(span.attributes)
    error = get(span.attributes, "error")
    code = get(span.attributes, "http_status")
    said = " ".join(str(part) for part in (error, span.message, code) if part)
    status, cancelled = "ok", None
    if reason == "abort" or (reason and GIVEN_UP.search(reason)):
        status, cancelled = "cancelled", "engine_abort"
    elif span.failed or error or reason == "error":
        status = "error"
        if TIMED_OUT.search(said):
            status = "timeout"
        elif GIVEN_UP.search(said):
            status, cancelled = "cancelled", "client_disconnect"
        elif REFUSED.search(said):
            status = "rejected"
    failed = status in ("error", "timeout", "rejected")
    return {"status": status, "finish_reason": reason, "http_status": code, "cancel_reason": cancelled,
            "error_class": str(error) if failed and error else None}  # fmt: skip


def finish_reason(attributes: Attributes) -> str | None:
    """Why the first choice ended: stop, length, tool_calls, abort, ..."""
    reasons = attributes.get("gen_ai.response.finish_reasons", attributes.get("gen_ai.completion.0.finish_reason"))
    if isinstance(reasons, str) and reasons.startswith("["):
        reasons = decoded(reasons)
    if isinstance(reasons, list):
        reasons = reasons[0] if reasons else None
    return str(reasons) if reasons else None


def texts_of(attributes: Attributes, what: str) -> list[str]:
    """The texts of a prompt or a response, for their lengths and hashes alone."""
    value = get(attributes, what)
    if value is not None:
        found = decoded(value) if isinstance(value, str) and value.lstrip()[:1] in ("[", "{") else value
        return list(strings(found)) or [str(value)]
    return [str(value) for name, value in attributes.items() if what == "input" and INDEXED.match(name)]


def strings(value: Any, under: str = "content") -> Iterable[str]:
    """The texts in a message, or in a list of them."""
    if isinstance(value, str):
        if under in TEXTS:
            yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from strings(item, key if isinstance(item, str) else under)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item, under)


def decoded(text: str) -> Any:
    """What a text of JSON says; the text itself where it is none."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def as_object(value: Any) -> Mapping[str, Any]:
    """An object, or the text of one."""
    value = decoded(value) if isinstance(value, str) else value
    return value if isinstance(value, Mapping) else {}


def number(value: Any) -> float | None:
    """A number, or the text of one."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
