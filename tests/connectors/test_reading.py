"""Logs as they come: good, broken, compressed, of unknown format. Rows read = emitted + dropped, always."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.registry import connector, guess, names
from replay.ingest import ingest, read_trace, write_trace
from trace_schema.errors import BadConfig, BadInput, UnknownName

LINE = {"call": 0, "attempt": 0, "prompt": 12, "output": 3, "start": 0.5, "end": 1.5, "status": "ok"}


def write(path: Path, *lines: dict[str, Any] | str) -> str:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return str(path)


def only(report: Any) -> Any:
    assert report is not None
    (file,) = report.files
    assert file.rows_read == file.rows_emitted + sum(count for count, _ in file.dropped.values())
    return file


def test_a_gateway_log_is_known_by_its_first_line(tmp_path: Path) -> None:
    trace = ingest([write(tmp_path / "log.txt", LINE, {**LINE, "call": 1, "start": 2.0, "end": 3.0})])
    file = only(trace.report)
    assert (file.format, file.confidence, file.rows_emitted) == ("gateway", 1.0, 2)
    assert trace.calls["prompt_tokens"].to_pylist() == [12, 12]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({**LINE, "prompt": -4}, "prompt_tokens is negative"),
        ({**LINE, "prompt": None}, "prompt_tokens is missing"),
        ({**LINE, "prompt": 0}, "prompt_tokens is not positive"),
        ({**LINE, "prompt": 2**40}, "prompt_tokens is too large"),
        ({**LINE, "output": -1}, "output_tokens is negative"),
        ({**LINE, "end": 0.25}, "e2e_s is negative"),
        ({**LINE, "status": "fine"}, "status is none of"),
        ({**LINE, "start": "soon"}, "Expected `float`"),
        ({**LINE, "prompt": 2**63}, "prompt"),
        ('{"call": 3, "prom', "not a JSON object"),
        ("\x00\x01\x02 not text", "not a JSON object"),
        ("[1, 2]", "Expected `object`"),
    ],
)
def test_a_row_that_cannot_be_used_is_dropped_and_named(tmp_path: Path, line: Any, reason: str) -> None:
    path = write(tmp_path / "log.jsonl", LINE, line, {**LINE, "call": 9})
    file = only(ingest([path]).report)
    assert file.rows_emitted == 2
    ((found, (count, rows)),) = file.dropped.items()
    assert reason in found
    assert (count, rows) == (1, [2])
    with pytest.raises(BadInput, match=r"log.jsonl, row 2: "):
        ingest([path], strict=True)


def test_a_log_without_a_usable_row_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", {**LINE, "prompt": -1}, {**LINE, "prompt": -2})
    with pytest.raises(BadInput, match=r"no row can be used: prompt_tokens is negative \(row 1\)"):
        ingest([path])


def test_a_truncated_gzip_loses_only_what_is_missing(tmp_path: Path) -> None:
    text = "".join(json.dumps({**LINE, "call": i, "rid": f"r{i * 7919 % 10007}"}) + "\n" for i in range(20_000))
    whole = gzip.compress(text.encode())
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    file = only(ingest([str(path)]).report)
    assert 5_000 < file.rows_emitted < 15_000
    assert any("middle of compressed data" in reason for reason in file.dropped)


def test_bom_crlf_and_blank_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(LINE).encode() + b"\r\n\r\n" + json.dumps(LINE).encode())
    assert only(ingest([str(path)]).report).rows_emitted == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "the file is empty"), (b"\x7fELF\x00\x01" * 50, "unknown format"), (b"hello world\n", "unknown format")],
)
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=message):
        ingest([str(path)])


def test_missing_files_and_directories_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nothing.jsonl: cannot be read: No such file"):
        ingest([str(tmp_path / "nothing.jsonl")])
    with pytest.raises(BadInput, match="no file matches"):
        ingest([str(tmp_path / "*.jsonl")])
    with pytest.raises(BadInput, match="is a directory"):
        ingest([str(tmp_path)])


def test_many_files_are_one_trace(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", LINE)
    write(tmp_path / "b.jsonl", {**LINE, "attempt": 1, "start": 4.0, "end": 5.0}, {**LINE, "call": 5, "start": 0.1})
    trace = ingest([str(tmp_path / "*.jsonl")])
    assert trace.calls["observed_attempts"].to_pylist() == [1, 2]


CSV = """sent,usage_in,out,who
0.5,10,3,x
1.5,,4,x
2.5,-7,4,x
3.5,abc,4,x
4.5,20,1e30,y
5.5,30,6,y,extra
6.5,40,7,y
"""
MAPPED = {"arrival_s": "sent", "prompt_tokens": "usage_in", "output_tokens": "out", "tenant": "who"}


def test_csv_columns_are_mapped_and_bad_rows_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(CSV)
    trace = ingest([str(path)], mapping=MAPPED)
    file = only(trace.report)
    assert trace.calls["prompt_tokens"].to_pylist() == [10, 40]
    assert trace.calls["tenant"].to_pylist() == ["x", "y"]
    reasons = {reason: count for reason, (count, _) in file.dropped.items()}
    assert reasons["prompt_tokens is missing"] == 1
    assert reasons["prompt_tokens is negative"] == 1
    assert reasons["prompt_tokens is not a number"] == 1
    assert reasons["output_tokens is too large"] == 1
    assert sum(reasons.values()) == 5


def test_iso_times_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    times = ("2024-05-10T00:00:01.2500000+00:00", "2024-05-10 00:00:02", "2024-05-10T02:00:03+02:00")
    path.write_text("arrival_s,prompt_tokens\n" + "".join(f"{time},5\n" for time in times))
    assert ingest([str(path)]).calls["arrival_s"].to_pylist() == pytest.approx([0.0, 0.75, 1.75], abs=1e-6)


def test_parquet_and_json_lines_are_mapped(tmp_path: Path) -> None:
    table = pa.table({"sent": [0.0, 1.0], "usage_in": [5, 6], "out": [1, 2], "who": ["a", None]})
    pq.write_table(table, tmp_path / "log.parquet")
    assert ingest([str(tmp_path / "log.parquet")], mapping=MAPPED).calls["prompt_tokens"].to_pylist() == [5, 6]
    path = write(tmp_path / "log.jsonl", {"sent": 0.0, "usage": {"in": 4}}, {"sent": 1.0, "usage": {"in": 8}})
    mapping = {"arrival_s": "sent", "prompt_tokens": "usage.in"}
    assert ingest([path], mapping=mapping).calls["prompt_tokens"].to_pylist() == [4, 8]


def test_a_typo_in_a_mapping_names_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(CSV)
    with pytest.raises(BadConfig, match="did you mean prompt_tokens"):
        ingest([str(path)], mapping={**MAPPED, "promt_tokens": "usage_in"})
    with pytest.raises(BadInput, match="did you mean usage_in"):
        ingest([str(path)], mapping={**MAPPED, "prompt_tokens": "usage_im"})


def test_formats_have_names(tmp_path: Path) -> None:
    assert {"gateway", "csv", "parquet", "jsonl"} <= set(names())
    assert all(connector(name).describes for name in names())
    with pytest.raises(UnknownName, match="did you mean gateway"):
        connector("gatway")
    assert guess(json.dumps(LINE).encode(), "x")[0].name == "gateway"


def test_a_trace_file_remembers_where_it_comes_from(tmp_path: Path) -> None:
    trace = ingest([write(tmp_path / "log.jsonl", LINE)])
    path = str(tmp_path / "trace.parquet")
    write_trace(trace, path)
    again = read_trace(path)
    assert again.about == trace.about
    assert again.calls.equals(trace.calls)
    with pytest.raises(BadConfig, match="cannot be written"):
        write_trace(trace, f"{path}/below/a/file")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.jsonl", "trace.parquet"]


def test_anybodys_parquet_of_calls_is_a_trace(tmp_path: Path) -> None:
    from tests.trace_schema.test_check import GOOD

    pq.write_table(pa.table(GOOD), tmp_path / "mine.parquet")
    assert read_trace(str(tmp_path / "mine.parquet")).calls.num_rows == 3


def test_progress_goes_from_nothing_to_all(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.jsonl", *({**LINE, "call": f"{name}{i}"} for i in range(50)))
    shares: list[float] = []
    ingest([str(tmp_path / "*.jsonl")], on_progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
