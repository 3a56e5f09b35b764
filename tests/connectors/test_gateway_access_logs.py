"""Logs of gateways: when a request came, what became of it, and what cannot be known of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connectors.envoy import ending
from connectors.http_log import address, other_request, outcome
from replay.ingest import ingest
from tests.connectors.examples import WITH_BAD_ROWS
from tests.connectors.reading import column, rows_of, trap
from trace_schema.errors import BadInput


def written(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def changed(name: str, **values: Any) -> dict[str, Any]:
    """The first line of a log with some of its values replaced."""
    return json.loads((WITH_BAD_ROWS / name).read_text().splitlines()[0]) | values


@pytest.mark.parametrize(
    ("code", "flags", "expected"),
    [
        (200, "-", ("ok", None)),
        (0, "DC", ("cancelled", "client_disconnect")),
        ("0", None, ("cancelled", "client_disconnect")),
        (200, "DC", ("cancelled", "client_disconnect")),
        (200, "DownstreamConnectionTermination", ("cancelled", "client_disconnect")),
        (504, "UT", ("timeout", "gateway_timeout")),
        (504, "UT,URX", ("timeout", "gateway_timeout")),
        (408, "SI", ("timeout", "gateway_timeout")),
        (503, "URX,UF", ("error", None)),
        (503, "UO", ("rejected", None)),
        (429, "RL", ("rejected", None)),
        (503, "-", ("rejected", None)),
        (502, "-", ("error", None)),
        (400, "-", ("rejected", None)),
        (None, None, ("unknown", None)),
    ],
)
def test_envoys_flags_say_who_ended_a_request_whatever_its_code(code: Any, flags: Any, expected: Any) -> None:
    assert ending(code, flags) == expected


def test_envoy_knows_a_client_that_left_before_its_response_and_one_that_left_during_it() -> None:
    rows, dropped = trap("envoy.jsonl")
    before, during = rows[1], rows[2]
    assert (before["status"], before.get("http_status"), before["e2e_s"]) == ("cancelled", None, 5.002)
    assert (during["status"], during["http_status"], during["e2e_s"]) == ("cancelled", 200, 2.113)
    assert column(rows, "finish_reason") == ["complete", "incomplete", "incomplete", None, None, None]
    assert dropped == {"not a request for text (GET)": (1, [7])}


def test_envoys_headers_say_who_asked_how_long_it_waits_and_whether_it_is_a_retry() -> None:
    first = trap("envoy.jsonl")[0][0]
    assert first["tenant"] == "ada"
    assert first["client"] == "OpenAI/Python 3.57.0"
    assert (first["retry_index"], first["client_timeout_s"]) == (0, 5.0)
    assert (first["request_bytes"], first["response_bytes"]) == (812, 2410)
    assert "prompt_tokens" not in first


@pytest.mark.parametrize("key", ["response_code", "responseCode", "response-code", "RESPONSE_CODE"])
def test_envoys_keys_are_known_however_they_are_spelled(tmp_path: Path, key: str) -> None:
    record = {name: value for name, value in changed("envoy.jsonl").items() if name != "response_code"}
    rows, _ = rows_of(written(tmp_path / "log", record | {key: "504"}), "envoy")
    assert column(rows, "http_status") == [504]


def test_envoys_start_may_be_seconds_since_1970(tmp_path: Path) -> None:
    rows, _ = rows_of(written(tmp_path / "log", changed("envoy.jsonl", start_time="1772442000.120")), "envoy")
    assert column(rows, "arrival_s") == [1772442000.12]


@pytest.mark.parametrize("name", ["envoy.text.log", "envoy.istio.log"])
def test_the_text_formats_of_envoy_say_what_its_json_says(name: str) -> None:
    rows, dropped = trap(name)
    assert column(rows, "e2e_s")[0] == 1.84
    assert column(rows, "request_bytes")[:2] == [812, 900]
    assert column(rows, "status")[:2] == ["ok", "cancelled"]
    assert dropped == ({} if "istio" in name else {"not a line of Envoy's access log": (1, [3])})


def test_a_log_of_envoy_is_no_trace_by_itself_and_the_refusal_says_what_would_make_it_one() -> None:
    with pytest.raises(BadInput, match=r"--with vllm\.steps\.jsonl.*--bytes-per-token") as refused:
        ingest([str(WITH_BAD_ROWS / "envoy.jsonl")])
    assert "Envoy knows no tokens" in str(refused.value)
    calls = ingest([str(WITH_BAD_ROWS / "envoy.jsonl")], bytes_per_token=4.0).calls
    assert calls["prompt_tokens"].to_pylist()[0] == 203


def test_envoys_ai_gateway_adds_models_and_tokens_and_its_tools_calls_are_left_out() -> None:
    rows, dropped = trap("envoy_ai_gateway.jsonl")
    assert column(rows, "prompt_tokens") == [321, None]
    assert column(rows, "output_tokens") == [64, None]
    assert column(rows, "model") == ["llama-3.1-8b"] * 2
    assert column(rows, "status") == ["ok", "cancelled"]
    assert dropped == {"not a request for text (mcp)": (1, [3])}
    older, _ = trap("envoy_ai_gateway.older.json")
    assert (older[0]["prompt_tokens"], older[0]["output_tokens"]) == (321, 64)


def test_the_tokens_of_a_stream_that_was_cancelled_are_what_its_client_had(tmp_path: Path) -> None:
    record = changed("envoy_ai_gateway.jsonl", response_flags="DC")
    rows, _ = rows_of(written(tmp_path / "log", record), "envoy_ai_gateway")
    assert (rows[0].get("output_tokens"), rows[0]["received_tokens"]) == (None, 64)


def test_the_documented_lines_of_envoys_ai_gateway_are_read(samples: Path) -> None:
    folder = samples / "envoy-ai-gateway"
    rows, _ = rows_of(folder / "docs_accesslog_example_1.json", "envoy_ai_gateway")
    assert (rows[0]["prompt_tokens"], rows[0]["output_tokens"], rows[0]["e2e_s"]) == (15, 7, 1.526)
    rows, dropped = rows_of(folder / "docs_accesslog_example_2.json", "envoy_ai_gateway")
    assert rows == []
    assert [*dropped] == ["not a request for text (mcp)"]


def test_traefiks_durations_are_nanoseconds_and_a_line_is_written_at_the_end() -> None:
    rows, dropped = trap("traefik.jsonl")
    assert column(rows, "e2e_s") == pytest.approx([1.840123456, 5.002, 2.0])
    assert column(rows, "arrival_unix_ns")[0] == 1772442000_120000001
    assert rows[2]["arrival_s"] == pytest.approx(1772442005.5)
    assert column(rows, "arrival_basis") == ["logged_start", "logged_start", "end_minus_duration"]
    assert column(rows, "status") == ["ok", "cancelled", "timeout"]
    assert column(rows, "retry_index") == [0, 1, None]
    assert column(rows, "tenant") == ["10.0.0.7", "ada", "10.0.0.8"]
    assert dropped == {"not a request for text (GET)": (1, [4])}


def test_kong_knows_tokens_where_a_plugin_proxies_and_bytes_everywhere() -> None:
    rows, dropped = trap("kong.jsonl")
    assert column(rows, "prompt_tokens") == [321, None, 28]
    assert column(rows, "output_tokens") == [64, None, None]
    assert column(rows, "ttft_s") == [0.095, None, None]
    assert column(rows, "request_bytes") == [812, 900, 900]
    assert column(rows, "status") == ["ok", "cancelled", "cancelled"]
    assert column(rows, "source_request_id") == ["q-1", "k-2", "k-3"]
    assert dropped == {"not a request for text (GET)": (1, [4])}


def test_kongs_milliseconds_are_seconds() -> None:
    rows, _ = trap("kong.jsonl")
    assert column(rows, "arrival_s") == pytest.approx([1772442000.12, 1772442000.5, 1772442001.0], abs=1e-6)
    assert column(rows, "e2e_s") == [1.84, 5.002, 0.9]


def test_both_logs_of_api_management_are_one_row_for_a_request() -> None:
    rows, dropped = trap("azure_apim.jsonl")
    whole, left = rows
    assert (whole["prompt_tokens"], whole["output_tokens"], whole["status"], whole["e2e_s"]) == (321, 64, "ok", 1.84)
    assert (whole["model"], whole["deployment"], whole["tenant"], whole["source_row"]) == (
        "gpt-4o-mini", "gpt", "team-a", 1
    )  # fmt: skip
    assert (left["status"], left["error_class"], left["e2e_s"]) == ("cancelled", "ClientConnectionFailure", 5.002)
    assert dropped == {}


def test_rows_of_log_analytics_are_read_and_parts_of_a_request_joined() -> None:
    rows, _ = trap("azure_apim.workspace.json")
    assert column(rows, "prompt_tokens") == [321, 55]
    assert column(rows, "stream") == [True, False]
    assert column(rows, "status") == ["unknown", "unknown"]


def test_records_of_an_event_hub_are_read_one_by_one(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (WITH_BAD_ROWS / "azure_apim.jsonl").read_text().splitlines()]
    hub = written(tmp_path / "hub.json", {"records": lines[:2]}, {"records": lines[2:]})
    found, _ = rows_of(hub, "azure_apim")
    assert [row["source_request_id"] for row in found] == ["c-1", "c-2"]
    assert found[0]["prompt_tokens"] == 321


@pytest.mark.parametrize(
    ("value", "expected"),
    [("10.0.0.7:41332", "10.0.0.7"), ("10.0.0.7, 10.0.0.1", "10.0.0.7"), ("[2001:db8::1]:443", "2001:db8::1"),
     ("2001:db8::1", "2001:db8::1"), ("-", None), (None, None), ([], None)],
)  # fmt: skip
def test_a_clients_address_is_the_first_without_its_port(value: Any, expected: str | None) -> None:
    assert address(value) == expected


@pytest.mark.parametrize(
    ("method", "path", "is_other"),
    [("POST", "/v1/chat/completions", False), ("POST", "/openai/deployments/x/chat/completions?api-version=1", False),
     (None, None, False), ("GET", "/v1/models", True), ("POST", "/v1/embeddings", True), ("POST", "/tokenize/", True),
     ("PRI", "*", True)],
)  # fmt: skip
def test_only_what_may_ask_for_text_is_a_request(method: str | None, path: str | None, is_other: bool) -> None:
    assert (other_request(method, path) is not None) == is_other


def test_codes_say_who_gave_up() -> None:
    assert outcome(499) == outcome("0") == ("cancelled", "client_disconnect")
    assert outcome(504)[0] == outcome(524)[0] == "timeout"
    assert [outcome(code)[0] for code in (200, 302, 404, 429, 500, 503, None, "x", -1, 7)] == [
        "ok", "ok", "rejected", "rejected", "error", "rejected", "unknown", "unknown", "unknown", "unknown"
    ]  # fmt: skip
