"""Attributes of spans as flat JSON objects, without their spans: OpenInference's llm.*, as of Phoenix, or gen_ai.*.

A row of Phoenix's export names a span's own parts beside its attributes (context.span_id, start_time,
attributes.llm.token_count.prompt). Objects that hold attributes alone have no times: they are all sent at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from connectors.advice import lacking
from connectors.base import Batch, Dropped
from connectors.files import first_object, objects, reason_of
from connectors.instants import unix_time
from connectors.otlp import FAILED, WITHOUT, plain_id, tries_of
from connectors.spans import MARKS, Span, dotted

KIND = "openinference.span.kind"
PREFIX = "attributes."
NO_TIMES = "no object says when it was sent: their requests are taken as sent all at once"


class OpenInference:
    name = "openinference"
    describes = "attributes of spans as flat JSON objects: OpenInference's llm.* or gen_ai.*, as of Phoenix's exports"
    sees = "spans"

    def sniff(self, head: bytes, path: str) -> float:
        first = first_object(head)
        if first is None or isinstance(first.get("attributes"), dict | list) or "resourceSpans" in first:
            return 0.0
        names = flat(first)
        return 0.95 if KIND in names or any(MARKS.match(name) for name in names) else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        """One batch: a span's parent may lie anywhere in the file."""
        spans: list[Span] = []
        dropped = Dropped()
        for items, _, unread in objects(path, msgspec.json.Decoder(dict[str, Any]), reason_of):
            dropped.merge(unread)
            spans += map(span_of, items)
        if all(span.start is None for span in spans):
            for span in spans:
                span.start = 0.0
        yield tries_of(spans, self.name, path, dropped)

    def notes(self, attempts: pa.Table) -> list[str]:
        """What the objects cannot show."""
        untimed = attempts.num_rows and pc.all(pc.equal(attempts["arrival_s"], 0.0)).as_py()
        return [*([NO_TIMES] if untimed else []), *lacking(attempts, WITHOUT)]


def flat(item: Mapping[str, Any]) -> dict[str, Any]:
    """A row's attributes by their own names."""
    return {name.removeprefix(PREFIX): value for name, value in dotted(item).items()}


def span_of(item: dict[str, Any]) -> Span:
    """The span that a row describes."""
    attributes = flat(item)
    if "span_kind" in item:
        attributes.setdefault(KIND, item["span_kind"])
    return Span(
        attributes=attributes,
        name=str(item.get("name", "")),
        trace_id=plain_id(item.get("context.trace_id", item.get("trace_id"))),
        span_id=plain_id(item.get("context.span_id", item.get("span_id"))),
        parent_id=plain_id(item.get("parent_id")),
        start=unix_time(item.get("start_time")),
        end=unix_time(item.get("end_time")),
        failed=item.get("status_code") in FAILED,
        message=str(item.get("status_message") or ""),
    )
