"""Downloads from a server that breaks off, changes its mind or is not there: files are whole and right, or absent."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

CONTENT = bytes(range(256)) * 4000
PATH = "/someone/traces/one_trace.jsonl"


def script() -> Any:
    path = Path(__file__).parents[1] / "scripts" / "fetch_traces.py"
    spec = importlib.util.spec_from_file_location("fetch_traces", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fetch_traces"] = module
    spec.loader.exec_module(module)
    return module


class Server:
    """Serves `content` at PATH; answers end after the bytes of `breaks`, and the first are the codes of `refuses`."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.ranges = True
        self.breaks: list[int] = []
        self.refuses: list[int] = []
        self.asked: list[str | None] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.base = f"http://127.0.0.1:{self.http.server_address[1]}"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers.get("Range")
        self.asked.append(asked)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.ranges else 0
        if handler.path != PATH or self.refuses or start >= len(self.content):
            code = 404 if handler.path != PATH else self.refuses.pop(0) if self.refuses else 416
            handler.send_error(code)
            return
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        handler.send_header("Content-Length", str(len(self.content) - start))
        handler.end_headers()
        end = start + self.breaks.pop(0) if self.breaks else len(self.content)
        handler.wfile.write(self.content[start:end])


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with one trace whose digest is known and one for which nobody vouches."""
    module = script()
    digest = hashlib.sha256(CONTENT).hexdigest()
    address = f"https://traces.invalid{PATH}"
    monkeypatch.setattr(
        module,
        "TRACES",
        (
            module.Trace("one-trace", address, digest, len(CONTENT), "CC0-1.0"),
            module.Trace("loose-trace", address, None, None, "CC0-1.0"),
        ),
    )
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    return module


def test_a_trace_is_written_under_its_name_and_not_fetched_twice(tool: Any, server: Server, tmp_path: Path) -> None:
    command = ["one-trace", "-o", str(tmp_path / "new"), "--base", server.base]
    assert tool.main(command) == 0
    assert (tmp_path / "new" / "one_trace.jsonl").read_bytes() == CONTENT
    assert tool.main(command) == 0
    assert server.asked == [None]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["one_trace.jsonl"]


def test_a_connection_that_breaks_off_goes_on_where_it_was(tool: Any, server: Server, tmp_path: Path) -> None:
    server.breaks = [300_000, 1, 200_000]
    assert tool.main(["one-trace", "-o", str(tmp_path), "--base", server.base]) == 0
    assert server.asked == [None, "bytes=300000-", "bytes=300001-", "bytes=500001-"]
    assert (tmp_path / "one_trace.jsonl").read_bytes() == CONTENT


def test_the_next_command_goes_on_with_what_the_last_one_left(
    tool: Any, server: Server, tmp_path: Path, capsys: Any
) -> None:
    server.breaks = [100_000] + [0] * 5
    assert tool.main(["one-trace", "-o", str(tmp_path), "--base", server.base]) == 1
    assert "the same command goes on from there" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["one_trace.jsonl.part"]
    assert tool.main(["one-trace", "-o", str(tmp_path), "--base", server.base]) == 0
    assert server.asked[-1] == "bytes=100000-"
    assert (tmp_path / "one_trace.jsonl").read_bytes() == CONTENT


def test_a_server_that_cannot_go_on_starts_again(tool: Any, server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.breaks = [300_000]
    assert tool.main(["one-trace", "-o", str(tmp_path), "--base", server.base]) == 0
    assert (tmp_path / "one_trace.jsonl").read_bytes() == CONTENT


def test_a_part_that_is_too_long_is_begun_anew(tool: Any, server: Server, tmp_path: Path) -> None:
    (tmp_path / "one_trace.jsonl.part").write_bytes(CONTENT + b"more")
    assert tool.main(["one-trace", "-o", str(tmp_path), "--base", server.base]) == 0
    assert (tmp_path / "one_trace.jsonl").read_bytes() == CONTENT


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"!", CONTENT + b"!"])
def test_a_file_with_another_checksum_or_size_is_removed(
    tool: Any, server: Server, tmp_path: Path, capsys: Any, content: bytes
) -> None:
    server.content = content
    assert tool.main(["one-trace", "-o", str(tmp_path), "--base", server.base]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("fetch_traces: one-trace: ")
    assert "the download is not the file: sha256" in message or "it is another file" in message
    assert list(tmp_path.iterdir()) == []


def test_a_busy_server_is_asked_again(tool: Any, server: Server, tmp_path: Path) -> None:
    server.refuses = [503, 429]
    assert tool.main(["one-trace", "-o", str(tmp_path), "--base", server.base]) == 0
    assert len(server.asked) == 3


def test_what_is_not_there_is_said_and_the_others_are_fetched(
    tool: Any, server: Server, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tool.Trace("gone-trace", "https://traces.invalid/gone.csv", None, None, "CC0-1.0")
    monkeypatch.setattr(tool, "TRACES", (gone, *tool.TRACES))
    assert tool.main(["gone-trace", "one-trace", "-o", str(tmp_path), "--base", server.base, "--quiet"]) == 1
    assert capsys.readouterr().err == (
        f"fetch_traces: gone-trace: {server.base}/gone.csv: the server answers 404 Not Found\n"
    )
    assert (tmp_path / "one_trace.jsonl").exists()


def test_a_server_that_cannot_be_reached_is_named(tool: Any, server: Server, tmp_path: Path, capsys: Any) -> None:
    server.http.shutdown()
    server.http.server_close()
    assert tool.main(["one-trace", "-o", str(tmp_path), "--base", server.base]) == 1
    assert f"{server.base}{PATH}: cannot be reached: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_unpinned_file_says_so_and_is_held_to_its_first_digest(
    tool: Any, server: Server, tmp_path: Path, capsys: Any
) -> None:
    command = ["loose-trace", "-o", str(tmp_path), "--base", server.base]
    assert tool.main(command) == 0
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert f"unpinned: nobody vouches for sha256 {digest}" in capsys.readouterr().err
    assert (tmp_path / "one_trace.jsonl.sha256").read_text() == f"{digest}  one_trace.jsonl\n"
    assert tool.main(command) == 0
    (tmp_path / "one_trace.jsonl").write_bytes(b"something else")
    assert tool.main(command) == 1
    assert "is there and is another file" in capsys.readouterr().err
    assert (tmp_path / "one_trace.jsonl").read_bytes() == b"something else"


def test_wrong_words_are_answered_with_the_nearest(tool: Any, tmp_path: Path, capsys: Any) -> None:
    assert tool.main(["one-trase", "-o", str(tmp_path / "new")]) == 2
    assert "unknown trace 'one-trase'; did you mean one-trace" in capsys.readouterr().err
    assert tool.main([]) == 2
    assert tool.main(["one-trace", "--base", "ftp://somewhere"]) == 2
    assert not (tmp_path / "new").exists()


def test_the_list_names_each_public_trace_once_with_its_address(capsys: Any) -> None:
    tool = script()
    assert tool.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(tool.TRACES) == len({trace.name for trace in tool.TRACES})
    assert all("https://" in line and ("sha256 " in line or "unpinned" in line) for line in lines)
    assert all(trace.sha256 is None or len(bytes.fromhex(trace.sha256)) == 32 for trace in tool.TRACES)
    files = [trace.file for trace in tool.TRACES]
    assert len(files) == len(set(files))


def test_the_digest_of_the_conversation_trace_is_that_of_the_file(samples: Path) -> None:
    tool = script()
    (trace,) = tool.named("mooncake-conversation")
    path = samples / "mooncake" / trace.file
    assert (tool.digest_of(path), path.stat().st_size) == (trace.sha256, trace.size_bytes)
