"""`replay sql RUN` on a terminal: a person types, the prompt answers."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE_S = 60.0
CODE = "import sys; from replay.cli import main; main(sys.argv[1:])"


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.end, other = pty.openpty()
        environment = {**os.environ, "TERM": "dumb", "INPUTRC": "/dev/null", "COLUMNS": "100"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, *arguments],
            stdin=other, stdout=other, stderr=other, env=environment, start_new_session=True, close_fds=True,
            preexec_fn=take_terminal,
        )  # fmt: skip
        os.close(other)
        self.seen = ""

    def until(self, words: str) -> str:
        """What is shown from now on, up to these words."""
        limit = time.monotonic() + PATIENCE_S
        while words not in self.seen:
            ready, _, _ = select.select([self.end], [], [], max(0.0, limit - time.monotonic()))
            assert ready, f"{words!r} was never shown, but {self.seen!r}"
            try:
                content = os.read(self.end, 65536)
            except OSError:  # the other end is closed
                content = b""
            assert content, f"it ended without {words!r}, but {self.seen!r}"
            self.seen += content.decode()
        shown, self.seen = self.seen.split(words, 1)
        return shown

    def type(self, keys: str) -> None:
        os.write(self.end, keys.encode())

    def interrupt(self) -> None:
        """Ctrl-C, by a person's reaction time: Python misses one that comes between showing a prompt and waiting."""
        time.sleep(0.5)
        self.type("\x03")

    def code(self) -> int:
        """The exit code, when it has ended."""
        return self.process.wait(PATIENCE_S)


def take_terminal() -> None:
    """Let the new session's terminal send it signals."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal(run_directory: Path) -> Iterator[Terminal]:
    opened = Terminal("sql", str(run_directory))
    opened.until("replay> ")
    yield opened
    if opened.process.poll() is None:
        os.kill(opened.process.pid, signal.SIGKILL)
        opened.process.wait()
    os.close(opened.end)


def test_a_statement_over_two_lines_is_answered(terminal: Terminal) -> None:
    terminal.type(".mode csv\nSELECT count(*) AS n\n")
    terminal.until("...> ")
    terminal.type("FROM calls;\n")
    assert "n\r\n240\r\n" in terminal.until("replay> ")
    terminal.type(".quit\n")
    assert terminal.code() == 0


def test_a_mistake_is_one_line_and_the_prompt_goes_on(terminal: Terminal) -> None:
    terminal.type("SELEC 1;\n")
    assert terminal.until("replay> ").count("error: SQL: Parser Error") == 1
    terminal.type(".schema cals\n")
    assert "did you mean calls" in terminal.until("replay> ")


def test_ctrl_c_drops_the_line_and_ctrl_d_leaves(terminal: Terminal) -> None:
    terminal.type("SELECT nonsense\n")
    terminal.until("...> ")
    terminal.interrupt()
    terminal.until("replay> ")
    terminal.type(".mode csv\n")
    terminal.until("replay> ")
    terminal.type("SELECT 6 * 7 AS answer;\n")
    assert "answer\r\n42\r\n" in terminal.until("replay> ")
    terminal.type("\x04")
    assert terminal.code() == 0


def test_ctrl_c_stops_a_long_query(terminal: Terminal) -> None:
    terminal.type("SELECT count(*) FROM range(1000000) a, range(1000000) b\n")
    terminal.until("...> ")
    terminal.type("WHERE a.range + b.range = 7 OR random() > 2;\n")
    terminal.until("2;")
    time.sleep(0.5)
    assert "replay> " not in terminal.seen
    terminal.interrupt()
    terminal.until("replay> ")
    terminal.type(".quit\n")
    assert terminal.code() == 0


def test_lines_are_remembered_and_can_be_edited(terminal: Terminal) -> None:
    pytest.importorskip("readline")
    terminal.type(".mode csv\n")
    terminal.until("replay> ")
    terminal.type("SELECT 20 + 1 AS answer;\n")
    assert "answer\r\n21\r\n" in terminal.until("replay> ")
    up, home = "\x10", "\x01"
    terminal.type(f"{up}{home}\x1b\x66 40 +\n")
    terminal.until("answer\r\n61\r\n")


def test_tab_completes(terminal: Terminal) -> None:
    pytest.importorskip("readline")
    terminal.type(".mode csv\n")
    terminal.until("replay> ")
    terminal.type("SELECT count(*) AS n FROM timel\t;\n")
    terminal.until("FROM timeline;")
    assert "\r\nn\r\n" in terminal.until("replay> ")
