"""Sessions of a log as closed loops: a turn waits for the one before, and then as long as its user thought."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from connectors import synthetic
from replay.cli import cli
from replay.errors import BadConfig
from replay.ingest import ingest, read_trace
from replay.ingest.turns import in_loop

LINES: list[dict[str, Any]] = [
    {"call": 0, "session": "a", "start": 0.0, "end": 2.0, "status": "ok"},
    {"call": 1, "session": "b", "start": 1.0, "end": 9.0, "status": "ok"},
    {"call": 2, "session": "a", "start": 5.0, "end": 6.0, "status": "cancelled"},
    {"call": 3, "session": None, "start": 5.5, "end": 6.0, "status": "ok"},
    {"call": 4, "session": "b", "start": 7.0, "end": 8.0, "status": "ok"},
    {"call": 5, "session": "a", "start": 10.0, "end": None, "status": "ok"},
    {"call": 6, "session": "a", "start": 20.0, "end": 21.0, "status": "ok"},
]


def write(path: Path, lines: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps({"prompt": 10, "output": 5, **line}) + "\n" for line in lines))
    return str(path)


@pytest.fixture
def log(tmp_path: Path) -> str:
    return write(tmp_path / "log.jsonl", LINES)


def test_the_time_to_think_is_what_lies_between_a_response_and_the_next_turn(log: str) -> None:
    calls, told = in_loop(ingest([log]).calls, "closed")
    assert calls["previous_call_id"].to_pylist() == [None, None, 0, None, 1, 2, 5]
    assert calls["think_time_s"].to_pylist() == [None, None, 3.0, None, None, 4.0, None]
    assert calls["turn"].to_pylist() == [0, 0, 1, None, 1, 2, 3]
    assert (told.closed, told.overlapping, told.unknown) == (2, 1, 1)


def test_an_open_loop_knows_its_turns_and_no_thoughts(log: str) -> None:
    calls, _ = in_loop(ingest([log]).calls, "open")
    assert calls["think_time_s"].null_count == len(LINES)
    assert calls["previous_call_id"].to_pylist() == [None, None, 0, None, 1, 2, 5]


def test_a_closed_loop_can_be_opened_and_closed_again() -> None:
    chat = synthetic.calls("chat", calls=300)
    opened, _ = in_loop(chat, "open")
    assert opened.drop_columns("think_time_s").equals(chat.drop_columns("think_time_s"))
    assert in_loop(chat, "closed")[0].equals(chat)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{**line, "session": None} for line in LINES], "no session of the log has a second turn"),
        ([{**line, "end": None, "status": "ok"} for line in LINES], "the log does not say when a turn ended"),
        (
            [{**line, "end": line["start"] + 99.0, "status": "ok"} for line in LINES],
            "no turn waited for the one before",
        ),
    ],
)
def test_what_cannot_be_closed_is_refused(lines: list[dict[str, Any]], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=f"--sessions closed: {message}"):
        ingest([write(tmp_path / "log.jsonl", lines)], sessions="closed")


def test_the_command_line_closes_the_loop_and_says_how_much_of_it(log: str, tmp_path: Path) -> None:
    trace = str(tmp_path / "trace.parquet")
    done = CliRunner().invoke(cli, ["ingest", log, "-o", trace, "--sessions", "closed"])
    assert done.exit_code == 0, done.output
    said = " ".join(done.stderr.split())
    assert "sessions closed: 2 turns wait for the one before; 1 had not waited for it, and come when they came" in said
    assert read_trace(trace).calls["think_time_s"].null_count == len(LINES) - 2
    described = CliRunner().invoke(cli, ["describe", trace]).stdout
    assert "2 turns wait for the one before" in described
