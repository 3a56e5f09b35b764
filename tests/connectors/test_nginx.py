"""Access logs of nginx, as people configure them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connectors.base import Batch
from connectors.nginx import Nginx
from connectors.registry import guess

LINE = {
    "msec": "1796008747.599",
    "request": "POST /v1/completions HTTP/1.1",
    "status": "200",
    "request_time": "0.489",
    "request_completion": "OK",
    "request_id": "bf50ca5397e25dab969f4a8fc2e4d0f4",
    "request_length": "4694",
    "upstream_status": "200",
    "upstream_response_time": "0.488",
    "http_user_agent": "AsyncOpenAI/Python 3.57.0",
    "remote_addr": "10.1.2.3",
}
COMBINED = '10.1.2.3 - - [30/Nov/2026:03:19:07 +0000] "POST /v1/completions HTTP/1.1" 200 3250 "-" "curl/8.5"'
SECOND = 1796008747.0
"""The time of COMBINED."""


def read(tmp_path: Path, *lines: str) -> Batch:
    """What becomes of the lines of a log that is known by itself."""
    path = tmp_path / "access.log"
    path.write_text("".join(line + "\n" for line in lines))
    reader, _ = guess(path.read_bytes(), str(path))
    assert reader.name == "nginx"
    (batch,) = reader.read(str(path))
    return batch


def one(tmp_path: Path, line: str | dict[str, Any]) -> dict[str, Any]:
    """The only attempt of a line."""
    batch = read(tmp_path, line if isinstance(line, str) else json.dumps(line))
    (row,) = batch.attempts.to_pylist()
    return dict(row)


def test_a_request_began_its_duration_before_its_line(tmp_path: Path) -> None:
    row = one(tmp_path, LINE)
    assert row["arrival_s"] == pytest.approx(1796008747.11)
    assert (row["e2e_s"], row["status"], row["arrival_basis"]) == (0.489, "ok", "end_minus_duration")
    assert (row["source_request_id"], row["request_bytes"]) == (LINE["request_id"], 4694)
    assert row["prompt_tokens"] is None


@pytest.mark.parametrize(
    ("changed", "status", "reason"),
    [
        ({"status": "499", "request_completion": ""}, "cancelled", "client_disconnect"),
        ({"status": "200", "request_completion": ""}, "cancelled", "client_disconnect"),
        ({"status": 504}, "timeout", "gateway_timeout"),
        ({"status": "502"}, "error", None),
        ({"status": "503"}, "rejected", None),
        ({"status": "429"}, "rejected", None),
        ({"status": "400"}, "rejected", None),
        ({"status": "000"}, "unknown", None),
    ],
)
def test_what_a_status_means(tmp_path: Path, changed: dict[str, Any], status: str, reason: str | None) -> None:
    row = one(tmp_path, {**LINE, **changed})
    assert (row["status"], row["cancel_reason"]) == (status, reason)


def test_what_broke_off_after_its_headers_was_a_stream(tmp_path: Path) -> None:
    cut = {**LINE, "request_completion": ""}
    assert [one(tmp_path, {**cut, "status": status})["stream"] for status in ("200", "499")] == [True, None]
    assert one(tmp_path, LINE)["stream"] is None


def test_without_completion_a_stream_that_was_cut_looks_whole(tmp_path: Path) -> None:
    line = {name: value for name, value in LINE.items() if name != "request_completion"}
    batch = read(tmp_path, json.dumps(line))
    assert batch.attempts["status"].to_pylist() == ["ok"]
    assert any("$request_completion" in note for note in Nginx().notes(batch.attempts))


def test_a_list_of_upstreams_is_a_try_of_each(tmp_path: Path) -> None:
    listed = {
        "upstream_status": "502, 504, 200",
        "upstream_response_time": "0.002, 3.000, 0.400",
        "request_time": "3.410",
    }
    batch = read(tmp_path, json.dumps({**LINE, **listed}))
    tries = batch.attempts.to_pylist()
    assert [t["status"] for t in tries] == ["error", "timeout", "ok"]
    assert [round(t["arrival_s"] - tries[0]["arrival_s"], 3) for t in tries] == [0.0, 0.002, 3.002]
    assert [round(t["e2e_s"], 3) for t in tries] == [0.002, 3.0, 0.408]
    assert len({t["retry_group"] for t in tries}) == 1
    assert {t["retry_source"] for t in tries} == {"upstream list"}
    assert batch.rows_read == 1


def test_retry_counts_timeouts_and_traces_come_from_headers(tmp_path: Path) -> None:
    headers = {
        "http_x_stainless_retry_count": "2",
        "http_x_stainless_read_timeout": "600.0",
        "http_traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "http_idempotency_key": "key-1",
        "http_x_user": "u4",
    }
    row = one(tmp_path, {**LINE, **headers})
    assert (row["retry_index"], row["client_timeout_s"]) == (2, 600.0)
    assert row["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert (row["idempotency_key"], row["tenant"], row["client"]) == ("key-1", "u4", LINE["http_user_agent"])


def test_a_secret_names_its_owner_without_being_kept(tmp_path: Path) -> None:
    row = one(tmp_path, {**LINE, "http_authorization": "Bearer sk-very-secret"})
    assert row["tenant"] not in (None, LINE["remote_addr"])
    assert "sk-very" not in json.dumps(row)


@pytest.mark.parametrize("name", ["$status", "Status", "status_code"])
def test_variables_may_be_named_otherwise(tmp_path: Path, name: str) -> None:
    line = {**{key: value for key, value in LINE.items() if key != "status"}, name: "499"}
    assert one(tmp_path, line)["status"] == "cancelled"


def test_a_log_without_escape_json_is_read(tmp_path: Path) -> None:
    text = json.dumps(LINE).replace("AsyncOpenAI", r"Async\x22OpenAI\x22")
    assert one(tmp_path, text)["client"] == 'Async"OpenAI"/Python 3.57.0'


@pytest.mark.parametrize("bare", ["-", "", "0.100, 0.388"])
def test_variables_outside_of_quotes_are_read(tmp_path: Path, bare: str) -> None:
    text = json.dumps(LINE).replace('"upstream_response_time": "0.488"', f'"upstream_response_time": {bare}')
    assert one(tmp_path, text)["status"] == "ok"


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /health HTTP/1.1",
        "GET /v1/models HTTP/1.1",
        "POST /v1/embeddings HTTP/1.1",
        "POST /tokenize HTTP/2.0",
        r"\x16",
    ],
)
def test_other_requests_are_dropped_and_counted(tmp_path: Path, request_line: str) -> None:
    batch = read(tmp_path, json.dumps(LINE), json.dumps({**LINE, "request": request_line}))
    assert (batch.attempts.num_rows, batch.dropped.total, batch.rows_read) == (1, 1, 2)


def test_the_combined_format_knows_the_second_of_the_end_alone(tmp_path: Path) -> None:
    row = one(tmp_path, COMBINED)
    assert (row["arrival_s"], row["arrival_basis"], row["e2e_s"]) == (SECOND, "logged_end", None)
    assert (row["status"], row["tenant"], row["client"]) == ("ok", "10.1.2.3", "curl/8.5")


def test_a_combined_line_may_be_followed_by_named_variables(tmp_path: Path) -> None:
    row = one(tmp_path, f'{COMBINED} rt=0.366 uct=0.000 uht=0.363 urt=0.363 us=200 rid="abc-123-def"')
    assert row["e2e_s"] == 0.366
    assert row["arrival_s"] == pytest.approx(SECOND - 0.366)
    assert row["source_request_id"] == "abc-123-def"


def test_named_lists_are_tries_too(tmp_path: Path) -> None:
    batch = read(tmp_path, f"{COMBINED} rt=0.366 uct=-, 0.000 uht=-, 0.363 urt=0.000, 0.363 us=502, 200")
    assert batch.attempts["status"].to_pylist() == ["error", "ok"]
    assert batch.rows_read == 1


@pytest.mark.parametrize("end", ["0.366 0.363", '"10.9.9.9" 0.366 0.363', '"-" 0.366'])
def test_a_combined_line_may_be_followed_by_bare_times(tmp_path: Path, end: str) -> None:
    assert one(tmp_path, f"{COMBINED} {end}")["e2e_s"] == 0.366


def test_the_common_format_is_read(tmp_path: Path) -> None:
    common = COMBINED.rsplit(' "-"', 1)[0]
    assert one(tmp_path, common)["status"] == "ok"


def test_a_zone_is_heeded(tmp_path: Path) -> None:
    assert one(tmp_path, COMBINED.replace("+0000", "+0530"))["arrival_s"] == SECOND - 5.5 * 3600


def test_lines_that_are_none_are_counted(tmp_path: Path) -> None:
    batch = read(tmp_path, COMBINED, "torn in the mid", COMBINED)
    assert batch.attempts["source_row"].to_pylist() == [1, 3]
    assert batch.dropped.reasons == {"not a line of an access log": (1, [2])}


def test_a_whole_log_format_needs_only_the_engines_sizes(tmp_path: Path) -> None:
    line = {**LINE, "retry_count": "0", "read_timeout": "5.0"}
    batch = read(tmp_path, json.dumps(line))
    assert len(Nginx().notes(batch.attempts)) == 1
