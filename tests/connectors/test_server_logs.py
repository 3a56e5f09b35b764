"""Logs of the servers themselves: vLLM's and SGLang's, of any version and from any container, and uvicorn's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors import vllm_log
from connectors.files import head
from connectors.registry import connector
from tests.connectors.examples import WITH_BAD_ROWS
from tests.connectors.reading import column, rows_of, trap
from trace_schema.errors import BadConfig, BadInput

LIVE = Path(__file__).parents[3] / "shared" / "live" / "nginx"
RECEIVED = "Received request cmpl-a-0: params: SamplingParams(n=1, ignore_eos=False, max_tokens=7), lora_request: None."
ABORTED = "Aborted request cmpl-a-0."


def log_of(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_an_old_log_of_vllm_knows_lengths_of_prompts_and_what_finished() -> None:
    rows, dropped = trap("vllm_log.v0.log")
    assert column(rows, "prompt_tokens") == [5, 3]
    assert column(rows, "max_tokens") == [200, 64]
    assert column(rows, "status") == ["ok", "cancelled"]
    assert [*dropped.values()] == [(1, [9])]


def test_a_year_that_begins_while_vllm_writes_is_no_step_back() -> None:
    rows, _ = trap("vllm_log.v0.log")
    assert column(rows, "e2e_s") == [4.0, 5.0]
    with_year, _ = trap("vllm_log.v0.log", year=2025)
    assert column(with_year, "arrival_s") == [1767225598.0, 1767225599.0]
    assert column(with_year, "e2e_s") == [4.0, 5.0]


def test_without_a_year_vllms_times_are_none_since_1970() -> None:
    rows, _ = trap("vllm_log.v1.log")
    assert "arrival_unix_ns" not in rows[0]
    east, _ = trap("vllm_log.v1.log", year=2026, tz="Europe/Berlin")
    utc, _ = trap("vllm_log.v1.log", year=2026)
    assert utc[0]["arrival_s"] - east[0]["arrival_s"] == 3600
    assert utc[0]["arrival_s"] == 1772442001.0


def test_an_abort_that_vllm_writes_under_two_ids_is_one() -> None:
    rows, dropped = trap("vllm_log.v1.log")
    assert column(rows, "source_request_id") == ["cmpl-aa-0", "cmpl-bb-0", "cmpl-bb-0", "cmpl-cc-0"]
    assert column(rows, "engine_request_id")[1:3] == ["cmpl-bb-0-a268c02a", "cmpl-bb-0-99999999"]
    assert column(rows, "status") == ["ok", "cancelled", "ok", "unknown"]
    assert dropped == {}


def test_a_request_is_known_to_have_finished_once_the_engine_is_idle() -> None:
    """The last request came after the engine was idle: it was running when the log ended."""
    rows, _ = trap("vllm_log.v1.log")
    assert rows[0]["status"] == "ok"
    assert rows[3]["status"] == "unknown"


def test_what_only_its_limit_ends_is_as_long_as_its_limit() -> None:
    rows, _ = trap("vllm_log.v1.log")
    assert column(rows, "output_tokens") == [35, None, None, None]
    assert column(rows, "model") == ["llama"] * 4


def test_logged_outputs_are_counted_and_not_kept() -> None:
    rows, _ = trap("vllm_log.json.log")
    assert [(row["output_tokens"], row["finish_reason"], row["e2e_s"]) for row in rows] == [(4, "stop", 1.25)]


def test_who_let_go_is_said_by_the_user() -> None:
    rows, _ = trap("vllm_log.v1.log", aborts="timeout")
    assert (rows[1]["status"], rows[1]["cancel_reason"]) == ("timeout", "client_timeout")


@pytest.mark.parametrize(
    "put",
    [
        lambda n, message: f"INFO 03-02 09:00:0{n} [async_llm.py:1] {message}",
        lambda n, message: f"INFO 03-02 09:00:0{n} async_llm_engine.py:1] {message}",
        lambda n, message: f"(APIServer_0 pid=7) INFO 03-02 09:00:0{n} [v1/engine/async_llm.py:1] {message}",
        lambda n, message: f"\x1b[0;36m(APIServer pid=7)\x1b[0;0m INFO 03-02 09:00:0{n} [async_llm.py:1] {message}",
        lambda n, message: f"vllm-1  | INFO 03-02 09:00:0{n} [async_llm.py:1] {message}",
        lambda n, message: (
            f"2026-03-02T09:00:0{n}.250000000Z stdout F INFO 03-02 09:00:0{n} [async_llm.py:1] {message}"
        ),
        lambda n, message: f"2026-03-02T09:00:0{n}Z INFO 03-02 09:00:0{n} [async_llm.py:1] {message}",
        lambda n, message: f"2026-03-02 09:00:0{n}.901 1647689 kserve.trace {message}",
        lambda n, message: json.dumps(
            {"log": f"INFO 03-02 09:00:0{n} [a.py:1] {message}\n", "time": f"2026-03-02T09:00:0{n}Z"}
        ),
        lambda n, message: json.dumps({"asctime": f"03-02 09:00:0{n}", "levelname": "INFO", "message": message}),
        lambda n, message: json.dumps({"ts": 1772442000.0 + n, "msg": message}),
    ],
)
def test_what_containers_and_formatters_put_around_vllms_lines_changes_nothing(
    tmp_path: Path, put: Callable[[int, str], str]
) -> None:
    path = log_of(tmp_path / "log", put(1, RECEIVED), put(6, ABORTED))
    rows, dropped = rows_of(path, "vllm_log", year=2026)
    assert [(row["status"], row["e2e_s"], row["max_tokens"]) for row in rows] == [("cancelled", 5.0, 7)]
    assert rows[0]["arrival_s"] == pytest.approx(1772442001, abs=1)
    assert dropped == {}
    assert connector("vllm_log").sniff(head(str(path)), str(path)) == 1.0


def test_a_prompt_that_reads_like_a_line_of_the_log_is_none(tmp_path: Path) -> None:
    prompt = "Aborted request cmpl-a-0. SamplingParams(max_tokens=1) prompt_token_ids: [1]"
    line = f"INFO 03-02 09:00:01 logger.py:36] Received request cmpl-a-0: prompt: {prompt!r}, params: SamplingParams("
    path = log_of(tmp_path / "log", line + "n=1, max_tokens=9), prompt_token_ids: [1, 2, 3], lora_request: None.")
    rows, _ = rows_of(path, "vllm_log")
    assert [(row["status"], row["prompt_tokens"], row["max_tokens"]) for row in rows] == [("unknown", 3, 9)]


def test_a_long_log_is_given_out_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_log, "FLUSHED", 2)
    monkeypatch.setattr("connectors.files.BLOCK_BYTES", 400)
    monkeypatch.setattr("connectors.files.PART_BYTES", 400)
    lines = []
    for n in range(40):
        received, aborted = (text.replace("cmpl-a-0", f"cmpl-{n}-0") for text in (RECEIVED, ABORTED))
        lines += [f"INFO 03-02 09:00:01 [a.py:1] {received}", f"INFO 03-02 09:00:06 [a.py:1] {aborted}"]
    path = log_of(tmp_path / "log", *lines)
    parts = [batch.attempts.num_rows for batch in connector("vllm_log").read(str(path))]
    assert sum(parts) == 40
    assert max(parts) < 20
    rows, dropped = rows_of(path, "vllm_log")
    assert column(rows, "status") == ["cancelled"] * 40
    assert dropped == {}


def test_a_log_of_vllm_without_requests_says_how_to_have_them(tmp_path: Path) -> None:
    path = log_of(tmp_path / "log", "INFO 03-02 09:00:01 [api_server.py:1] vLLM API server version 0.9.0")
    with pytest.raises(BadInput, match="--enable-log-requests"):
        rows_of(path, "vllm_log")


def test_a_zone_that_there_is_not_is_refused() -> None:
    with pytest.raises(BadConfig, match="Europe/Berlin"):
        connector("vllm_log", options={"tz": "Mars/Olympus"})


@pytest.mark.skipif(not LIVE.is_dir(), reason="there are no recordings beside this repository")
def test_vllms_log_of_an_incident_holds_all_its_requests_and_aborts() -> None:
    rows, dropped = rows_of(LIVE / "vllm.server.log.gz", "vllm_log")
    lines = [json.loads(line) for line in (LIVE / "truth.jsonl").read_text().splitlines()]
    asked = sorted(call["output"] for call in lines if call["kind"] == "call")
    assert dropped == {}
    assert Counter(column(rows, "status")) == {"cancelled": 225, "ok": 96, "unknown": 39}
    assert len(rows) == sum(line["kind"] == "attempt" for line in lines) == 360
    assert {*column(rows, "output_tokens")} == {*asked}


def test_sglangs_events_are_one_row_for_a_request() -> None:
    rows, dropped = trap("sglang.jsonl")
    by_id = {row["source_request_id"]: row for row in rows}
    assert {rid: row["status"] for rid, row in by_id.items()} == {
        "g-1": "ok", "g-2": "cancelled", "g-3": "unknown", "g-4": "timeout"
    }  # fmt: skip
    assert (by_id["g-1"]["prompt_tokens"], by_id["g-1"]["output_tokens"], by_id["g-1"]["max_tokens"]) == (321, 40, 64)
    assert by_id["g-1"]["ttft_s"] == pytest.approx(0.1, abs=1e-6)
    assert by_id["g-4"]["cancel_reason"] == "engine_timeout"
    assert [*dropped.values()] == [(1, [6])]


def test_the_zone_of_sglangs_local_times_is_the_one_that_its_other_clock_shows() -> None:
    """Its stamps say 10:00, its other clock 09:00 UTC; g-3 and g-4 have stamps alone."""
    times = {row["source_request_id"]: row["arrival_s"] for row in trap("sglang.jsonl")[0]}
    assert times == pytest.approx(
        {"g-1": 1772442000.12, "g-2": 1772442000.4, "g-3": 1772442002.0, "g-4": 1772442003.5}, abs=1e-3
    )
    said = {row["source_request_id"]: row["arrival_s"] for row in trap("sglang.jsonl", tz="UTC")[0]}
    assert said["g-3"] - times["g-3"] == 3600


@pytest.mark.parametrize(
    ("finish", "status"),
    [
        ({"type": "length", "length": 4}, "ok"),
        ({"type": "abort", "message": "Aborted"}, "cancelled"),
        ({"type": "abort", "message": "Request waiting timeout reached.", "status_code": 503}, "timeout"),
        ({"type": "abort", "message": "The request queue is full.", "status_code": 503}, "rejected"),
        ({"type": "abort", "message": "Input is longer than the model's context", "status_code": 400}, "rejected"),
        ({"type": "abort", "message": "boom", "status_code": 500}, "error"),
        ("stop", "ok"),
        (None, "unknown"),
    ],
)
def test_what_sglang_calls_an_abort_is_a_client_unless_it_says_otherwise(
    tmp_path: Path, finish: Any, status: str
) -> None:
    line = json.loads((WITH_BAD_ROWS / "sglang.metrics.log").read_text().splitlines()[0])
    rows, _ = rows_of(log_of(tmp_path / "log", json.dumps(line | {"finish_reason": finish})), "sglang")
    assert column(rows, "status") == [status]


def test_sglangs_export_of_metrics_is_read_and_its_health_checks_are_left_out(tmp_path: Path) -> None:
    rows, _ = trap("sglang.metrics.log")
    assert column(rows, "output_tokens") == [64, None]
    assert column(rows, "received_tokens") == [64, 3]
    line = json.loads((WITH_BAD_ROWS / "sglang.metrics.log").read_text().splitlines()[0])
    path = log_of(tmp_path / "log", json.dumps(line | {"id": "HEALTH_CHECK_17"}))
    assert rows_of(path, "sglang") == ([], {"a health check": (1, [1])})


def test_uvicorns_lines_without_times_are_refused_with_what_to_do(tmp_path: Path) -> None:
    path = log_of(
        tmp_path / "log",
        "INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)",
        'INFO:     10.0.0.7:36766 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    )
    assert connector("uvicorn").sniff(head(str(path)), str(path)) > 0.5
    with pytest.raises(BadInput, match=r"no time.*asctime"):
        rows_of(path, "uvicorn")


def test_uvicorns_lines_with_times_are_answers_and_their_codes() -> None:
    rows, dropped = trap("uvicorn.timed.log")
    assert column(rows, "http_status") == [200, 503]
    assert column(rows, "arrival_s") == pytest.approx([1772442000.12, 1772442000.5])
    assert column(rows, "arrival_basis") == ["response_header"] * 2
    assert {reason: rows for reason, (_, rows) in dropped.items()} == {
        "not a line of uvicorn's access log": [3], "not a request for text (GET)": [4]
    }  # fmt: skip
    later, _ = trap("uvicorn.timed.log", tz="-05:00")
    assert later[0]["arrival_s"] - rows[0]["arrival_s"] == 5 * 3600


def test_uvicorns_sample_is_refused(samples: Path) -> None:
    with pytest.raises(BadInput, match="no time"):
        rows_of(samples / "uvicorn-access" / "GENERATED_uvicorn0.54_access.log", "uvicorn")


def test_vllms_sample_is_cut_short_in_mid_air_and_its_last_requests_are_unknown(samples: Path) -> None:
    rows, dropped = rows_of(samples / "vllm-server-log" / "GENERATED_vllm0.32_cancel.head900.log", "vllm_log")
    assert Counter(column(rows, "status")) == {"unknown": 116, "cancelled": 112, "ok": 34}
    assert dropped == {}


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("vllm_log.v1.log", {}, "no year"),
        ("vllm_log.v1.log", {"year": 2026}, "taken as UTC"),
        ("vllm_log.v1.log", {"year": 2026, "tz": "Asia/Tokyo"}, None),
        ("uvicorn.timed.log", {}, "taken as UTC"),
        ("uvicorn.timed.log", {"tz": "Asia/Tokyo"}, None),
    ],
)
def test_what_is_taken_for_granted_of_a_clock_is_said(name: str, options: dict[str, Any], said: str | None) -> None:
    made: Any = connector(name.split(".")[0], options=options)
    attempts = pa.concat_tables(batch.attempts for batch in made.read(str(WITH_BAD_ROWS / name)))
    found = [note for note in made.notes(attempts) if "UTC" in note or "year" in note]
    assert [said in note for note in found] == [True] if said else found == []
