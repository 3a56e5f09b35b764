"""Logs of a LiteLLM proxy: its spend logs, and the StandardLoggingPayload of its callbacks; JSON lines or an array.

A line is an event, not a try: a call that failed once and then succeeded has two lines of one `litellm_call_id` that
begin at the same instant, and most of the proxy's own retries have none. What a failed line says of tokens (0) is that
nobody counted, and what a line says of a stream that broke off was counted by LiteLLM, not by the engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import Batch, Dropped
from connectors.bodies import keyed_hash, name_of_secret
from connectors.files import first_object, objects, reason_of
from connectors.instants import unix_time
from connectors.rows import attempts_of
from trace_schema.attempts import ATTEMPTS

NO_COMPLETION = re.compile(
    r"embed|image|transcri|speech|rerank|moderation|file|batch|assistant|thread|ocr|vector", re.I
)
"""Types of calls that write no text."""
PASSED = re.compile(r"[Tt]imeout passed=([\d.]+)")
TIMEOUTS, REJECTIONS, CANCELS = ("timeout",), ("ratelimit", "badrequest", "authentication", "permission", "notfound",
    "contextwindow", "contentpolicy", "serviceunavailable", "budget", "unprocessable", "invalidrequest"), (
    "clientdisconnect", "cancel")  # fmt: skip
"""Parts of the names of errors."""
SAME_INSTANT_S = 0.002
"""A completion that starts so shortly before its end has no time to first token of its own."""
NO_LINE = "not an event of LiteLLM: it has no startTime"


class Event(msgspec.Struct, gc=False):
    """What is read of a line. Spend logs call the id `request_id`, and write objects as texts of JSON."""

    startTime: Any
    endTime: Any = None
    completionStartTime: Any = None
    id: Any = None
    request_id: Any = None
    litellm_call_id: Any = None
    trace_id: Any = None
    session_id: Any = None
    call_type: Any = None
    cache_hit: Any = None
    stream: Any = None
    status: Any = None
    model: Any = None
    model_group: Any = None
    model_id: Any = None
    api_base: Any = None
    api_key: Any = None
    user: Any = None
    end_user: Any = None
    team_id: Any = None
    user_agent: Any = None
    prompt_tokens: Any = None
    completion_tokens: Any = None
    metadata: Any = None
    model_parameters: Any = None
    proxy_server_request: Any = None
    error_information: Any = None
    error_str: Any = None
    messages: Any = None


class LiteLlm:
    name = "litellm"
    describes = "LiteLLM proxy: spend logs or StandardLoggingPayload, JSON lines or an array; an event of a call a line"

    def sniff(self, head: bytes, path: str) -> float:
        first = first_object(head) or {}
        if not {"startTime", "endTime", "call_type"} <= first.keys():
            return 0.0
        own = {
            "custom_llm_provider",
            "model_group",
            "litellm_call_id",
            "api_key",
            "cache_hit",
            "hidden_params",
            "spend",
        }
        return 1.0 if own & first.keys() else 0.6

    def read(self, path: str) -> Iterator[Batch]:
        """One batch: the lines of a call may lie apart, and one tells when another can have begun."""
        decoder = msgspec.json.Decoder(Event)
        tables, dropped = [], Dropped()
        for events, numbers, unread in objects(path, decoder, self.reason):
            batch = self.attempts(events, numbers, path, unread)
            tables.append(batch.attempts)
            dropped.merge(batch.dropped)
        yield Batch(after_failures(pa.concat_tables([ATTEMPTS.arrow.empty_table(), *tables])), dropped)

    @staticmethod
    def reason(error: Exception) -> str:
        return NO_LINE if isinstance(error, msgspec.ValidationError) else reason_of(error)

    def attempts(self, events: list[Event], numbers: list[int], path: str, dropped: Dropped) -> Batch:
        found, places = [], []
        for event, number in zip(events, numbers, strict=True):
            other = other_business(event)
            if other:
                dropped.add(other, number)
            else:
                found.append(fields_of(event))
                places.append(number)
        columns = {field: [row[field] for row in found] for field in (found[0] if found else ())}
        return attempts_of(
            columns,
            np.asarray(places, np.int64),
            source_format=self.name,
            source_file=path,
            dropped=dropped,
            needed=("arrival_s",),
        )

    def notes(self, attempts: pa.Table) -> list[str]:
        """What LiteLLM's log cannot show."""
        failed = np.asarray(pc.is_in(attempts["status"], value_set=pa.array(["timeout", "error", "rejected"])))
        unsized = int((failed & np.asarray(attempts["prompt_tokens"].is_null())).sum())
        said = [
            "behind LiteLLM a user who left while waiting for a response that is not streamed cannot be told from a "
            "timeout: the proxy goes on, and tries again, for nobody",
            "LiteLLM writes no line for most of its own retries, and one line may stand for several: the engine's log "
            "has them (--with vllm.steps.jsonl)",
        ]
        if unsized:
            said.append(
                f"{unsized:,} failed lines have no token counts: LiteLLM counts what was answered; the engine's log "
                "has them (--with vllm.steps.jsonl)"
            )
        if pc.any(pc.equal(attempts["prompt_token_source"], "client_tokenizer")).as_py():
            said.append(
                "tokens of streams that broke off are LiteLLM's own guess: the engine's log has the true ones "
                "(--with vllm.steps.jsonl)"
            )
        return said


def other_business(event: Event) -> str | None:
    """Why a line is no request to an engine; None where it is one."""
    if str(event.cache_hit).lower() == "true":
        return "answered from LiteLLM's own cache"
    kind = text(event.call_type)
    return f"{kind} is no completion" if kind and NO_COMPLETION.search(kind) else None


def fields_of(event: Event) -> dict[str, Any]:
    """A line's fields of ATTEMPTS."""
    metadata, asked = as_object(event.metadata), as_object(event.model_parameters)
    request = as_object(event.proxy_server_request)
    body = as_object(request.get("body"))
    headers = headers_of(metadata, request)
    start, end, first = (unix_time(t) for t in (event.startTime, event.endTime, event.completionStartTime))
    e2e = end - start if isinstance(start, float) and isinstance(end, float) else None
    ttft = first - start if isinstance(start, float) and isinstance(first, float) else None
    streamed = event.stream if event.stream is not None else asked.get("stream", body.get("stream"))
    outcome = outcome_of(event, metadata)
    answered = ttft is not None and e2e is not None and e2e - ttft > SAME_INSTANT_S
    call = text(event.litellm_call_id)
    return {
        "arrival_s": start,
        "arrival_basis": "logged_start",
        "e2e_s": e2e,
        "ttft_s": ttft if answered and streamed is not False and outcome["status"] != "timeout" else None,
        **outcome,
        **sizes_of(event, outcome["status"]),
        "max_tokens": first_of(asked, body, names=("max_tokens", "max_completion_tokens", "max_output_tokens")),
        "source_request_id": text(event.id) or text(event.request_id),
        # Spend logs have the trace's id as that of a session, unless the caller named one.
        "trace_id": text(event.trace_id) or text(event.session_id),
        "retry_group": call,
        "retry_source": "litellm_call_id" if call else None,
        "retry_certainty": "certain" if call else None,
        "retry_index": headers.get("x-stainless-retry-count"),
        "client_timeout_s": headers.get("x-stainless-read-timeout"),
        "idempotency_key": headers.get("idempotency-key"),
        "request_bytes": headers.get("content-length"),
        "tenant": tenant_of(event, metadata),
        "client": text(event.user_agent) or text(metadata.get("user_agent")),
        "session_id": text(event.session_id),
        "model": text(event.model_group) or text(event.model),
        "deployment": text(event.api_base) or text(event.model_id),
        "stream": bool(streamed) if streamed is not None else None,
        "body_hash": keyed_hash(msgspec.json.encode(event.messages)) if event.messages not in NOTHING else None,
    }


NOTHING: tuple[Any, ...] = (None, "", "None", "{}", "[]", [], {})


def text(value: Any) -> str | None:
    """A text that says something: LiteLLM writes None and "None" and "" for nothing."""
    return None if value in NOTHING else str(value)


def as_object(value: Any) -> dict[str, Any]:
    """An object, or the text of one."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return {}
    return value if isinstance(value, dict) else {}


def first_of(*objects: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The first value under one of the names."""
    return next((o[name] for o in objects for name in names if o.get(name) not in NOTHING), None)


def headers_of(metadata: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """The headers that a client sent, as far as the proxy kept them."""
    kept = (
        as_object(request.get("headers")),
        as_object(as_object(metadata.get("requester_metadata")).get("headers")),
        as_object(metadata.get("requester_custom_headers")),
    )
    return {name.lower(): value for headers in kept for name, value in headers.items()}


def tenant_of(event: Event, metadata: Mapping[str, Any]) -> str | None:
    """The user, else the team, else the key that is billed."""
    named = text(event.end_user) or text(metadata.get("user_api_key_end_user_id")) or text(event.user)
    team = text(metadata.get("user_api_key_team_id")) or text(event.team_id)
    key = text(metadata.get("user_api_key_hash")) or text(event.api_key)
    return named or team or (name_of_secret(key) if key else None)


def outcome_of(event: Event, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """status, http_status, error_class, cancel_reason and gateway_timeout_s."""
    about = as_object(event.error_information) or as_object(metadata.get("error_information"))
    error, code = text(about.get("error_class")), text(about.get("error_code"))
    said = text(event.error_str) or text(about.get("error_message")) or ""
    logged = (text(event.status) or text(metadata.get("status")) or "success").lower()
    kind = (error or "").lower()
    status, reason = "ok", None
    if code == "499" or any(part in kind for part in CANCELS):
        status, reason = "cancelled", "client_disconnect"
    elif logged != "success":
        if code in ("408", "504") or any(part in kind for part in TIMEOUTS):
            status, reason = "timeout", "gateway_timeout"
        else:
            refused = code in ("429", "503") or any(part in kind for part in REJECTIONS)
            status = "rejected" if refused else "error"
    passed = PASSED.search(said) if status == "timeout" else None
    return {
        "status": status,
        "http_status": code if code and code.isdigit() else None,
        "error_class": error,
        "finish_reason": "complete" if status == "ok" else None,
        "cancel_reason": reason,
        "gateway_timeout_s": float(passed[1]) if passed else None,
    }


def sizes_of(event: Event, status: str) -> dict[str, Any]:
    """Token counts, where somebody counted; 0 says that nobody did."""
    prompt = event.prompt_tokens if event.prompt_tokens not in (0, "0", *NOTHING) else None
    whole = status == "ok"
    output = event.completion_tokens if event.completion_tokens not in NOTHING else None
    return {
        "prompt_tokens": prompt,
        "prompt_token_source": None if prompt is None else "server_usage" if whole else "client_tokenizer",
        "output_tokens": output if whole and output not in (0, "0") else None,
        "received_tokens": output if whole or status == "cancelled" else None,
    }


def after_failures(attempts: pa.Table) -> pa.Table:
    """Tries that begin no sooner than the failed one before them ended: each line says when its call began."""
    group = pc.coalesce(attempts["retry_group"], attempts["trace_id"])
    if group.null_count == len(group):
        return attempts
    codes = np.asarray(group.combine_chunks().dictionary_encode().indices.fill_null(-1))
    codes = np.where(codes < 0, np.arange(len(codes)) + len(codes), codes)
    start = np.asarray(attempts["arrival_s"])
    end = start + np.asarray(attempts["e2e_s"].fill_null(np.nan))
    order = np.lexsort((end, codes))
    same = codes[order][1:] == codes[order][:-1]
    earlier, later = order[:-1][same], order[1:][same]
    failed = np.asarray(pc.is_in(attempts["status"], value_set=pa.array(["timeout", "error", "rejected"])))
    moved = failed[earlier] & (start[later] < end[earlier]) & ~np.isnan(end[later])
    shift = np.zeros(len(start))
    shift[later[moved]] = end[earlier[moved]] - start[later[moved]]
    # Lines of one trace that say the same instant are of one call, also where no call's id is logged.
    one = np.zeros(len(start), bool)
    together = moved & (start[later] == start[earlier])
    one[later[together]] = one[earlier[together]] = True
    named = pc.if_else(pc.and_(pa.array(one), attempts["retry_group"].is_null()), group, attempts["retry_group"])
    basis = np.where(shift > 0, "end_of_failure", attempts["arrival_basis"].to_numpy(zero_copy_only=False))
    columns = {
        "arrival_s": pa.array(start + shift),
        "arrival_unix_ns": pc.add(attempts["arrival_unix_ns"], pa.array((shift * 1e9).round().astype(np.int64))),
        "e2e_s": pc.subtract(attempts["e2e_s"], pa.array(shift)),
        "ttft_s": pc.subtract(attempts["ttft_s"], pa.array(shift)),
        "arrival_basis": pa.array(basis, pa.string()),
        "retry_group": named,
    }
    for name, values in columns.items():
        attempts = attempts.set_column(attempts.column_names.index(name), ATTEMPTS.arrow.field(name), values)
    return attempts
