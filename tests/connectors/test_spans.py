"""Spans, in whatever layout and vocabulary they are exported."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from connectors.base import Batch
from connectors.otlp import Otlp
from connectors.registry import guess

TRACE, SPAN, UP = "ac25996d89ad3df85da88404c53b7d1c", "c2d47d782ae0539b", "8bc9877c2b94e0bb"
START_NS = 1796011879479100160


def attribute(key: str, value: Any) -> dict[str, Any]:
    """An attribute as OTLP types it."""
    kinds = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}
    if isinstance(value, list):
        return {"key": key, "value": {"arrayValue": {"values": [attribute("", v)["value"] for v in value]}}}
    return {"key": key, "value": {kinds[type(value)]: str(value) if type(value) is int else value}}


def span(name: str = "llm_request", **more: Any) -> dict[str, Any]:
    """A request of vLLM's, as it exports one."""
    said = {
        "gen_ai.usage.prompt_tokens": 1135,
        "gen_ai.usage.completion_tokens": 19,
        "gen_ai.latency.time_to_first_token": 0.25,
        "gen_ai.latency.e2e": 0.375,
        "gen_ai.request.id": "chatcmpl-be6f",
        "gen_ai.request.max_tokens": 19,
    }
    return {
        "traceId": TRACE,
        "spanId": SPAN,
        "name": name,
        "startTimeUnixNano": str(START_NS),
        "endTimeUnixNano": str(START_NS + 400_000_000),
        "attributes": [attribute(key, value) for key, value in more.pop("said", said).items()],
        "status": {},
        **more,
    }


def export(*spans: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": [attribute("service.name", "vllm-tiny")]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


def read(tmp_path: Path, *objects: Any, indent: int | None = None, format: str = "otlp") -> Batch:
    path = tmp_path / "export"
    path.write_text("\n".join(json.dumps(item, indent=indent) for item in objects))
    reader, _ = guess(path.read_bytes(), str(path))
    assert reader.name == format
    (batch,) = reader.read(str(path))
    return batch


def rows(batch: Batch) -> list[dict[str, Any]]:
    return list(batch.attempts.to_pylist())


@pytest.mark.parametrize("indent", [None, 2])
def test_an_export_is_read_a_line_or_laid_out(tmp_path: Path, indent: int | None) -> None:
    (row,) = rows(read(tmp_path, export(span()), indent=indent))
    assert row["arrival_unix_ns"] == pytest.approx(START_NS, abs=1000)
    assert (row["prompt_tokens"], row["output_tokens"], row["max_tokens"]) == (1135, 19, 19)
    assert (row["ttft_s"], row["e2e_s"], row["status"]) == (0.25, 0.375, "ok")
    assert (row["source_request_id"], row["trace_id"], row["deployment"]) == ("chatcmpl-be6f", TRACE, "vllm-tiny")


def test_ids_are_hex_or_base64(tmp_path: Path) -> None:
    packed = base64.b64encode(bytes.fromhex(TRACE)).decode()
    spelled = [span(traceId=TRACE.upper()), span(traceId=packed), span(traceId=f"0x{TRACE}")]
    assert [row["trace_id"] for row in rows(read(tmp_path, export(*spelled)))] == [TRACE] * 3


def test_whole_numbers_are_texts_or_numbers(tmp_path: Path) -> None:
    one = span(startTimeUnixNano=START_NS)
    one["attributes"][0]["value"] = {"intValue": 1135}
    (row,) = rows(read(tmp_path, export(one)))
    assert row["prompt_tokens"] == 1135
    assert row["arrival_unix_ns"] == pytest.approx(START_NS, abs=1000)


@pytest.mark.parametrize(
    ("prompt", "output"),
    [("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
     ("gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"),
     ("llm.token_count.prompt", "llm.token_count.completion"),
     ("llm.usage.prompt_tokens", "llm.usage.completion_tokens")],
)  # fmt: skip
def test_counts_have_many_names(tmp_path: Path, prompt: str, output: str) -> None:
    (row,) = rows(read(tmp_path, export(span("chat gpt", said={prompt: 97, output: 52}))))
    assert (row["prompt_tokens"], row["output_tokens"]) == (97, 52)


@pytest.mark.parametrize(
    "other",
    [
        {"gen_ai.operation.name": "execute_tool", "gen_ai.request.model": "m"},
        {"gen_ai.operation.name": "embeddings", "gen_ai.usage.input_tokens": 5},
        {"openinference.span.kind": "CHAIN", "llm.token_count.prompt": 5},
        {"http.request.method": "POST"},
    ],
)
def test_spans_of_something_else_are_dropped_and_counted(tmp_path: Path, other: dict[str, Any]) -> None:
    batch = read(tmp_path, export(span(), span("other", said=other)))
    assert (batch.attempts.num_rows, batch.dropped.total, batch.rows_read) == (1, 1, 2)


@pytest.mark.parametrize(
    ("error", "status"),
    [("ReadTimeout", "timeout"), ("CancelledError", "cancelled"), ("RateLimitError", "rejected"), ("Boom", "error")],
)
def test_how_a_span_failed_is_its_status(tmp_path: Path, error: str, status: str) -> None:
    said = {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 9, "error.type": error}
    (row,) = rows(read(tmp_path, export(span("chat", said=said, status={"code": 2}))))
    assert row["status"] == status


def test_a_request_around_others_is_not_counted_twice(tmp_path: Path) -> None:
    outer = span("chat", spanId=UP)
    tries = [span(spanId=f"{n:016x}", parentSpanId=UP) for n in range(2)]
    batch = read(tmp_path, export(outer), export(*tries))
    assert [row["retry_group"] for row in rows(batch)] == [UP, UP]
    assert batch.dropped.reasons == {"its tries are spans of their own": (1, [1])}


def test_a_try_knows_what_the_request_around_it_says(tmp_path: Path) -> None:
    outer = span("chat", spanId=UP)
    inner = span("chat", parentSpanId=UP, said={"gen_ai.operation.name": "chat"})
    (row,) = rows(read(tmp_path, export(outer, inner)))
    assert row["prompt_tokens"] == 1135


def test_flat_spans_of_a_trace_are_read(tmp_path: Path) -> None:
    said = {"gen_ai.operation.name": "chat", "gen_ai.usage": {"input_tokens": 97}, "acme.session.id": "s-1"}
    flat = {"span_id": "a", "name": "chat", "start_time": "2026-03-17T08:00:00.500000", "attributes": said}
    (row,) = rows(read(tmp_path, {"trace_id": "t-1", "span_count": 1, "spans": [flat]}, indent=1))
    assert (row["prompt_tokens"], row["session_id"], row["trace_id"]) == (97, "s-1", "t-1")


def test_a_console_exporters_spans_are_read(tmp_path: Path) -> None:
    line = {
        "name": "chat", "context": {"trace_id": f"0x{TRACE}", "span_id": f"0x{SPAN}"}, "parent_id": None,
        "start_time": "2026-03-17T08:00:00.500000Z", "end_time": "2026-03-17T08:00:02.500000Z",
        "status": {"status_code": "UNSET"}, "attributes": {"gen_ai.usage.input_tokens": 97},
    }  # fmt: skip
    (row,) = rows(read(tmp_path, line, line | {"name": "chat 2"}))[:1]
    assert (row["prompt_tokens"], row["e2e_s"], row["trace_id"]) == (97, 2.0, TRACE)


def test_prompts_are_kept_as_lengths_and_hashes_alone(tmp_path: Path) -> None:
    messages = json.dumps([{"role": "user", "content": "the cat sat"}, {"role": "user", "content": "down"}])
    said = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": messages, "gen_ai.output.text": "yes"}
    (row,) = rows(read(tmp_path, export(span("chat", said=said))))
    assert (row["request_bytes"], row["response_bytes"]) == (15, 3)
    assert "cat" not in json.dumps(row)


def test_attributes_alone_are_sent_at_once(tmp_path: Path) -> None:
    item = {
        "openinference.span.kind": "LLM", "llm.model_name": "gpt-4", "llm.token_count.prompt": 97,
        "llm.token_count.completion": 52, "llm.invocation_parameters": '{"max_completion_tokens":200}',
    }  # fmt: skip
    (row,) = rows(read(tmp_path, item, format="openinference", indent=1))
    assert (row["arrival_s"], row["prompt_tokens"], row["output_tokens"], row["max_tokens"]) == (0.0, 97, 52, 200)


def test_rows_of_a_phoenix_export_have_times(tmp_path: Path) -> None:
    item = {
        "context.span_id": SPAN, "context.trace_id": TRACE, "parent_id": None, "name": "chat", "span_kind": "LLM",
        "start_time": "2026-03-17T08:00:00+00:00", "end_time": "2026-03-17T08:00:02+00:00", "status_code": "OK",
        "attributes.llm.token_count.prompt": 97, "attributes.session.id": "s-1",
    }  # fmt: skip
    (row,) = rows(read(tmp_path, item, format="openinference"))
    assert (row["e2e_s"], row["prompt_tokens"], row["session_id"], row["trace_id"]) == (2.0, 97, "s-1", TRACE)


def test_it_is_said_that_spans_of_vllm_are_of_what_finished(tmp_path: Path) -> None:
    notes = " ".join(Otlp().notes(read(tmp_path, export(span())).attempts))
    assert "vLLM exports no others" in notes
