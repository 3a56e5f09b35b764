"""Full disks and broken files: one clear sentence, nothing half-written, and the same command mends it."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import replay
from queries import run_query
from replay.cli import main
from replay.errors import BadConfig, BadInput
from replay.runner.store import Store

SETTINGS = {"policies": ["no_retry", "cancel"], "seeds": 1, "overload": {"start_s": 5, "end_s": 10}}


@pytest.fixture
def again(log_file: str, profile_file: str, tmp_path: Path) -> Callable[[], replay.runner.Run]:
    return lambda: replay.run(log_file, str(tmp_path / "run"), {**SETTINGS, "profile": profile_file})


@pytest.fixture
def files_of_at_most_4_kb() -> Iterator[None]:
    """What a full disk is to a program, without one."""
    import signal

    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


def tables(run: Path) -> dict[str, bytes]:
    return {str(p.relative_to(run)): p.read_bytes() for p in run.rglob("part-0.parquet")}


def test_a_file_that_finds_no_room_leaves_nothing_behind(tmp_path: Path, files_of_at_most_4_kb: None) -> None:
    store = Store(str(tmp_path))
    with pytest.raises(BadConfig, match=r"large: cannot be written: File too large"):
        store.write("large", bytes(10_000))
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_stops_the_run_and_more_room_finishes_it(
    again: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, write = tmp_path / "run", Store.write

    def full(self: Store, name: str, content: bytes) -> None:
        if name.startswith("executions/policy=no_retry"):
            raise BadConfig("executions: cannot be written: No space left on device")
        write(self, name, content)

    monkeypatch.setattr(Store, "write", full)
    with pytest.raises(BadConfig, match="No space left"):
        again()
    manifest = json.loads((run / "manifest.json").read_text())
    assert [key.split("/")[0] for key in manifest["done"]] == ["policy=cancel"]
    assert [key.split("/")[0] for key in manifest["failed"]] == ["policy=no_retry"]
    monkeypatch.setattr(Store, "write", write)
    assert again().query("summary").num_rows == 2
    assert json.loads((run / "manifest.json").read_text())["failed"] == {}


@pytest.mark.parametrize("harm", [Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:300])])
def test_a_lost_or_broken_table_is_computed_again(again: Any, tmp_path: Path, harm: Callable[[Path], Any]) -> None:
    run = Path(again().path)
    whole = tables(run)
    harm(run / sorted(whole)[-1])
    again()
    assert tables(run) == whole


def test_a_broken_table_is_named_by_a_query(again: Any) -> None:
    run = Path(again().path)
    broken = run / max(name for name in tables(run) if name.startswith("calls"))
    broken.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(BadInput, match=r"cannot be read: .*part-0\.parquet"):
        run_query(str(run), "summary")


@pytest.mark.parametrize("command", ["report", "query"])
def test_a_broken_run_is_bad_data_on_the_command_line(
    command: str, again: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(again().path)
    (run / "phases.parquet").write_bytes(b"")
    with pytest.raises(SystemExit) as exit:
        main([command, *(["summary"] if command == "query" else []), str(run)])
    err = capsys.readouterr().err
    assert exit.value.code == 3
    assert err.startswith(f"replay: {run}: cannot be read")
    assert err.count("\n") == 1


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"[]", b'{"version": 3}'])
def test_a_broken_manifest_is_named(content: bytes, again: Any) -> None:
    manifest = Path(again().path) / "manifest.json"
    manifest.write_bytes(content)
    with pytest.raises(BadConfig, match=r"manifest\.json: is not a manifest"):
        again()
    manifest.unlink()
    manifest.mkdir()
    with pytest.raises(BadConfig, match=r"manifest\.json: cannot be read"):
        again()


def test_the_logs_own_policy_is_compared_whatever_it_is_called_by(
    log_file: str, profile_file: str, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("name: mine\nbased_on: cancel\n")
    settings = {**SETTINGS, "profile": profile_file, "as_logged": str(mine)}
    run = replay.run(log_file, str(tmp_path / "own"), settings)
    assert run.query("self_replay").num_rows >= 4
