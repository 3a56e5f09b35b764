"""Generations exported from Langfuse: a trace's JSON, pages of its API, or the files of a blob storage export.

https://langfuse.com/docs/api-and-data-platform. Traps: keys are in camel case or in snake case; `latency` is in
milliseconds in one export and in seconds in another, so that it is computed again; a span or a tool's call is an
observation too; who asked, and in which session, stands in the trace; input tokens are a sum of several kinds.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

import msgspec

from connectors.bodies import keyed_hash
from connectors.clocks import moment
from connectors.record_log import Attempt, Record, RecordLog, amount, first_record, number, positive, text, within

LISTS = ("observations", "data")
"""Keys under which an export has its observations."""
OTHER_KINDS = ("SPAN", "EVENT", "TOOL", "AGENT", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL")
GENERATION = "GENERATION"
CACHE_READ = ("cache_read", "cached")
"""In the names of usage that was read from a provider's cache."""
ERROR = re.compile(r"[A-Za-z_.]*(?:Error|Exception|Timeout|Cancelled)\b")
SNAKE = {
    "startTime": "start_time", "endTime": "end_time", "completionStartTime": "completion_start_time",
    "usageDetails": "usage_details", "modelParameters": "model_parameters", "traceId": "trace_id",
    "statusMessage": "status_message", "sessionId": "session_id", "userId": "user_id",
    "model": "provided_model_name", "inputUsage": "input_usage", "outputUsage": "output_usage",
}  # fmt: skip


class Langfuse(RecordLog):
    name = "langfuse"
    describes = "generations exported from Langfuse, JSON: times, first token, models, tokens, users, sessions"
    needed = ("arrival_s",)

    def sniff(self, head: bytes, path: str) -> float:
        first = first_record(head)
        if first is None:
            trace = b'"observations"' in head and b'"traceId"' in head
            return 0.9 if trace and head.lstrip().startswith(b"{") else 0.0
        found = self.unwrap(first)[:1]
        return 1.0 if found and is_observation(found[0]) else 0.0

    def unwrap(self, record: Record) -> list[Record]:
        for key in LISTS:
            if isinstance(items := record.get(key), list):
                trace = within(record, "trace") or record
                about = {key: said(trace, key) for key in ("sessionId", "userId") if said(trace, key) is not None}
                return [about | item if isinstance(item, dict) else {} for item in items]
        return [record]

    def attempt(self, record: Record) -> Attempt | str:
        if not is_observation(record):
            return "not an observation of Langfuse"
        if (kind := str(record["type"]).upper()) != GENERATION:
            return f"not a generation ({kind if kind in OTHER_KINDS else 'of a kind that is not known'})"
        failed = text(record.get("level")) == "ERROR"
        ended = moment(said(record, "endTime"))
        status = "error" if failed else "unknown" if ended is None else "ok"
        prompt, output, cached = usage(record)
        asked = parameters(record)
        content = record.get("input")
        return {
            "arrival_s": said(record, "startTime"),
            "arrival_basis": "span_start",
            "source_request_id": text(record.get("id")),
            "trace_id": text(said(record, "traceId")),
            "session_id": text(said(record, "sessionId")),
            "tenant": text(said(record, "userId")),
            "model": text(record.get("model")) or text(said(record, "model")),
            "status": status,
            "error_class": error_of(record) if failed else None,
            "prompt_tokens": prompt,
            "prompt_token_source": None if prompt is None else "server_usage",
            "cached_prompt_tokens": cached,
            "output_tokens": positive(output) if status == "ok" else None,
            "received_tokens": output,
            "max_tokens": positive(amount(within(asked, "max_tokens"))),
            "stream": next((v for k in ("is_stream", "stream") if isinstance(v := within(asked, k), bool)), None),
            "body_hash": None if content is None else keyed_hash(msgspec.json.encode(content)),
            "ttft_s": since(said(record, "startTime"), moment(said(record, "completionStartTime"))),
            "e2e_s": since(said(record, "startTime"), ended),
        }


def is_observation(record: Record) -> bool:
    return "type" in record and said(record, "startTime") is not None and said(record, "traceId") is not None


def said(record: Any, key: str) -> Any:
    """What a record says, whether its keys are in camel case or in snake case."""
    found = within(record, key)
    return within(record, SNAKE[key]) if found is None else found


def error_of(record: Record) -> str | None:
    """The name of an error; its message, which may quote the prompt, is left where it is."""
    found = ERROR.match(text(said(record, "statusMessage")) or "")
    return found[0] if found else None


def parameters(record: Record) -> Any:
    """The parameters of the model, which blob storage exports have as JSON in a text."""
    found = said(record, "modelParameters")
    return decoded(found) if isinstance(found, str) else found


def decoded(value: str) -> Any:
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def usage(record: Record) -> tuple[Any, Any, Any]:
    """(prompt tokens, output tokens, prompt tokens from a cache).

    As Langfuse sums them: usage whose name has "input" in it, and "output"; in older exports two numbers of their own.
    """
    details = said(record, "usageDetails")
    details = decoded(details) if isinstance(details, str) else details
    if not isinstance(details, dict) or not details:
        old = record.get("usage")
        if text(within(old, "unit")) not in (None, "TOKENS"):
            return None, None, None
        prompt, output = said(record, "inputUsage"), said(record, "outputUsage")
        prompt = next((n for n in (prompt, within(old, "input"), record.get("promptTokens")) if n is not None), None)
        output = next(
            (n for n in (output, within(old, "output"), record.get("completionTokens")) if n is not None), None
        )
        return positive(prompt), output, None
    known = {name: found for name, value in details.items() if (found := number(value)) is not None}
    prompt = sum(value for name, value in known.items() if "input" in name)
    cached = sum(value for name, value in known.items() if any(part in name for part in CACHE_READ))
    answered = [value for name, value in known.items() if "output" in name]
    return positive(prompt), sum(answered) if answered else None, cached or None


def since(start: Any, later: datetime.datetime | None) -> float | None:
    """Seconds from one time to a later one."""
    began = moment(start)
    if began is None or later is None or (began.tzinfo is None) != (later.tzinfo is None):
        return None
    length = (later - began).total_seconds()
    return length if length >= 0 else None
