"""Spans as OTLP/JSON, an export a line or one in all, or as flat JSON objects; those that are requests to a model.

Ids are hex or base64, whole numbers are texts or numbers, keys are in camel case or snake case. A span whose
descendants are requests too is no request of its own: those are its tries.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.advice import lacking
from connectors.base import Batch, Dropped
from connectors.files import first_object, objects, reason_of
from connectors.instants import unix_time
from connectors.rows import attempts_of
from connectors.spans import Span, dotted, fields_of, is_generation

RESOURCES, SCOPES = ("resourceSpans", "resource_spans", "batches"), (
    "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans")  # fmt: skip
IDS = ("traceId", "trace_id", "spanId", "span_id", "context")
HEX = re.compile(r"^(0x)?([0-9a-fA-F]{16}|[0-9a-fA-F]{32})$")
BASE64 = re.compile(r"^([A-Za-z0-9+/_-]{22}==|[A-Za-z0-9+/_-]{11}=)$")
"""16 and 8 bytes."""
NO_SPAN = "an object without spans"
FAILED = (2, "2", "ERROR", "STATUS_CODE_ERROR")
WITHOUT = {
    "prompt_tokens": "no span says how long its prompt was (gen_ai.usage.input_tokens): read it with a log of the "
    "engine (--with vllm.steps.jsonl), or give --bytes-per-token where spans hold their messages",
    "output_tokens": "no span says how long its response was (gen_ai.usage.output_tokens)",
    "ttft_s": "no span says when its first token came",
}


class Otlp:
    name = "otlp"
    describes = "spans as OTLP/JSON or flat JSON: vLLM's llm_request, and any with gen_ai.* or OpenInference attributes"
    sees = "spans"

    def sniff(self, head: bytes, path: str) -> float:
        first = first_object(head)
        if first is None:
            return 0.0
        if any(key in first for key in (*RESOURCES[:2], "spans")) or isinstance(first.get("trace"), dict):
            return 1.0 if any(True for _ in spans_in(first)) or RESOURCES[0] in first else 0.3
        is_span = any(key in first for key in IDS) and isinstance(first.get("attributes"), dict | list)
        return 0.9 if is_span and ({"name", "start_time", "startTimeUnixNano"} & first.keys()) else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        """One batch: a span's parent may lie in another export. Its rows are the spans, in order."""
        spans: list[Span] = []
        dropped = Dropped()
        for items, _, unread in objects(path, msgspec.json.Decoder(dict[str, Any]), reason_of):
            dropped.merge(unread)
            for item in items:
                found = list(spans_in(item))
                if not found:
                    dropped.add(NO_SPAN, len(spans) + 1)
                spans += found
        yield tries_of(spans, self.name, path, dropped)

    def notes(self, attempts: pa.Table) -> list[str]:
        """What spans cannot show."""
        said = lacking(attempts, WITHOUT)
        if attempts.num_rows and pc.all(pc.equal(attempts["status"], "ok")).as_py():
            said.append(
                "all spans are of requests that finished: vLLM exports no others, so that those whose clients gave up, "
                "and retries, cannot be seen; its step log has them (--with vllm.steps.jsonl)"
            )
        return said


def spans_in(item: Any) -> Iterator[Span]:
    """The spans of an export, of a trace, or the one that an object is."""
    if not isinstance(item, Mapping):
        return
    if isinstance(item.get("trace"), Mapping):
        item = item["trace"]
    resources = first_of(item, RESOURCES)
    if isinstance(resources, list):
        for resource in filter(is_object, resources):
            about = attributes_of(as_map(resource.get("resource")).get("attributes"))
            for scope in filter(is_object, listed(first_of(resource, SCOPES))):
                yield from (span_of(as_map(span), about) for span in listed(scope.get("spans")))
    elif isinstance(item.get("spans"), list):
        yield from (span_of(as_map(span), {}, item) for span in item["spans"])
    elif any(key in item for key in IDS):
        yield span_of(item, {})


def listed(value: Any) -> list[Any]:
    """A list; nothing in the place of what is none."""
    return value if isinstance(value, list) else []


def span_of(span: Mapping[str, Any], resource: Mapping[str, Any], around: Mapping[str, Any] | None = None) -> Span:
    """A span of either layout."""
    context = as_map(span.get("context"))
    status = span.get("status")
    about = as_map(status)
    code = first_of(about, ("code", "status_code")) if about else span.get("status_code", status)
    own = attributes_of(first_of(as_map(span.get("resource")), ("attributes",)) or span.get("resource_attributes"))
    return Span(
        attributes=attributes_of(span.get("attributes")),
        name=str(span.get("name", "")),
        trace_id=plain_id(first_of({**(around or {}), **context, **span}, ("traceId", "trace_id"))),
        span_id=plain_id(first_of({**context, **span}, ("spanId", "span_id"))),
        parent_id=plain_id(first_of(span, ("parentSpanId", "parent_span_id", "parent_id"))),
        start=instant(span, ("startTimeUnixNano", "start_time_unix_nano"), ("start_time", "startTime")),
        end=instant(span, ("endTimeUnixNano", "end_time_unix_nano"), ("end_time", "endTime")),
        failed=code in FAILED,
        message=str(first_of(about, ("message", "description")) or ""),
        events=[
            (str(e.get("name", "")), instant(e, ("timeUnixNano", "time_unix_nano"), ("timestamp", "time")))
            for e in filter(is_object, listed(span.get("events")))
        ],
        resource=resource or own,
    )


def tries_of(spans: list[Span], source_format: str, path: str, dropped: Dropped) -> Batch:
    """The requests among spans, the k-th of which is row k; each try of a request that has several."""
    requests = {place: span for place, span in enumerate(spans) if is_generation(span)}
    place_of: dict[str | None, int] = {span.span_id: place for place, span in enumerate(spans) if span.span_id}
    above = {place: ancestor(place, spans, place_of, requests) for place in requests}
    tries = {place: up for place, up in above.items() if up is not None}
    outer = Counter(tries.values())
    found, rows = [], []
    for place, span in enumerate(spans):
        if place not in requests:
            dropped.add("a span of something else than a request to a model", place + 1)
        elif place in outer:
            dropped.add("its tries are spans of their own", place + 1)
        else:
            up = tries.get(place)
            several = up is not None and outer[up] > 1
            found.append(try_of(span, None if up is None else spans[up], several))
            rows.append(place + 1)
    columns = {name: [one[name] for one in found] for name in (found[0] if found else ())}
    return attempts_of(
        columns, np.asarray(rows, np.int64), source_format=source_format, source_file=path, dropped=dropped,
        needed=("arrival_s",),
    )  # fmt: skip


def try_of(span: Span, up: Span | None, several: bool) -> dict[str, Any]:
    """A try's fields; what it does not say the request above it says, but for sizes that are of all its tries."""
    if up is not None:
        usage = (".usage.", ".token_count.", ".latency.", ".response.")
        lent = {k: v for k, v in up.attributes.items() if not several or not any(part in k for part in usage)}
        span.attributes = {**lent, **span.attributes}
    fields = fields_of(span)
    mark = (up.span_id, "parent span", "certain") if up is not None and several else (None, None, None)
    return {**fields, **dict(zip(("retry_group", "retry_source", "retry_certainty"), mark, strict=True))}


def ancestor(
    place: int, spans: list[Span], place_of: Mapping[str | None, int], requests: Mapping[int, Span]
) -> int | None:
    """The nearest request that a span lies within."""
    seen = {place}
    up = place_of.get(spans[place].parent_id)
    while up is not None and up not in seen:
        if up in requests:
            return up
        seen.add(up)
        up = place_of.get(spans[up].parent_id)
    return None


def attributes_of(attributes: Any) -> dict[str, Any]:
    """Attributes as a dict: OTLP has a list of keys and typed values."""
    if isinstance(attributes, Mapping):
        return dotted(attributes)
    pairs = [pair for pair in attributes if is_object(pair)] if isinstance(attributes, list) else []
    return {str(pair.get("key")): value_of(pair.get("value")) for pair in pairs}


def value_of(value: Any) -> Any:
    """What a typed value of OTLP holds."""
    if not isinstance(value, Mapping) or not value:
        return value
    kind, held = next(iter(value.items()))
    if kind in ("intValue", "int_value"):
        return int(held) if isinstance(held, str) and held.lstrip("-").isdigit() else held
    if kind in ("arrayValue", "array_value"):
        return [value_of(item) for item in as_map(held).get("values") or []]
    if kind in ("kvlistValue", "kvlist_value"):
        return attributes_of(as_map(held).get("values"))
    return held


def plain_id(value: Any) -> str | None:
    """An id of a trace or a span as lower-case hex where it is hex or base64, else as it is."""
    if not isinstance(value, str) or not value:
        return None
    found = HEX.match(value)
    if found:
        return found[2].lower()
    if BASE64.match(value):
        try:
            return base64.b64decode(value, altchars=b"-_" if set("-_") & set(value) else None).hex()
        except binascii.Error:
            return value
    return value


def instant(item: Mapping[str, Any], nano: tuple[str, ...], other: tuple[str, ...]) -> Any:
    """A time in seconds since 1970, from nanoseconds or from what else an exporter writes."""
    value = first_of(item, nano)
    if value is not None:
        try:
            return int(value) / 1e9
        except (TypeError, ValueError):
            return value
    return unix_time(first_of(item, other))


def first_of(item: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The first value that is there under one of the names."""
    return next((item[name] for name in names if item.get(name) is not None), None)


def as_map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def is_object(value: Any) -> bool:
    return isinstance(value, Mapping)
