"""Interrupts, odd names and odd files: nothing is half-written, and what was finished stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

import replay.runner.inline
from replay.cli import main
from replay.runner.cells import run_cell

Result = tuple[int, str, str]


@pytest.fixture
def run(
    log_file: str, profile_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Any:  # fmt: skip
    """`replay run` on the small log, in a directory of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*flags: str, trace: str = log_file, profile: str = profile_file) -> Result:
        with pytest.raises(SystemExit) as exit:
            main(["run", trace, "--profile", profile, "--quiet", *flags])
        out, err = capsys.readouterr()
        return int(exit.value.code or 0), out, err

    return call


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Any:
    """Rows of SQL on a run."""

    def call(run: object, sql: str) -> Any:
        with pytest.raises(SystemExit) as exit:
            main(["sql", str(run), sql, "--json"])
        out, err = capsys.readouterr()
        assert exit.value.code == 0, err
        return json.loads(out)

    return call


def contents(run: Path) -> dict[str, bytes]:
    return {str(p.relative_to(run)): p.read_bytes() for p in sorted(run.rglob("part-*.parquet"))}


def test_an_interrupt_keeps_what_was_finished(
    run: Any, ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--policy", "no_retry", "--policy", "cancel", "--seeds", "2"]
    assert run("-o", "whole", *flags)[0] == 0
    done: list[str] = []

    def interrupted(cell: Any, *arguments: Any) -> Any:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(cell.key)
        return run_cell(cell, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(replay.runner.inline, "run_cell", interrupted)
        code, out, err = run("-o", "broken", *flags)
    assert (code, out) == (130, "")
    assert err.strip().startswith("replay: interrupted")
    manifest = json.loads((tmp_path / "broken" / "manifest.json").read_text())
    assert list(manifest["done"]) == done
    assert ask("broken", "SELECT count(DISTINCT (policy, seed)) AS n FROM calls") == [{"n": 2}]
    assert run("-o", "broken", *flags)[0] == 0
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


def test_only_a_missing_cell_is_computed_again(run: Any, tmp_path: Path) -> None:
    flags = ["-o", "run", "--policy", "cancel", "--seeds", "3"]
    first = run(*flags)
    before = contents(tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    lost = next(key for key in manifest["done"] if "seed=1" in key)
    del manifest["done"][lost]
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest))
    for table in ("calls", "attempts", "executions", "timeline", "replicas"):
        (tmp_path / "run" / table / f"{lost}.parquet").unlink()
    kept = {p: p.stat().st_mtime_ns for p in (tmp_path / "run").rglob("part-*.parquet")}
    assert run(*flags) == first
    assert contents(tmp_path / "run") == before
    assert all(p.stat().st_mtime_ns == written for p, written in kept.items())


def test_a_directory_that_holds_other_files_is_left_alone(run: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    code, out, err = run("-o", "mine")
    assert (code, out) == (2, "")
    assert "holds files that are not a run's" in err
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    (tmp_path / "mine" / "manifest.json").write_text("{}")
    assert "is not a manifest" in run("-o", "mine")[2]


@pytest.mark.parametrize("directory", ["run [1]", "what?", "star*", "umlaut-ä", "it's", "a,b"])
def test_a_run_directory_may_have_an_odd_name(run: Any, ask: Any, directory: str) -> None:
    code, _, err = run("-o", directory, "--policy", "cancel")
    assert code == 0, err
    assert ask(directory, "SELECT count(*) AS n FROM calls") == [{"n": 60}]


def test_the_run_that_is_named_answers_wherever_one_stands(
    run: Any, ask: Any, run_directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run("-o", "mine", "--policy", "no_retry", "--set", "as_logged=null")[0] == 0
    monkeypatch.chdir(run_directory)
    policies = "SELECT policy FROM policies JOIN (SELECT DISTINCT policy FROM calls) USING (policy)"
    assert ask(tmp_path / "mine", policies) == [{"policy": "no_retry"}]
    assert ask("../run", policies + " ORDER BY policy") == [{"policy": "cancel"}, {"policy": "coalesce"}]


def test_the_views_work_from_inside_the_run_directory(run_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run_directory)
    with duckdb.connect() as plain:
        plain.execute(Path("views.sql").read_text())
        assert plain.sql("SELECT count(*) FROM calls").fetchall() == [(240,)]


@pytest.mark.parametrize("name", ["007", "2024-01-01", "true", "null"])
def test_a_policy_name_is_a_name_whatever_it_looks_like(run: Any, ask: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.yaml").write_text(f"name: '{name}'\nbased_on: cancel\n")
    code, out, err = run("-o", "run", "--policy", "mine.yaml", "--set", "as_logged=null")
    assert code == 0, err
    assert name in out
    assert ask("run", "SELECT DISTINCT policy FROM calls JOIN policies USING (policy)") == [{"policy": name}]


def test_a_profile_name_makes_a_directory_name(run: Any, ask: Any, tmp_path: Path, profile_file: str) -> None:
    content = json.loads(Path(profile_file).read_text())
    (tmp_path / "odd.json").write_text(json.dumps({**content, "name": "a=b/../c %20"}))
    code, _, err = run("-o", "run", "--policy", "cancel", profile="odd.json")
    assert code == 0, err
    assert ask("run", "SELECT DISTINCT profile FROM calls") == [{"profile": "a_b_.._c__20"}]


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "truncated.parquet: cannot be read as Parquet"), (b"", "the file is empty"), (b"\n\n", "unknown format")],
)
def test_a_broken_trace_is_named_and_nothing_is_written(
    run: Any, tmp_path: Path, run_directory: Path, content: bytes | None, words: str
) -> None:
    whole = next(run_directory.rglob("part-*.parquet")).read_bytes()
    (tmp_path / "truncated.parquet").write_bytes(whole[: len(whole) // 2] if content is None else content)
    code, out, err = run("-o", "run", trace="truncated.parquet")
    assert (code, out) == (3, "")
    assert err.count("\n") == 1
    assert words in err
    assert [p.name for p in tmp_path.iterdir()] == ["truncated.parquet"]


def test_broken_sql_and_broken_yaml_get_one_line(run: Any, run_directory: Path, capsys: Any) -> None:
    for sql in ("SELEC 1", "SELECT nothing\nFROM calls", "SELECT CAST('x' AS INT) FROM calls"):
        with pytest.raises(SystemExit) as exit:
            main(["sql", str(run_directory), sql])
        out, err = capsys.readouterr()
        assert (exit.value.code, out) == (2, "")
        assert err.startswith("replay: SQL: ")
        assert err.count("\n") == 1
    code, _, err = run("-o", "run", "--set", "policies=[cancel")
    assert (code, err) == (2, "replay: --set policies=[cancel: the value is not YAML\n")


def test_a_dotted_setting_replaces_what_holds_no_keys(run: Any) -> None:
    code, _, err = run("-o", "run", "--set", "client=null", "--set", "client.max_atempts=2")
    assert code == 2
    assert "did you mean client.max_attempts" in err


def test_phases_may_be_one_and_a_cut_may_leave_nothing(run: Any, ask: Any) -> None:
    code, out, err = run("-o", "all", "--policy", "cancel")
    assert code == 0, err
    assert {row["phase"] for row in ask("all", "SELECT DISTINCT phase FROM calls")} == {"all"}
    assert "all (60 calls)" in out
    code, out, err = run("-o", "cut", "--policy", "cancel", "--until-s", "0")
    assert code == 0, err
    assert ask("cut", "SELECT DISTINCT outcome FROM calls") == [{"outcome": "unresolved"}]
    assert ask("cut", "SELECT DISTINCT fate FROM executions") == [{"fate": "running_at_end"}]


def test_calls_that_are_all_too_long_still_make_a_run(run: Any, ask: Any) -> None:
    code, _, err = run("-o", "run", "--policy", "cancel", "--set", "engine.num_blocks=2")
    assert code == 0, err
    assert ask("run", "SELECT DISTINCT reason, attempts FROM calls") == [{"reason": "rejected:too_long", "attempts": 1}]


def test_a_closed_pipe_is_passed_over_in_silence(run_directory: Path) -> None:
    code = "import sys; from replay.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "sql", str(run_directory), "SELECT * FROM calls"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.stderr == b""


def test_the_trace_in_a_run_is_what_was_observed(run: Any, tmp_path: Path) -> None:
    run("-o", "run", "--policy", "cancel")
    observed = pq.read_table(tmp_path / "run" / "observed.parquet")
    assert sum(observed["observed_attempts"].to_pylist()) == 75
