"""A stranger's files through the command line: rows are counted by number, or one sentence says what is wrong."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replay.cli import main
from replay.ingest import read_trace
from tests.trace_schema.test_check import GOOD

LINE = {"call": 0, "attempt": 0, "prompt": 12, "output": 3, "start": 0.5, "end": 1.5, "status": "ok"}
MAPPED = ("--map", "arrival_s=t", "--map", "prompt_tokens=p")


def lines(*items: Any) -> bytes:
    return b"".join((item if isinstance(item, bytes) else json.dumps(item).encode()) + b"\n" for item in items)


def many(count: int) -> bytes:
    return lines(
        *({**LINE, "call": k, "start": k / 100, "end": k / 100 + 1, "rid": f"r{k * 7919}"} for k in range(count))
    )


def refusal(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str, command: str = "ingest") -> str:
    """What the command says when it refuses a file; nothing is left behind."""
    before = set(path.parent.iterdir())
    output = ["-o", str(path.parent / "trace.parquet")] if command == "ingest" else []
    with pytest.raises(SystemExit) as ended:
        main([command, str(path), *arguments, *output])
    assert ended.value.code in (2, 3)
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert set(path.parent.iterdir()) == before
    return message


def read(path: Path, *arguments: str) -> tuple[Any, dict[str, tuple[int, list[int]]]]:
    """(calls, dropped rows by reason) of a file that can be read."""
    output = path.parent / "trace.parquet"
    with pytest.raises(SystemExit) as ended:
        main(["ingest", str(path), *arguments, "-o", str(output), "--quiet"])
    assert ended.value.code == 0
    trace = read_trace(str(output))
    assert trace.report is not None
    (file,) = trace.report.files
    assert file.rows_read == file.rows_emitted + sum(count for count, _ in file.dropped.values())
    return trace.calls, file.dropped


def written(path: Path, content: bytes | pa.Table) -> Path:
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        pq.write_table(content, path)
    return path


def test_zstd_is_read_and_what_is_missing_is_counted(tmp_path: Path) -> None:
    whole = pa.compress(many(20_000), codec="zstd", asbytes=True)
    assert read(written(tmp_path / "whole.zst", whole))[0].num_rows == 20_000
    calls, dropped = read(written(tmp_path / "cut.zst", whole[: len(whole) // 2]))
    ((reason, (count, rows)),) = dropped.items()
    assert "middle of compressed data" in reason
    assert (count, rows) == (1, [calls.num_rows + 1])


def test_a_compressed_csv_that_breaks_off_keeps_its_whole_rows(tmp_path: Path) -> None:
    text = b"arrival_s,prompt_tokens\n" + b"".join(b"%d,%d\n" % (k, 1 + k * 7919 % 10007) for k in range(50_000))
    calls, dropped = read(written(tmp_path / "cut.csv.gz", gzip.compress(text)[:100_000]))
    assert calls["prompt_tokens"].to_pylist() == [1 + k * 7919 % 10007 for k in range(calls.num_rows)]
    assert [rows for _, rows in dropped.values()] == [[calls.num_rows + 2]]


def test_a_short_log_may_begin_with_blank_and_broken_lines(tmp_path: Path) -> None:
    calls, dropped = read(written(tmp_path / "log", b'\n{"call": \n' + lines(LINE)))
    assert calls.num_rows == 1
    assert dropped == {"not a JSON object (cut short, or not text)": (1, [2])}


def test_lines_of_any_length_and_depth_are_read_or_dropped(tmp_path: Path) -> None:
    content = lines({**LINE, "tenant": "x" * 10_000_000}, b'{"a":' * 100_000, LINE, b"y" * 10_000_000)
    calls, dropped = read(written(tmp_path / "log", content))
    assert calls["observed_attempts"].to_pylist() == [2]
    assert sorted(row for _, rows in dropped.values() for row in rows) == [2, 4]
    content = b"arrival_s,prompt_tokens,tenant\n1,2,a\n2,3," + b"x" * 10_000_000 + b"\n3,4,c\n"
    assert read(written(tmp_path / "log.csv", content))[0].num_rows == 3


def test_rows_after_a_csv_row_with_missing_columns_keep_their_numbers(tmp_path: Path) -> None:
    content = b'arrival_s,prompt_tokens,tenant\n1,2\n2,3,"a\nb, c"\n3,-4,x\n4,5,6,7\n5,-6,y\n6,7'
    calls, dropped = read(written(tmp_path / "log.csv", content))
    assert calls["tenant"].to_pylist() == ["a\nb, c"]
    assert dropped["prompt_tokens is negative"] == (2, [4, 6])
    assert dropped["has 2 columns instead of 3"] == (2, [2, 7])


def test_a_csv_row_with_a_quote_that_is_not_closed_is_dropped(tmp_path: Path) -> None:
    content = b'arrival_s,prompt_tokens,tenant\n1,2,5" pipe\n2\n3,4,"abc\n4,5,6\n5,6,7'
    calls, dropped = read(written(tmp_path / "log.csv", content))
    assert calls["tenant"].to_pylist() == ['5" pipe']
    assert dropped["a quoted text begins here and does not end"] == (1, [4])
    calls, dropped = read(written(tmp_path / "log.csv", b'arrival_s,prompt_tokens,tenant\n1,2,a\n2,"b\n3,4,c\n'))
    assert calls["tenant"].to_pylist() == ["a"]
    assert dropped == {"has 2 columns instead of 3": (1, [3])}


def test_a_csv_in_latin_1_keeps_its_bytes_in_sight(tmp_path: Path) -> None:
    content = "arrival_s,prompt_tokens,größe\n1,2,Müller\nMüll\n".encode("latin-1")
    calls, dropped = read(written(tmp_path / "log.csv", content), "--map", "tenant=gr\\xf6\\xdfe")
    assert calls["tenant"].to_pylist() == ["M\\xfcller"]
    assert dropped == {"has 1 columns instead of 3": (1, [3])}


@pytest.mark.parametrize("format", ["csv", "gateway", "jsonl", "parquet"])
def test_utf_16_is_refused_with_what_to_do(tmp_path: Path, capsys: Any, format: str) -> None:
    path = written(tmp_path / "log", "arrival_s,prompt_tokens\n1,2\n".encode("utf-16"))
    assert "iconv" in refusal(capsys, path, "--format", format)


@pytest.mark.parametrize("format", ["csv", "gateway", "jsonl", "parquet"])
@pytest.mark.parametrize("content", [b"\n\n", b"\x00" * 300, bytes(range(256)) * 40, b"x" * 200_000])
def test_bytes_that_are_no_log_are_refused_in_every_format(
    tmp_path: Path, capsys: Any, format: str, content: bytes
) -> None:
    refusal(capsys, written(tmp_path / "log", content), "--format", format)


def test_a_json_array_is_read_item_by_item(tmp_path: Path) -> None:
    content = json.dumps([LINE, "no object", {**LINE, "call": 1, "prompt": -1}, {**LINE, "call": 2}], indent=1)
    calls, dropped = read(written(tmp_path / "log.json", content.encode()))
    assert calls.num_rows == 2
    assert sorted(rows for _, rows in dropped.values()) == [[2], [3]]


def test_a_header_alone_holds_no_rows(tmp_path: Path, capsys: Any) -> None:
    for content in (b"arrival_s,prompt_tokens", b"arrival_s,prompt_tokens\n"):
        assert "no row can be used" in refusal(capsys, written(tmp_path / "log.csv", content))


def test_a_column_that_occurs_twice_is_refused_when_it_is_needed(tmp_path: Path, capsys: Any) -> None:
    path = written(tmp_path / "log.csv", b"arrival_s,prompt_tokens,x,x\n1,2,3,4\n")
    assert read(path)[0].num_rows == 1
    (tmp_path / "trace.parquet").unlink()
    assert "more than one column is called 'x'" in refusal(capsys, path, "--map", "output_tokens=x")
    assert "unknown column 'x.y'" in refusal(capsys, path, "--map", "output_tokens=x.y")
    assert "unknown field 'source_row'" in refusal(capsys, path, "--map", "source_row=x")


def test_a_column_may_be_two_fields_and_one_without_values_is_unknown(tmp_path: Path) -> None:
    content = lines({"t": 1, "p": 2, "none": None}, {"t": 2, "p": 3, "none": None})
    extra = ("--map", "output_tokens=p", "--map", "status=none", "--map", "stream=none")
    calls, _ = read(written(tmp_path / "log", content), *MAPPED, *extra)
    assert calls["output_tokens"].to_pylist() == [2, 3]
    assert calls["observed_status"].to_pylist() == ["unknown", "unknown"]


def test_times_of_all_kinds_are_read_each_by_itself(tmp_path: Path) -> None:
    times = ("2024-05-10T00:00:01Z", "2024-05-10 02:00:02.5+02:00", "2024-05-09T20:30:03.123456789123-0330",
             "2024-05-10T00:00", "2024-02-30T00:00:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "later",
             "", "1715299200000", "nan")  # fmt: skip
    text = "arrival_s,prompt_tokens\n" + "".join(f"{time},5\n" for time in times)
    calls, dropped = read(written(tmp_path / "log.csv", text.encode()))
    assert calls["arrival_s"].to_pylist() == pytest.approx([0.0, 1.0, 2.5, 3.123456], abs=1e-5)
    assert dropped["arrival_s is not a time"] == (2, [6, 9])
    assert dropped["arrival_s is negative, or before 1970"] == (1, [7])
    assert dropped["arrival_s is too large for seconds (milliseconds?)"] == (2, [8, 11])


def test_two_clocks_in_one_log_are_refused(tmp_path: Path, capsys: Any) -> None:
    path = written(tmp_path / "log.csv", b"arrival_s,prompt_tokens\n1715299201,2\n1,2\n")
    assert "row 3, field 'arrival_s': 1 is no time since 1970" in refusal(capsys, path)


SENT, PROMPT = pa.array([1.0, 2.0, 3.0]), pa.array([5, 6, 7])
STAMPS = pa.array([datetime.datetime(2024, 5, 10, 0, 0, k) for k in range(3)])


@pytest.mark.parametrize(
    ("columns", "kept", "reasons"),
    [
        ({"arrival_s": STAMPS}, 3, []),
        ({"arrival_s": pa.array([datetime.datetime(y, 1, 1) for y in (2024, 9999, 1)])}, 1, ["large", "before 1970"]),
        ({"arrival_s": pa.array([datetime.date(2024, 5, 1)] * 3)}, 3, []),
        ({"arrival_s": pa.array([decimal.Decimal("1.5"), decimal.Decimal("2.5"), None])}, 2, ["missing"]),
        ({"arrival_s": pa.array(["2024-05-10T00:00:01Z"] * 3).dictionary_encode()}, 3, []),
        ({"arrival_s": pa.array(["1", "2", "x"]).cast(pa.string_view())}, 2, ["not a time"]),
        ({"prompt_tokens": pa.array(["5", "x", "7"], pa.large_string())}, 2, ["not a number"]),
        ({"prompt_tokens": pa.array([5, None, 2**62])}, 1, ["missing", "too large"]),
        ({"e2e_s": pa.array([datetime.timedelta(seconds=k) for k in range(3)])}, 3, []),
        ({"e2e_s": pa.array([None, STAMPS[0].as_py(), None])}, 2, ["e2e_s is not a number"]),
        ({"tenant": pa.array([[1], None, None])}, 2, ["tenant is not a text"]),
        ({"tenant": pa.array([b"\xff", b"a", b"b"]), "stream": pa.array([[1], [2], [3]])}, 3, []),
        ({"status": pa.array(["ok", None, "bad"]).dictionary_encode()}, 2, ["status is none of"]),
        ({"status": pa.array([[1], None, None])}, 2, ["status is none of"]),
        ({"block_hashes": pa.array([[1], [-3], None])}, 2, ["block_hashes is not"]),
        ({"extra": pa.array([{"a": 1}] * 3), "source_file": pa.nulls(3)}, 3, []),
    ],
)
def test_parquet_columns_of_any_type_are_read_or_their_rows_dropped(
    tmp_path: Path, columns: dict[str, Any], kept: int, reasons: list[str]
) -> None:
    table = pa.table({"arrival_s": SENT, "prompt_tokens": PROMPT} | columns)
    calls, dropped = read(written(tmp_path / "log.parquet", table))
    assert calls.num_rows == kept
    assert len(dropped) == len(reasons)
    assert all(any(reason in found for found in dropped) for reason in reasons)


def test_parquet_that_is_empty_or_damaged_is_refused(tmp_path: Path, capsys: Any) -> None:
    table = pa.table({"arrival_s": SENT, "prompt_tokens": PROMPT})
    path = written(tmp_path / "log.parquet", table.slice(0, 0))
    assert "no row can be used" in refusal(capsys, path)
    content = written(path, table).read_bytes()
    assert "cannot be read as Parquet" in refusal(capsys, written(path, content[:4] + bytes(40) + content[44:]))


def test_a_trace_of_another_tool_is_described_or_its_bad_row_named(tmp_path: Path, capsys: Any) -> None:
    path = written(tmp_path / "mine.parquet", pa.table({**GOOD, "arrival_s": [0.0, 1.0, 1e300]}))
    assert "row 3, field 'arrival_s': is after 1e+11 s" in refusal(capsys, path, command="describe")
    written(path, pa.table({**GOOD, "arrival_s": [0.0, 1.0, 5e10]}))
    with pytest.raises(SystemExit) as ended:
        main(["describe", str(path)])
    assert ended.value.code == 0


def test_a_file_of_another_format_than_was_said_is_refused_with_that_which_it_looks_like(
    tmp_path: Path, capsys: Any
) -> None:
    path = written(tmp_path / "log", lines(LINE, LINE))
    for format in ("csv", "mooncake", "burstgpt", "aiperf"):
        assert "; it looks like gateway (--format gateway)" in refusal(capsys, path, "--format", format)
    written(path, b"2026/11/30 02:19:34 [error] 3#3: *21 upstream timed out\n")
    assert "; it is nginx's error log" in refusal(capsys, path, "--format", "nginx")
    written(path, lines({**LINE, "prompt": -1}))
    assert "looks like" not in refusal(capsys, path, "--format", "gateway")
