"""The public traces: each layout of each is known wherever it lies, and read to the last digit."""

from __future__ import annotations

import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors.base import Batch
from connectors.files import head
from connectors.registry import SURE, connector, guess
from replay.describe import describe
from replay.ingest import ingest
from tests.connectors.examples import TRACE_FORMATS, TRACES
from trace_schema.errors import BadConfig, BadInput

SEVERAL = ("mooncake_sessions.jsonl", "tracelab_sessions.csv")
"""Traces in which a row hangs on those before it."""


def batches(path: Path, name: str, **options: Any) -> list[Batch]:
    return list(connector(name, options=options).read(str(path)))


def attempts(path: Path, **options: Any) -> pa.Table:
    return pa.concat_tables([batch.attempts for batch in batches(path, TRACE_FORMATS[path.name], **options)])


def arrivals(name: str) -> list[float]:
    found: list[float] = ingest([str(TRACES / name)]).calls["arrival_s"].to_pylist()
    return found


@pytest.mark.parametrize("name", TRACE_FORMATS)
@pytest.mark.parametrize("packed", ["plain", "gzip", "zstd"])
def test_a_trace_is_known_by_its_content_whatever_its_name_and_packing(tmp_path: Path, name: str, packed: str) -> None:
    content = (TRACES / name).read_bytes()
    if packed == "gzip":
        content = gzip.compress(content)
    elif packed == "zstd":
        content = pa.compress(content, codec="zstd", asbytes=True)
    path = tmp_path / "what"
    path.write_bytes(content)
    trace = ingest([str(path)])
    assert trace.report is not None
    (file,) = trace.report.files
    assert (file.format, file.confidence, file.rows_emitted, file.dropped) == (TRACE_FORMATS[name], 1.0, 4, {})
    assert trace.calls.equals(ingest([str(TRACES / name)]).calls)


@pytest.mark.parametrize("name", TRACE_FORMATS)
def test_a_mark_blank_lines_and_columns_in_another_order_change_nothing(tmp_path: Path, name: str) -> None:
    lines = (TRACES / name).read_text().splitlines()
    if name.endswith("csv"):
        lines = [",".join(reversed(line.split(","))) for line in lines]
    else:
        lines = [json.dumps(dict(reversed(json.loads(line).items()))) for line in lines]
    path = tmp_path / "log"
    path.write_bytes(b"\xef\xbb\xbf\r\n" + "\r\n\r\n".join(lines).encode())
    assert ingest([str(path)]).calls.equals(ingest([str(TRACES / name)]).calls)


def test_azure_times_keep_their_digits_in_every_layout() -> None:
    assert arrivals("azure_2023.csv") == [0.0, 1e-7, 0.75, 2.5154321]
    assert arrivals("azure_2024.csv") == [0.0, 0.5, 0.500001, 2.5]
    assert arrivals("azure_2025.csv") == [0.0, 0.125, 0.875, 3.876]


def test_azure_rows_hold_lengths_and_images_and_say_nothing_of_outcomes() -> None:
    table = attempts(TRACES / "azure_2025.csv")
    assert table["prompt_tokens"].to_pylist() == [401, 1711, 4300, 960]
    assert table["output_tokens"].to_pylist() == [33, 90, 5, 120]
    assert [dict(extra) for extra in table["extra"].to_pylist()] == [{"num_images": n} for n in ("0", "2", "16", "1")]
    assert set(table["status"].to_pylist()) == {"unknown"}
    report = ingest([str(TRACES / "azure_2025.csv")]).report
    assert report is not None
    assert (report.time_resolution_s, report.failures_visible, report.retries_visible) == (0.001, False, False)


@pytest.mark.parametrize("name", ["burstgpt_1.csv", "burstgpt_3.csv"])
def test_a_burstgpt_response_of_no_tokens_is_a_failure_of_unknown_length(name: str) -> None:
    table = attempts(TRACES / name)
    assert table["status"].to_pylist() == ["ok", "error", "ok", "ok"]
    assert table["output_tokens"].to_pylist() == [21, None, 160, 75]
    assert table["prompt_tokens"].to_pylist() == [350, 900, 42, 1210]
    assert table["model"].to_pylist() == ["ChatGPT", "GPT-4", "ChatGPT", "GPT-4"]
    assert table["client"].to_pylist() == ["Conversation log", "API log", "API log", "Conversation log"]
    trace = ingest([str(TRACES / name)])
    assert trace.calls["observed_status"].to_pylist() == ["ok", "error", "ok", "ok"]
    assert trace.calls["output_censored"].to_pylist() == [False, True, False, False]
    assert trace.report is not None
    assert trace.report.failures_visible
    assert trace.report.time_resolution_s == 1.0
    assert trace.client.max_attempts is None


def test_the_third_burstgpt_has_sessions_and_durations_and_counts_from_its_own_start() -> None:
    table = attempts(TRACES / "burstgpt_3.csv")
    session = "11111111-aaaa-4bbb-8ccc-000000000001"
    assert table["session_id"].to_pylist() == [session, None, None, session]
    assert table["e2e_s"].to_pylist() == [12.0, None, None, 30.0]
    assert arrivals("burstgpt_3.csv") == [0.0, 0.0, 57.0, 296.0]
    assert arrivals("burstgpt_1.csv") == [4.0, 4.0, 61.0, 300.0]


def test_mooncake_lines_hold_milliseconds_and_hashes_of_64_bits() -> None:
    table = attempts(TRACES / "mooncake.jsonl")
    assert table["arrival_s"].to_pylist() == [0.0, 0.0, 2.999, 6.0]
    assert table["prompt_tokens"].to_pylist() == [1100, 1024, 90, 1600]
    assert table["output_tokens"].to_pylist() == [30, 8, 400, 55]
    assert table["block_hashes"].to_pylist() == [[0, 1, 2], [0, 3], [2**64 - 1], [0, 1, 4, 5]]
    assert set(table["hash_block_tokens"].to_pylist()) == {512}


def test_mooncake_blocks_of_another_size_are_said_and_a_wrong_size_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.jsonl"
    path.write_text('{"timestamp": 5, "input_length": 40, "output_length": 3, "hash_ids": [7, 8, 9]}\n')
    assert attempts(path, hash_block_tokens=16)["hash_block_tokens"].to_pylist() == [16]
    assert ingest([str(path)], options={"hash_block_tokens": 16}).calls["block_hashes"].to_pylist() == [[7, 8, 9]]
    for size in (512, 10, 64):
        with pytest.raises(BadInput, match=f"blocks of {size} tokens .--option hash_block_tokens.*row 1"):
            ingest([str(path)], options={"hash_block_tokens": size})
    with pytest.raises(BadConfig, match="hash_block_tokens: expected `int` >= 1"):
        ingest([str(path)], options={"hash_block_tokens": 0})
    with pytest.raises(BadConfig, match="did you mean hash_block_tokens"):
        ingest([str(path)], options={"hash_block_token": 16})


def test_mooncake_lines_may_lack_hashes(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.jsonl"
    path.write_text(
        '{"timestamp": 0, "input_length": 40, "output_length": 3}\n'
        '{"timestamp": 9.5, "input_length": 40, "output_length": 3, "hash_ids": [4]}\n'
        '{"timestamp": 10, "input_length": 40, "output_length": 3, "hash_ids": null}\n'
    )
    table = attempts(path)
    assert guess(head(str(path)), str(path))[0].name == "mooncake"
    assert table["block_hashes"].to_pylist() == [None, [4], None]
    assert table["hash_block_tokens"].to_pylist() == [None, 512, None]
    assert table["arrival_s"].to_pylist() == [0.0, 0.0095, 0.01]


def test_mooncake_turns_with_a_delay_follow_the_response_before_them() -> None:
    path = TRACES / "mooncake_sessions.jsonl"
    table = attempts(path, first_token_s=0.5, token_s=0.01)
    assert table["session_id"].to_pylist() == ["a", "b", "a", "a"]
    assert table["arrival_s"].to_pylist() == pytest.approx([1.0, 1.2, 1.0 + 1.5 + 0.5, 3.0 + 0.7 + 2.0])
    with pytest.raises(BadConfig, match="token_s: expected `float` >= 0"):
        ingest([str(path)], options={"token_s": -1.0})


def test_a_mooncake_turn_without_a_time_or_a_turn_before_it_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        '{"session_id": "z", "delay": 1, "input_length": 9, "output_length": 1}\n'
        '{"session_id": "a", "timestamp": 1, "input_length": 9, "output_length": 1}\n'
    )
    report = ingest([str(path)]).report
    assert report is not None
    assert report.files[0].dropped == {"arrival_s is missing": (1, [1])}


def test_bailian_chats_are_sessions_of_whole_prompts_whose_beginnings_are_shared() -> None:
    table = attempts(TRACES / "qwen_bailian.jsonl")
    assert table["arrival_s"].to_pylist() == [0.25, 0.25, 8.125, 31.5]
    assert table["prompt_tokens"].to_pylist() == [40, 32, 70, 130]
    assert table["session_id"].to_pylist() == ["3", "4", "3", "3"]
    assert table["source_request_id"].to_pylist() == ["3", "4", "9", "12"]
    assert set(table["hash_block_tokens"].to_pylist()) == {16}
    first, other, second, third = table["block_hashes"].to_pylist()
    assert first[:2] == second[:2] == third[:2]
    assert second[:4] == third[:4]
    assert first[1] != other[1], "the same block after another beginning"
    assert first[2] != second[2]
    assert second[4] != third[4]


def test_a_bailian_session_that_began_before_the_trace_is_named_by_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "qwen_bailian.jsonl"
    line = {"timestamp": 1, "input_length": 5, "output_length": 5}
    chats = [{"chat_id": 7, "parent_chat_id": 2}, {"chat_id": 8, "parent_chat_id": 7}]
    path.write_text("".join(json.dumps(chat | line) + "\n" for chat in chats))
    assert attempts(path)["session_id"].to_pylist() == ["2", "2"]


def test_ragpulse_seconds_are_texts_and_its_parts_have_no_lengths() -> None:
    table = attempts(TRACES / "ragpulse.jsonl")
    assert table["arrival_s"].to_pylist() == [3.0, 3.0, 19.0, 77.0]
    assert table["output_tokens"].to_pylist() == [120, 64, 410, 15]
    assert table["session_id"].to_pylist() == ["100-a", "101-b", "100-a", "102-c"]
    assert table["block_hashes"].null_count == 4


def test_splitwise_applications_are_deployments() -> None:
    table = attempts(TRACES / "splitwise.csv")
    assert table["arrival_s"].to_pylist() == [0.5, 0.75, 4.0625, 4.5]
    assert table["deployment"].to_pylist() == ["0", "1", "0", "0"]
    assert table["prompt_tokens"].to_pylist() == [1200, 380, 2048, 96]


def test_tracelab_rounds_follow_responses_and_tools_and_share_their_contexts() -> None:
    path = TRACES / "tracelab_sessions.csv"
    table = attempts(path, first_token_s=1.0, token_s=0.1, hash_block_tokens=64)
    assert table["prompt_tokens"].to_pylist() == [600, 750, 300, 346]
    assert table["arrival_s"].to_pylist() == pytest.approx([0.5, 0.5 + 6.0 + 1.5, 0.9, 0.9 + 2.0 + 0.25])
    first, second, other, later = table["block_hashes"].to_pylist()
    assert [len(blocks) for blocks in (first, second, other, later)] == [600 // 64, 750 // 64, 300 // 64, 346 // 64]
    assert second[:9] == first
    assert later[:4] == other
    assert not {*second} & {*later}


def test_tracelab_rounds_begin_when_their_input_is_complete() -> None:
    table = attempts(TRACES / "tracelab_rounds.jsonl")
    start = table["arrival_s"].to_pylist()
    assert [time - start[0] for time in start] == pytest.approx([0.0, 5.5, 8.5, 10.625])
    assert table["e2e_s"].to_pylist() == pytest.approx([3.75, 2.0, 0.0, None])
    assert table["status"].to_pylist() == ["ok", "ok", "ok", "unknown"]
    assert table["cached_prompt_tokens"].to_pylist() == [4000, 9000, 0, 1024]
    assert table["ttft_s"].null_count == 4
    assert table["tenant"].to_pylist() == [None, None, "u7", "u7"]


def test_blis_zeros_are_unknown_and_a_groups_prefix_is_part_of_the_prompt() -> None:
    table = attempts(TRACES / "blis_tracev2.csv")
    assert table["arrival_s"].to_pylist() == pytest.approx([0.0015, 0.25, 0.401, 0.6])
    assert table["prompt_tokens"].to_pylist() == [112, 94, 120, 44]
    assert table["ttft_s"].to_pylist() == pytest.approx([0.04, 0.04, None, 0.04])
    assert table["e2e_s"].to_pylist() == pytest.approx([0.3, 0.08, 5.0, 0.1])
    assert table["client_timeout_s"].to_pylist() == [5.0, None, 5.0, None]
    assert table["status"].to_pylist() == ["ok", "ok", "timeout", "cancelled"]
    assert table["output_tokens"].to_pylist() == [20, 5, None, None]
    assert table["received_tokens"].to_pylist() == [None, None, 3, 2]
    assert table["source_request_id"].to_pylist() == ["x-0", "x-1", "x-2", "3"]
    assert table["priority"].to_pylist() == [1, 1, 0, 0]
    alone, shared, too, _ = table["block_hashes"].to_pylist()
    assert alone is None
    assert shared == too
    assert table["hash_block_tokens"].to_pylist() == [None, 64, 64, None]


def test_dynamo_requests_have_rolling_hashes_and_say_how_they_ended_where_they_have_a_session() -> None:
    table = attempts(TRACES / "dynamo_request_trace.jsonl")
    start = table["arrival_s"].to_pylist()
    assert [time - start[0] for time in start] == pytest.approx([0.0, 1.25, 3.5, 5.0])
    assert table["e2e_s"].to_pylist() == pytest.approx([1.0, 2.25, 0.5, 4.0])
    assert table["ttft_s"].to_pylist() == [None, 0.1255, None, None]
    assert table["prompt_tokens"].to_pylist() == [140, 128, 90, 63]
    assert table["status"].to_pylist() == ["unknown", "ok", "cancelled", "unknown"]
    assert table["output_tokens"].to_pylist() == [16, 30, None, 80]
    assert table["received_tokens"].to_pylist() == [None, None, 4, None]
    assert table["block_hashes"].to_pylist()[:2] == [[14879255164371896291, 274632075616497421, 5],
                                                     [14879255164371896291, 8]]  # fmt: skip
    assert table["hash_block_tokens"].to_pylist() == [64, 64, None, 64]
    assert table["session_id"].to_pylist() == [None, "run:a", "run:a", None]


def test_a_dynamo_event_of_a_tool_is_no_request(tmp_path: Path) -> None:
    path = tmp_path / "dynamo_request_trace.jsonl"
    tool = {"schema": "dynamo.request.trace.v1", "event_type": "tool_end", "event_time_unix_ms": 1777312801500}
    path.write_bytes(json.dumps(tool).encode() + b"\n" + (TRACES / path.name).read_bytes())
    report = ingest([str(path)]).report
    assert report is not None
    assert report.files[0].dropped == {"an event of a tool, not of a request": (1, [1])}
    assert report.files[0].rows_emitted == 4


def csv_row(name: str, **values: Any) -> bytes:
    """A row like those of a fixture, with other values by column name."""
    names, first = (line.split(",") for line in (TRACES / name).read_text().splitlines()[:2])
    row = dict(zip(names, first, strict=True)) | {
        key.replace("__", "\x00").replace("_", " ").replace("\x00", "_"): value for key, value in values.items()
    }
    return ",".join(str(row[key]) for key in names).encode()


def json_row(**values: Any) -> bytes:
    return json.dumps({"timestamp": 9000, "input_length": 90, "output_length": 400, "hash_ids": [9]} | values).encode()


def changed(name: str, **values: Any) -> bytes:
    """The first line of a fixture with other values."""
    return json.dumps(json.loads((TRACES / name).read_text().splitlines()[0]) | values).encode()


DYNAMO_MANY = changed(
    "dynamo_request_trace.jsonl",
    request={"replay": {"trace_block_size": 64, "input_length": 128, "input_sequence_hashes": [1, 2, 3]}},
)

BAD = [
    ("azure_2023.csv", csv_row("azure_2023.csv", ContextTokens=-3), "prompt_tokens is negative"),
    ("azure_2023.csv", csv_row("azure_2023.csv", ContextTokens=2**63), "prompt_tokens is too large"),
    ("azure_2023.csv", csv_row("azure_2023.csv", GeneratedTokens="1e999"), "output_tokens is not finite"),
    ("azure_2023.csv", csv_row("azure_2023.csv", GeneratedTokens="x"), "output_tokens is not a number"),
    ("azure_2023.csv", csv_row("azure_2023.csv", ContextTokens="NaN"), "prompt_tokens is missing"),
    ("azure_2024.csv", csv_row("azure_2024.csv", TIMESTAMP="2024-02-30 00:00:00+00:00"), "arrival_s is not a time"),
    ("azure_2024.csv", csv_row("azure_2024.csv", TIMESTAMP=""), "arrival_s is missing"),
    ("azure_2024.csv", b'{"timestamp": 1}', "has 1 columns instead of 3"),
    ("azure_2025.csv", b"\x00\xff\x01", "has 1 columns instead of 4"),
    ("burstgpt_1.csv", csv_row("burstgpt_1.csv", Timestamp=-1), "arrival_s is negative"),
    ("burstgpt_1.csv", csv_row("burstgpt_1.csv", Response_tokens=-1), "output_tokens is negative"),
    ("burstgpt_3.csv", csv_row("burstgpt_3.csv", Elapsed_time="soon"), "e2e_s is not a number"),
    ("burstgpt_3.csv", csv_row("burstgpt_1.csv"), "has 6 columns instead of 8"),
    ("mooncake.jsonl", json_row(input_length=-1), "prompt_tokens is negative"),
    ("mooncake.jsonl", json_row(input_length=2**63, hash_ids=None), "prompt_tokens is too large"),
    ("mooncake.jsonl", json_row(input_length=1.5), "prompt_tokens is not whole"),
    ("mooncake.jsonl", json_row(input_length="90"), "Expected `float"),
    ("mooncake.jsonl", json_row(timestamp=math.nan), "arrival_s is not finite"),
    ("mooncake.jsonl", json_row(timestamp=None), "arrival_s is missing"),
    ("mooncake.jsonl", json_row(timestamp=-5), "arrival_s is negative"),
    ("mooncake.jsonl", json_row(hash_ids=[-1]), "hash_ids holds a number that is not one of 64 bits"),
    ("mooncake.jsonl", json_row(hash_ids=[2**64]), "hash_ids holds a number that is not one of 64 bits"),
    ("mooncake.jsonl", json_row(hash_ids=[1, 2, 3, 4]), "hash_ids are not as many as the prompt has blocks"),
    ("mooncake.jsonl", b"TIMESTAMP,ContextTokens,GeneratedTokens", "not a JSON object"),
    ("mooncake.jsonl", b"\x00\xff\x01", "not a JSON object"),
    (
        "qwen_bailian.jsonl",
        changed("qwen_bailian.jsonl", hash_ids=[1, 2, 3, 4, 5]),
        "hash_ids are not as many as the prompt has",
    ),
    ("qwen_bailian.jsonl", changed("qwen_bailian.jsonl", timestamp=-1), "arrival_s is negative"),
    ("qwen_bailian.jsonl", changed("qwen_bailian.jsonl", chat_id="a"), "Expected `int | null`"),
    ("qwen_bailian.jsonl", changed("qwen_bailian.jsonl", input_length=2**63, hash_ids=None), "is too large"),
    ("ragpulse.jsonl", changed("ragpulse.jsonl", timestamp="soon"), "arrival_s is not a time"),
    ("ragpulse.jsonl", changed("ragpulse.jsonl", input_length=0), "prompt_tokens is not positive"),
    ("splitwise.csv", csv_row("splitwise.csv", prompt__size="NaN"), "prompt_tokens is"),
    ("tracelab_rounds.jsonl", changed("tracelab_rounds.jsonl", timing_events=[]), "arrival_s is missing"),
    ("tracelab_rounds.jsonl", changed("tracelab_rounds.jsonl", input_tokens_total=None), "prompt_tokens is missing"),
    ("tracelab_sessions.csv", csv_row("tracelab_sessions.csv", input__len="x"), "prompt_tokens is not a number"),
    ("tracelab_sessions.csv", csv_row("tracelab_sessions.csv", input__len=-700), "prompt_tokens is negative"),
    ("tracelab_sessions.csv", csv_row("tracelab_sessions.csv", prefix__len=2**63), "prompt_tokens is too large"),
    ("blis_tracev2.csv", csv_row("blis_tracev2.csv", status="lost"), "status is none of"),
    ("blis_tracev2.csv", csv_row("blis_tracev2.csv", input__tokens="x", server__input__tokens=0), "is not a number"),
    ("blis_tracev2.csv", csv_row("blis_tracev2.csv", send__time__us=-5), "arrival_s is negative"),
    ("dynamo_request_trace.jsonl", DYNAMO_MANY, "input_sequence_hashes are more than the prompt has blocks"),
]


@pytest.mark.parametrize(("name", "row", "reason"), BAD, ids=[f"{name}-{reason}" for name, _, reason in BAD])
def test_a_bad_row_is_dropped_alone_and_named(tmp_path: Path, name: str, row: bytes, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes((TRACES / name).read_bytes().rstrip() + b"\n" + row + b"\n")
    trace = ingest([str(path)])
    assert trace.calls.equals(ingest([str(TRACES / name)]).calls)
    assert trace.report is not None
    (file,) = trace.report.files
    ((found, (count, rows)),) = file.dropped.items()
    assert reason in found
    assert (count, rows) == (1, [5 if name.endswith("jsonl") else 6])
    assert (file.rows_emitted, file.rows_read) == (4, 5)


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("tracelab_sessions.csv", r"it took 0.25 s and 0.01 s for each of its tokens \(--option first_token_s"),
        ("mooncake_sessions.jsonl", "when responses came is not in it"),
        ("ragpulse.jsonl", "prompts share parts, but how long those are is not in this file"),
    ],
)
def test_what_a_trace_leaves_open_is_said(name: str, note: str) -> None:
    report = ingest([str(TRACES / name)]).report
    assert report is not None
    assert re.search(note, " ".join(report.files[0].notes))


@pytest.mark.parametrize("name", ["tracelab_rounds.jsonl", "mooncake.jsonl", "dynamo_request_trace.jsonl"])
def test_nothing_is_said_where_nothing_is_open(name: str) -> None:
    report = ingest([str(TRACES / name)]).report
    assert report is not None
    assert report.files[0].notes == []


def test_equal_offences_in_different_places_are_one_reason(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.jsonl"
    wrong = [[*[1] * k, "x"] for k in range(30)]
    path.write_bytes((TRACES / path.name).read_bytes() + b"".join(json_row(hash_ids=one) + b"\n" for one in wrong))
    report = ingest([str(path)]).report
    assert report is not None
    assert [count for count, _ in report.files[0].dropped.values()] == [30]


@pytest.mark.parametrize("name", TRACE_FORMATS)
def test_each_line_is_an_attempt_or_a_dropped_row_whatever_is_in_it(tmp_path: Path, name: str) -> None:
    junk = [b"\x00" * 40, b"\xff\xfe,1,2", b"null", b"[]", b"{", b"nan,nan,nan", b",,,,,", b"1" * 5000, b"-" * 3,
            b'{"timestamp": {}, "input_length": [], "hash_ids": {"a": 1}}', b"2,3", b"0"]  # fmt: skip
    header, *good = (TRACES / name).read_bytes().splitlines()
    good = good if name.endswith("csv") else [header, *good]
    lines = [line for k in range(60) for line in (good[k % len(good)], junk[k % len(junk)])]
    path = tmp_path / name
    path.write_bytes(b"\n".join([header, *lines] if name.endswith("csv") else lines))
    read = batches(path, TRACE_FORMATS[name])
    emitted, dropped = sum(b.attempts.num_rows for b in read), sum(b.dropped.total for b in read)
    assert emitted + dropped == len(lines)
    assert emitted == 60


@pytest.mark.parametrize("name", sorted({*TRACE_FORMATS} - {*SEVERAL}))
def test_a_truncated_gzip_gives_its_whole_lines_and_says_where_it_breaks_off(tmp_path: Path, name: str) -> None:
    header, *rows = (TRACES / name).read_bytes().splitlines()
    rows = rows if name.endswith("csv") else [header, *rows]
    many = [rows[k * 7919 % 10007 % len(rows)] for k in range(40_000)]
    packed = gzip.compress(b"\n".join([header, *many] if name.endswith("csv") else many), 1)
    path = tmp_path / name
    path.write_bytes(packed[: len(packed) // 2])
    trace = ingest([str(path)])
    assert trace.report is not None
    (file,) = trace.report.files
    assert 5_000 < file.rows_emitted < 35_000
    ((reason, (count, at)),) = file.dropped.items()
    assert "middle of compressed data" in reason
    assert (count, at) == (1, [file.rows_emitted + (2 if name.endswith("csv") else 1)])


@pytest.mark.parametrize("name", TRACE_FORMATS)
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\x7fELF\x00\x01" * 50, b"\x1f\x8b", b"a,b\n1,2\n", b"{}\n"])
def test_what_is_no_such_log_is_refused_in_one_sentence(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="file: ") as refused:
        ingest([str(path)], format=TRACE_FORMATS[name])
    assert "\n" not in str(refused.value)


def test_a_map_is_refused_by_formats_that_know_their_columns() -> None:
    with pytest.raises(BadConfig, match="format azure_llm knows its own columns; --map is for csv, parquet, jsonl"):
        ingest([str(TRACES / "azure_2023.csv")], format="azure_llm", mapping={"tenant": "x"})


@pytest.mark.parametrize(
    "line",
    [
        {"chat_id": 3, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 40, "output_length": 3, "hash_ids": [1]},
        {"timestamp": "82", "input_length": 40, "output_length": 3, "hash_ids": {"system": [1]}},
        {"timestamp": 82, "input_length": 40, "hash_ids": [1]},
        {"timestamp": 82, "input_tokens": 40, "output_tokens": 3},
    ],
)
def test_mooncake_claims_no_relative_of_its_format(line: dict[str, Any]) -> None:
    assert connector("mooncake").sniff(json.dumps(line).encode(), "log") < SURE


def test_what_a_trace_cannot_show_is_said(tmp_path: Path) -> None:
    path = tmp_path / "log"
    bins = [(2999 if k % 3 else 3000) + 3000 * k for k in range(200)]
    path.write_text(
        "".join(
            json.dumps({"timestamp": t, "input_length": 9, "output_length": 2, "hash_ids": [k]}) + "\n"
            for k, t in enumerate(sorted(bins * 4))
        )
    )
    text = describe(ingest([str(path)])).text()
    assert "not in the log  aborts, timeouts, failures, retries" in text
    assert "time resolution 3 s" in text
    assert "over 1 s" not in text
