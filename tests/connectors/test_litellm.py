"""Events of a LiteLLM proxy: what a line is worth depends on how its call went."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connectors.base import Batch
from connectors.litellm import LiteLlm
from connectors.registry import guess

START = 1796011879.25
EVENT: dict[str, Any] = {
    "id": "chatcmpl-be6f",
    "litellm_call_id": "call-1",
    "trace_id": "trace-1",
    "call_type": "acompletion",
    "custom_llm_provider": "hosted_vllm",
    "status": "success",
    "stream": True,
    "startTime": START,
    "endTime": START + 2.0,
    "completionStartTime": START + 0.5,
    "model": "hosted_vllm/tiny",
    "model_group": "tiny",
    "prompt_tokens": 1135,
    "completion_tokens": 19,
    "end_user": "u8",
    "metadata": {
        "user_agent": "AsyncOpenAI/Python 3.57.0",
        "requester_metadata": {"headers": {"content-length": "1335", "x-stainless-retry-count": "1"}},
        "requester_custom_headers": {"x-stainless-read-timeout": "18"},
    },
    "model_parameters": {"max_tokens": 19, "stream": True},
}
TIMEOUT: dict[str, Any] = {
    **EVENT,
    "id": "call-1",
    "status": "failure",
    "stream": None,
    "endTime": START + 5.01,
    "completionStartTime": START + 5.01,
    "prompt_tokens": 0,
    "completion_tokens": 0,
    "error_str": "litellm.Timeout: Connection timed out. Timeout passed=5.0, time taken=5.002 seconds",
    "error_information": {"error_class": "Timeout", "error_code": "408"},
}
SPEND: dict[str, Any] = {
    "request_id": "chatcmpl-228",
    "call_type": "acompletion",
    "api_key": "sk-hashed",
    "spend": 0.1,
    "startTime": "2026-11-30 04:11:19.250000",
    "endTime": "2026-11-30 04:11:21.250000",
    "completionStartTime": "2026-11-30 04:11:21.250000",
    "model": "gpt-4o",
    "model_group": "",
    "cache_hit": "None",
    "end_user": "",
    "user": "",
    "session_id": "s-1",
    "prompt_tokens": 10,
    "completion_tokens": 20,
    "metadata": json.dumps({"user_api_key_user_id": None, "error_information": None}),
    "status": "success",
}


def read(tmp_path: Path, *events: dict[str, Any], array: bool = False) -> Batch:
    path = tmp_path / "export"
    text = json.dumps(list(events), indent=1) if array else "".join(json.dumps(event) + "\n" for event in events)
    path.write_text(text)
    reader, _ = guess(path.read_bytes(), str(path))
    assert reader.name == "litellm"
    (batch,) = reader.read(str(path))
    return batch


def one(tmp_path: Path, event: dict[str, Any]) -> dict[str, Any]:
    (row,) = read(tmp_path, event).attempts.to_pylist()
    return dict(row)


def test_a_line_says_who_asked_for_what_and_how_it_went(tmp_path: Path) -> None:
    row = one(tmp_path, EVENT)
    assert (row["arrival_s"], row["e2e_s"], row["ttft_s"], row["status"]) == (START, 2.0, 0.5, "ok")
    assert (row["prompt_tokens"], row["output_tokens"], row["max_tokens"]) == (1135, 19, 19)
    assert (row["tenant"], row["model"], row["client"]) == ("u8", "tiny", "AsyncOpenAI/Python 3.57.0")
    assert (row["retry_index"], row["client_timeout_s"], row["request_bytes"]) == (1, 18.0, 1335)
    assert (row["retry_group"], row["trace_id"], row["source_request_id"]) == ("call-1", "trace-1", "chatcmpl-be6f")


@pytest.mark.parametrize("array", [False, True])
def test_spend_logs_write_objects_as_texts_and_none_as_a_word(tmp_path: Path, array: bool) -> None:
    (row,) = read(tmp_path, SPEND, array=array).attempts.to_pylist()
    assert (row["arrival_s"], row["e2e_s"]) == (START, 2.0)
    assert (row["source_request_id"], row["session_id"], row["model"]) == ("chatcmpl-228", "s-1", "gpt-4o")
    assert row["tenant"] is not None
    assert "sk-" not in row["tenant"]


def test_a_completion_that_starts_at_its_end_has_no_time_to_first_token(tmp_path: Path) -> None:
    assert one(tmp_path, SPEND)["ttft_s"] is None
    assert one(tmp_path, {**EVENT, "completionStartTime": EVENT["endTime"]})["ttft_s"] is None


def test_zero_tokens_of_a_failure_are_unknown(tmp_path: Path) -> None:
    row = one(tmp_path, TIMEOUT)
    assert (row["status"], row["cancel_reason"], row["gateway_timeout_s"]) == ("timeout", "gateway_timeout", 5.0)
    assert (row["prompt_tokens"], row["output_tokens"], row["received_tokens"], row["ttft_s"]) == (None,) * 4


def test_a_stream_that_its_user_left_is_a_success_to_litellm_with_tokens_of_its_own(tmp_path: Path) -> None:
    about = {"error_class": "ClientDisconnected", "error_code": "499"}
    row = one(tmp_path, {**EVENT, "error_information": about, "completion_tokens": 7})
    assert (row["status"], row["cancel_reason"]) == ("cancelled", "client_disconnect")
    assert (row["output_tokens"], row["received_tokens"]) == (None, 7)
    assert row["prompt_token_source"] == "client_tokenizer"


@pytest.mark.parametrize(
    ("error", "status"),
    [("RateLimitError", "rejected"), ("ContextWindowExceededError", "rejected"), ("InternalServerError", "error"),
     ("APITimeoutError", "timeout"), ("ReadTimeout", "timeout")],
)  # fmt: skip
def test_what_an_error_means(tmp_path: Path, error: str, status: str) -> None:
    about = {"error_class": error, "error_code": ""}
    assert one(tmp_path, {**TIMEOUT, "error_information": about})["status"] == status


def test_a_call_that_failed_and_then_succeeded_began_again_when_it_had_failed(tmp_path: Path) -> None:
    whole = {**EVENT, "endTime": START + 19.0, "completionStartTime": START + 16.5}
    failed, answered = read(tmp_path, whole, TIMEOUT).attempts.sort_by("e2e_s").to_pylist()
    assert (failed["arrival_s"], failed["e2e_s"]) == (START, pytest.approx(5.01))
    assert answered["arrival_s"] == pytest.approx(START + 5.01)
    assert (answered["e2e_s"], answered["ttft_s"]) == (pytest.approx(13.99), pytest.approx(11.49))
    assert answered["arrival_basis"] == "end_of_failure"
    assert failed["retry_group"] == answered["retry_group"]


def test_what_runs_no_engine_is_dropped_and_counted(tmp_path: Path) -> None:
    batch = read(tmp_path, EVENT, {**EVENT, "cache_hit": "True"}, {**EVENT, "call_type": "aembedding"})
    assert (batch.attempts.num_rows, batch.rows_read) == (1, 3)
    assert set(batch.dropped.reasons) == {"answered from LiteLLM's own cache", "aembedding is no completion"}


def test_messages_are_kept_as_a_hash_alone(tmp_path: Path) -> None:
    row = one(tmp_path, {**EVENT, "messages": [{"role": "user", "content": "the cat sat"}]})
    assert row["body_hash"] is not None
    assert "cat" not in json.dumps(row)


def test_it_is_said_that_users_who_left_cannot_be_told_from_timeouts(tmp_path: Path) -> None:
    notes = " ".join(LiteLlm().notes(read(tmp_path, EVENT, TIMEOUT).attempts))
    assert "cannot be told from a timeout" in notes
    assert "1 failed lines have no token counts" in notes
