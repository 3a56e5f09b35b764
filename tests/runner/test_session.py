"""A Ray of this machine's own goes as it came, whenever Ctrl-C is typed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import ray

from replay.runner import session
from replay.runner.session import interrupts_held, started


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_what_must_not_be_interrupted_is_done_first(sent: signal.Signals) -> None:
    reached = []

    def interrupted() -> None:
        with interrupts_held():
            os.kill(os.getpid(), sent)
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("the end")

    before = signal.signal(signal.SIGTERM, session.interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert reached == ["the end"]
        assert signal.getsignal(signal.SIGTERM) is session.interrupt
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_ctrl_c_while_ray_ends_leaves_nothing_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def shutdown(**_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(session, "temporary_directory", lambda: str(tmp_path))
    monkeypatch.setattr(session, "init", lambda **_: None)
    monkeypatch.setattr(ray, "shutdown", shutdown)
    with pytest.raises(KeyboardInterrupt), started(1, 0):
        assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())
