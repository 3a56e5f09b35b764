"""Progress shows on standard error, once something takes longer than two seconds."""

from __future__ import annotations

import os
import pty
import sys

import pytest

from replay import progress as progress_module
from replay.progress import progress


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test sets."""
    now = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    return now


def all_shown(end: int) -> str:
    """What a terminal was given before its other end was closed; the kernel hands it over piece by piece."""
    shown = b""
    try:
        while piece := os.read(end, 65536):
            shown += piece
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(end)
    return shown.decode()


def test_what_is_quick_shows_nothing(capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    with progress("4 replays") as told:
        clock[0] += 1.9
        told(0.5)
    assert capsys.readouterr() == ("", "")


def test_a_log_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    with progress("4 replays") as told:
        for seconds in (3, 4, 5, 14, 15):
            clock[0] = 100.0 + seconds
            told(seconds / 20)
        told(1.0)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["4 replays: 15% after 3 s, 17 s left", "4 replays: 70% after 14 s, 6 s left"]


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    with progress("4 replays", quiet=True) as told:
        clock[0] += 60
        told(0.5)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_with_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], clock: list[float]
) -> None:
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        with progress("4 replays") as told:
            clock[0] += 3
            told(0.5)
            told(0.75)
    shown = all_shown(ours)
    assert "4 replays" in shown
    assert "75%" in shown
    assert "left" in shown
    assert capsys.readouterr().out == ""
