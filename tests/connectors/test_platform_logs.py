"""What platforms export of the requests that they served: sizes and outcomes, and nothing of what was said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from connectors.registry import connector
from tests.connectors.examples import WITH_BAD_ROWS
from tests.connectors.reading import column, rows_of, trap


def test_bedrocks_prompt_is_what_was_computed_read_from_its_cache_and_written_to_it() -> None:
    rows, dropped = trap("bedrock.jsonl")
    assert column(rows, "prompt_tokens") == [1055, 12, None]
    assert column(rows, "cached_prompt_tokens") == [1000, None, None]
    assert column(rows, "output_tokens") == [446, 9, None]
    assert column(rows, "max_tokens") == [512, 128, None]
    assert dropped == {}


def test_bedrocks_latencies_are_those_in_the_response() -> None:
    rows, _ = trap("bedrock.jsonl")
    assert column(rows, "e2e_s") == [3.64, 0.8, None]
    assert column(rows, "ttft_s") == [None, 0.12, None]
    assert column(rows, "stream") == [False, True, False]
    assert column(rows, "time_resolution_s") == [1.0] * 3


def test_a_throttled_request_of_bedrock_was_rejected() -> None:
    rejected = trap("bedrock.jsonl")[0][2]
    assert (rejected["status"], rejected["error_class"]) == ("rejected", "ThrottlingException")


def test_bedrocks_log_from_cloudwatch_is_read_out_of_its_events(tmp_path: Path) -> None:
    rows, _ = trap("bedrock.cloudwatch.json")
    assert column(rows, "prompt_tokens") == [35, 7]
    assert column(rows, "source_row") == [1, 2]
    events = json.loads((WITH_BAD_ROWS / "bedrock.cloudwatch.json").read_text())["events"]
    insights = tmp_path / "insights.json"
    insights.write_text(json.dumps([{"@timestamp": "x", "@message": event["message"]} for event in events]))
    assert column(rows_of(insights, "bedrock")[0], "prompt_tokens") == [35, 7]


def test_helicones_own_codes_say_who_ended_a_stream() -> None:
    rows, dropped = trap("helicone.jsonl")
    assert column(rows, "status") == ["ok", "cancelled", "rejected"]
    assert column(rows, "http_status") == [200, None, 429]
    assert column(rows, "received_tokens") == [64, 11, None]
    assert column(rows, "output_tokens") == [64, None, None]
    assert dropped == {"not a request for text (embeddings)": (1, [4])}


def test_helicones_milliseconds_are_seconds_and_its_users_and_sessions_are_kept() -> None:
    first = trap("helicone.jsonl")[0][0]
    assert (first["e2e_s"], first["ttft_s"]) == (1.84, 0.095)
    assert (first["tenant"], first["session_id"], first["max_tokens"], first["stream"]) == ("ada", "s-1", 256, True)


def test_what_helicones_cache_answered_reached_no_model(tmp_path: Path) -> None:
    record = json.loads((WITH_BAD_ROWS / "helicone.jsonl").read_text().splitlines()[0])
    path = tmp_path / "log"
    path.write_text(json.dumps(record | {"cache_reference_id": "b1f2c3d4-0000-4000-8000-000000000001"}))
    assert rows_of(path, "helicone") == ([], {"answered from Helicone's cache": (1, [1])})


def test_langfuses_latency_is_computed_again_whatever_its_unit() -> None:
    in_ms, _ = trap("langfuse.json")
    in_s, _ = trap("langfuse.export.jsonl")
    assert column(in_ms, "e2e_s") == pytest.approx([1.8, 0.4])
    assert column(in_s, "e2e_s") == pytest.approx([1.8])
    assert in_ms[0]["ttft_s"] == in_s[0]["ttft_s"] == pytest.approx(0.25)


def test_langfuses_usage_is_the_sum_of_its_kinds_and_its_trace_says_who_asked() -> None:
    rows, dropped = trap("langfuse.json")
    first, failed = rows
    assert (first["prompt_tokens"], first["cached_prompt_tokens"], first["output_tokens"]) == (428, 128, 64)
    assert "max_tokens" not in first
    assert column(rows, "tenant") == ["ada", "ada"]
    assert column(rows, "session_id") == ["s-1", "s-1"]
    assert (failed["status"], failed["error_class"]) == ("error", "RateLimitError")
    assert dropped == {"not a generation (SPAN)": (1, [1])}


def test_langfuses_samples_hold_the_generations_that_their_traces_have(samples: Path) -> None:
    found = {path.name.split("-")[0]: rows_of(path, "langfuse")[0] for path in (samples / "langfuse").iterdir()}
    assert [(row["prompt_tokens"], row["output_tokens"]) for row in found["autogen"]] == [(41, 3)]
    assert [(row["prompt_tokens"], row["e2e_s"]) for row in found["google"]] == [(1200, 1.874)]
    assert sum(column(found["pydantic"], "prompt_tokens")) == 417 + 131 + 502 + 265
    assert sum(column(found["pydantic"], "output_tokens")) == 53 + 69 + 14 + 73


def test_sagemakers_bodies_are_read_as_text_and_as_base64() -> None:
    rows, dropped = trap("sagemaker.jsonl")
    assert column(rows, "prompt_tokens") == [12, None]
    assert column(rows, "output_tokens") == [8, 33]
    assert column(rows, "max_tokens") == [50, 96]
    assert column(rows, "request_bytes") == [87, 65]
    assert column(rows, "source_request_id") == ["e-1", "mine-2"]
    assert dropped == {"captured neither a request nor a response": (1, [3])}


def test_sagemakers_documented_record_is_read(samples: Path) -> None:
    rows, _ = rows_of(samples / "sagemaker" / "DOCEXAMPLE_data_capture.jsonl", "sagemaker")
    assert [(row["prompt_tokens"], row["output_tokens"], row["max_tokens"]) for row in rows] == [(12, 8, 50)]


def test_no_prompt_and_no_answer_is_in_an_attempt() -> None:
    """Their hashes are those of one process, so that nobody can look one up."""
    secret = 0
    for path in sorted(WITH_BAD_ROWS.iterdir()):
        secret += path.read_bytes().count(b"SECRET")
        for batch in connector(path.name.split(".")[0]).read(str(path)):
            assert "SECRET" not in str(batch.attempts.to_pylist()), path
            assert "SECRET" not in str(batch.dropped.reasons), path
    assert secret > 10


def test_equal_requests_have_equal_hashes_and_others_do_not() -> None:
    rows, _ = trap("langfuse.json")
    assert rows[0]["body_hash"] == rows[1]["body_hash"]
    rows, _ = trap("bedrock.jsonl")
    assert len(set(column(rows, "body_hash"))) == 3
