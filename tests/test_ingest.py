"""Ingest as a whole: whatever is named in one line becomes one trace, of what was wanted of it."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from replay.cli import main
from replay.errors import BadConfig, BadInput
from replay.ingest import ingest, read_trace
from replay.remote import matching


def test_ingest_is_a_function_of_the_package_whatever_was_imported_before(log_file: str) -> None:
    program = f"""
import replay, replay.runner
for _ in range(2):
    assert replay.ingest([{log_file!r}]).calls.num_rows == 60
"""
    subprocess.run([sys.executable, "-c", program], check=True)


LINES = "".join(
    json.dumps({"arrival_s": k / 2, "prompt_tokens": 10 + k, "output_tokens": 5, "session_id": f"s{k % 7}"}) + "\n"
    for k in range(70)
)


def balanced(trace: Any) -> list[Any]:
    """The files' reports, each of which accounts for all of its rows."""
    assert trace.report is not None
    for file in trace.report.files:
        assert file.rows_read == file.rows_emitted + sum(count for count, _ in file.dropped.values())
    files: list[Any] = trace.report.files
    return files


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Logs of several formats, and compressed in several ways."""
    (tmp_path / "a.jsonl").write_text(LINES)
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(LINES.encode()))
    (tmp_path / "c.bz2").write_bytes(bz2.compress(LINES.encode()))
    with pa.output_stream(tmp_path / "d.zst", compression="zstd") as file:
        file.write(LINES.encode())
    (tmp_path / "deep").mkdir()
    table = pa.table({"arrival_s": [0.25, 0.75], "prompt_tokens": [1, 2], "output_tokens": [3, 4]})
    pq.write_table(table, tmp_path / "deep" / "part-0.parquet")
    pq.write_table(table, tmp_path / "deep" / "part-1.parquet")
    (tmp_path / "deep" / "part-0.csv").write_text("arrival_s;prompt_tokens\n0.1;7\n")
    return tmp_path


def test_files_of_many_formats_and_compressions_are_one_trace(store: Path) -> None:
    trace = ingest([str(store / "*.*"), f"file://{store}/deep/*.parquet", f"{store}/deep/part-0.csv"])
    assert [file.format for file in balanced(trace)] == ["jsonl"] * 4 + ["parquet"] * 2 + ["csv"]
    assert trace.calls.num_rows == 4 * 70 + 2 * 2 + 1
    assert np.all(np.diff(trace.calls["arrival_s"].to_numpy()) >= 0)


def test_every_file_is_named_as_the_user_named_it_and_hashed(store: Path) -> None:
    uri = f"file://{store}/deep/part-0.parquet"
    names = [f"{store}/b.log.gz", uri]
    files = balanced(ingest(names))
    assert [file.path for file in files] == names
    for file, path in zip(files, (store / "b.log.gz", store / "deep" / "part-0.parquet"), strict=True):
        done = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True)
        assert file.sha256 == done.stdout.split()[0]


def test_a_pattern_in_an_object_store_is_expanded(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = fs.SubTreeFileSystem(str(store), fs.LocalFileSystem())

    def located(uri: str) -> tuple[fs.FileSystem, str]:
        return bucket, uri.removeprefix("s3://bucket/").partition("?")[0]

    monkeypatch.setattr("replay.remote.located", located)
    assert matching("s3://bucket/deep/*.parquet?region=eu") == [
        f"s3://bucket/deep/part-{k}.parquet?region=eu" for k in (0, 1)
    ]
    assert len(matching("s3://bucket/deep/**")) == 3
    assert ingest(["s3://bucket/deep/part-[01].parquet"]).calls.num_rows == 4
    with pytest.raises(BadInput, match=r"s3://bucket/deep/\*.log: no file matches"):
        ingest(["s3://bucket/deep/*.log"])


def test_a_log_may_come_from_the_standard_input(store: Path) -> None:
    command = [sys.executable, "-m", "replay", "ingest", "-", "-o", str(store / "trace.parquet"), "--json"]
    done = subprocess.run(command, input=(store / "b.log.gz").read_bytes(), capture_output=True, check=True)
    (file,) = json.loads(done.stdout)["report"]["files"]
    assert (file["path"], file["format"], file["rows_emitted"]) == ("-", "jsonl", 70)
    empty = subprocess.run(command, input=b"", capture_output=True, text=False, check=False)
    assert (empty.returncode, empty.stderr.strip()) == (3, b"replay: -: the file is empty")
    with pytest.raises(BadInput, match="can be read once"):
        ingest(["-", "-"])


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
def test_fields_are_mapped_from_within_records(tmp_path: Path, kind: str) -> None:
    rows = [{"sent": k, "usage": {"in": 5 + k, "more": [{"out": 1}, {"out": 2}]}} for k in range(3)]
    mapping = {"arrival_s": "sent", "prompt_tokens": "usage.in"}
    path = tmp_path / f"log.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        mapping["output_tokens"] = "usage.more.1.out"
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("sent\tusage.in\n" + "".join(f"{k}\t{5 + k}\n" for k in range(3)))
    trace = ingest([str(path)], mapping=mapping)
    assert trace.calls["prompt_tokens"].to_pylist() == [5, 6, 7]
    assert trace.calls["output_tokens"].to_pylist() == ([2 if kind == "jsonl" else 1] * 3)
    with pytest.raises(BadInput, match=r"usage|unknown column 'use.in'"):
        ingest([str(path)], mapping={**mapping, "prompt_tokens": "use.in"})


def test_where_keeps_what_meets_a_condition_and_counts_the_others(store: Path) -> None:
    trace = ingest([str(store / "a.jsonl")], where="prompt_tokens >= 20 and session_id <> 's3'")
    (file,) = balanced(trace)
    kept = [10 + k for k in range(70) if k >= 10 and k % 7 != 3]
    assert trace.calls["prompt_tokens"].to_pylist() == kept
    assert file.dropped == {"left out by --where": (70 - len(kept), [1, 2, 3])}
    assert ingest([str(store / "a.jsonl")], where="arrival_s < 10 -- seconds").calls.num_rows == 20


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("prompt_token > 3", "prompt_token"),
        ("prompt_tokens", "is not true or false but int32"),
        ("max(prompt_tokens) > 3", "must say something of each row"),
        ("true); DROP TABLE attempts; SELECT (true", "more than one condition"),
        ("prompt_tokens >", "syntax error"),
        ("exists (select * from read_csv('/etc/passwd'))", "disabled"),
    ],
)
def test_what_is_no_condition_is_said(store: Path, condition: str, says: str) -> None:
    with pytest.raises(BadConfig, match=r"^--where ") as caught:
        ingest([str(store / "a.jsonl")], where=condition)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_condition_that_nothing_meets_is_said(store: Path) -> None:
    with pytest.raises(BadInput, match=r"no row can be used: left out by --where \(row 1\)"):
        ingest([str(store / "a.jsonl")], where="false")


def test_a_sample_takes_whole_sessions_and_depends_on_the_seed(tmp_path: Path) -> None:
    lines = [
        {"arrival_s": k, "prompt_tokens": 5, "session_id": f"s{k % 1000}", "output_tokens": 1} for k in range(5000)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def kept(seed: int) -> list[str]:
        trace = ingest([str(path)], sample=0.3, seed=seed)
        (file,) = balanced(trace)
        assert "left out by --sample 0.3, by session_id" in file.dropped
        sessions: list[str] = trace.calls["session_id"].to_pylist()
        return sessions

    first = kept(0)
    assert kept(0) == first != kept(1)
    assert all(first.count(session) == 5 for session in set(first))
    assert 240 < len(set(first)) < 360


def test_a_sample_keeps_the_tries_of_a_call_together(log_file: str) -> None:
    whole, part = ingest([log_file]), ingest([log_file], sample=0.5)
    balanced(part)
    tries = dict(zip(*(whole.calls[name].to_pylist() for name in ("source_call", "observed_attempts")), strict=True))
    found = dict(zip(*(part.calls[name].to_pylist() for name in ("source_call", "observed_attempts")), strict=True))
    assert 15 < len(found) < 45
    assert all(tries[call] == count for call, count in found.items())


def test_rows_without_anything_in_common_are_sampled_alone(store: Path) -> None:
    path = store / "rows.csv"
    path.write_text("arrival_s,prompt_tokens\n" + "".join(f"{k},{k + 1}\n" for k in range(4000)))
    trace = ingest([str(path)], sample=0.25)
    (file,) = balanced(trace)
    assert 880 < file.rows_emitted < 1120
    assert list(file.dropped) == ["left out by --sample 0.25, row by row"]
    with pytest.raises(BadConfig, match="must be a share above 0"):
        ingest([str(path)], sample=1.5)


def test_calls_of_one_tick_are_spread_over_it_on_demand(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [(second, f"s{k}") for second in range(50) for k in range(4)]
    path.write_text("arrival_s,prompt_tokens,session_id\n" + "".join(f"{s},{s + 1},{who}\n" for s, who in rows))
    logged, spread = ingest([str(path)]), ingest([str(path)], jitter_within_resolution=True)
    assert spread.report is not None
    assert spread.report.jitter_s == 1.0
    moved = spread.calls["arrival_s"].to_numpy()
    assert len(set(moved)) == 200 > len(set(logged.calls["arrival_s"].to_pylist())) == 50
    seconds = spread.calls["prompt_tokens"].to_numpy() - 1
    assert np.all((moved >= seconds) & (moved < seconds + 1))
    assert ingest([str(path)], jitter_within_resolution=True).calls.equals(spread.calls)
    assert not ingest([str(path)], jitter_within_resolution=True, seed=1).calls.equals(spread.calls)


def test_the_command_says_what_was_left_out(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--where", "prompt_tokens < 70", "--sample", "0.5", "--jitter-within-resolution"]
    with pytest.raises(SystemExit) as ended:
        main(["ingest", str(store / "a.jsonl"), "-o", str(store / "t.parquet"), *flags])
    said = capsys.readouterr().err
    assert ended.value.code == 0, said
    assert "left out by --where" in said
    assert "left out by --sample 0.5, by session_id" in said
    assert "spread" in said
    assert read_trace(str(store / "t.parquet")).calls.num_rows < 60


def test_lengths_are_estimated_from_bytes_and_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{k},{400 + 40 * k},{100 + 10 * k if k % 2 else ''}\n" for k in range(40)]
    path.write_text("sent,length,used\n" + "".join(rows))
    mapping = {"arrival_s": "sent", "request_bytes": "length"}
    given = ingest([str(path)], mapping=mapping, bytes_per_token=8.0).calls
    assert given["prompt_tokens"].to_pylist() == [50 + 5 * k for k in range(40)]
    learned = ingest([str(path)], mapping={**mapping, "prompt_tokens": "used"}).calls
    assert learned["prompt_tokens"].to_pylist() == pytest.approx([100 + 10 * k for k in range(40)], abs=2)
    assert set(given["prompt_token_source"].to_pylist()) == {"estimate"}


def test_a_log_without_any_length_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("arrival_s,request_bytes\n1,100\n2,200\n")
    with pytest.raises(BadInput, match=r"--with vllm\.steps\.jsonl.*--bytes-per-token 4"):
        ingest([str(path)])
    with pytest.raises(BadConfig, match=r"--bytes-per-token 0: must be a number above 0"):
        ingest([str(path)], bytes_per_token=0)
    path.write_text("arrival_s,prompt_tokens\n1,\n2,\n")
    with pytest.raises(BadInput, match="prompt_tokens is missing"):
        ingest([str(path)])


def test_a_terminal_is_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    with pytest.raises(BadInput, match="is a terminal; pipe a log into it"):
        ingest(["-"])
