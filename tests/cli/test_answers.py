"""The commands that read a run: formats and files, thresholds and their exit code, comparisons, export."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from queries import names, run_query
from replay.cli import main

Replay = Callable[..., tuple[int, str, str]]


@pytest.fixture
def replay(capsys: pytest.CaptureFixture[str]) -> Replay:
    """A command line: its exit code, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return code, out, err

    return call


def test_queries_are_listed_for_people_and_programs(replay: Replay) -> None:
    code, out, _ = replay("query", "--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == names()
    _, out, _ = replay("query", "--list", "--json")
    listed = {entry["name"]: entry for entry in json.loads(out)}
    assert listed["worst_calls"]["parameters"] == {"limit": 10.0, "by": "waste"}
    assert all(entry["purpose"] for entry in listed.values())


@pytest.mark.parametrize("format", ["table", "csv", "json", "markdown"])
def test_what_is_printed_can_be_written(format: str, replay: Replay, run_directory: Path, tmp_path: Path) -> None:
    _, out, _ = replay("query", "summary", run_directory, "--format", format)
    code, nothing, _ = replay("query", "summary", run_directory, "--format", format, "-o", tmp_path / "file")
    assert (code, nothing) == (0, "")
    assert (tmp_path / "file").read_text() == out


@pytest.mark.parametrize(("end", "begins"), [(".csv", "policy,"), (".json", "["), (".md", "| policy"), (".x", " pol")])
def test_the_name_of_a_file_says_its_format(
    end: str, begins: str, replay: Replay, run_directory: Path, tmp_path: Path
) -> None:
    target = tmp_path / f"out{end}"
    assert replay("sql", run_directory, "SELECT policy, 1 AS n FROM policies", "-o", target)[0] == 0
    assert target.read_text().startswith(begins)


def test_parquet_keeps_every_value_and_needs_a_file(replay: Replay, run_directory: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    assert replay("query", "outcomes", run_directory, "-o", target)[0] == 0
    assert pq.read_table(target) == run_query(str(run_directory), "outcomes")
    assert replay("sql", run_directory, "SELECT 1 AS a, 2 AS a", "--format", "parquet", "-o", target)[0] == 0
    assert pq.read_table(target).column_names == ["a", "a_2"]
    code, _, err = replay("query", "outcomes", run_directory, "--format", "parquet")
    assert (code, err) == (2, "replay: --format parquet: needs a file, -o FILE.parquet\n")


def test_parameters_may_be_numbers_or_words(replay: Replay, run_directory: Path) -> None:
    _, out, _ = replay("query", "worst_calls", run_directory, "-p", "limit=2", "-p", "by=attempts", "--json")
    assert [row["place"] for row in json.loads(out)] == [1, 2, 1, 2]
    for wrong, said in (
        ("limit=two", "parameter limit=two: is not a number"),
        ("limt=2", "unknown parameter of worst_calls 'limt'; did you mean limit?"),
        ("by=luck", "by: luck is neither waste nor attempts"),
        ("limit", "-p limit: must be key=value"),
    ):
        code, _, err = replay("query", "worst_calls", run_directory, "-p", wrong)
        assert code == 2
        assert said in err


RUN = ("--policy", "cancel", "--policy", "coalesce", "--quiet", "--executor", "inline")


def test_the_name_and_the_run_may_stand_in_either_order(replay: Replay, run_directory: Path) -> None:
    assert replay("query", run_directory, "summary") == replay("query", "summary", run_directory)
    code, _, err = replay("query", "sumary", run_directory)
    assert (code, "did you mean summary" in err) == (2, True)


def test_conditions_may_come_from_the_environment(
    replay: Replay, run_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLAY_REPORT_FAIL_IF", "delivered_call_rate < 0; *:wasted_compute_frac >= 0")
    code, out, _ = replay("report", run_directory)
    assert code == 99
    assert out.startswith("BREACHED *:wasted_compute_frac >= 0: ")


def test_a_breach_is_said_first_and_exits_with_99(
    replay: Replay, log_file: str, profile_file: str, tmp_path: Path
) -> None:
    breached, held = "*:delivered_call_rate > 0", "wasted_compute_frac > 99%"
    experiment, run = tmp_path / "experiment.yaml", tmp_path / "r"
    experiment.write_text(json.dumps({"thresholds": [held, breached]}))
    command = ("run", log_file, "--config", experiment, "--profile", profile_file, "-o", run, *RUN)
    code, out, _ = replay(*command)
    assert code == 99
    assert out.startswith(f"BREACHED {breached}: ")
    written = json.loads((run / "thresholds.json").read_text())
    assert [j["breached"] for j in written] == [True, True, False]

    code, out, _ = replay("report", run, "--json")
    assert code == 99
    assert json.loads(out)["thresholds"] == written

    code, out, _ = replay("report", run, "--fail-if", held)
    assert code == 0
    assert out.startswith("the threshold held")

    code, out, _ = replay(*command, "--fail-if", held)  # in place of the file's, on a run that is finished
    assert code == 0
    assert out.startswith("the threshold held")
    assert [j["breached"] for j in json.loads((run / "thresholds.json").read_text())] == [False]


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("delivered_call_rate 0.99", "must be [POLICY:]FIGURE OP NUMBER"),
        ("delivered_rate < 1", "did you mean delivered_call_rate"),
        ("cancle:delivered_call_rate < 1", "did you mean cancel"),
    ],
)
def test_a_wrong_threshold_costs_no_run(
    condition: str, said: str, replay: Replay, log_file: str, profile_file: str, tmp_path: Path
) -> None:
    flags = ("--profile", profile_file, "-o", tmp_path / "r", *RUN, "--fail-if", condition)
    code, out, err = replay("run", log_file, *flags)
    assert (code, out) == (2, "")
    assert said in err
    assert not (tmp_path / "r").exists()


def test_policies_and_runs_are_compared(replay: Replay, run_directory: Path) -> None:
    code, out, _ = replay("compare", run_directory)
    assert code == 0
    assert "coalesce delivers as many calls as cancel" in " ".join(out.split())
    _, out, _ = replay("compare", run_directory, "--baseline", "coalesce", "--json")
    found = json.loads(out)
    assert (found["baseline"], found["sentences"][0].split()[0]) == ("coalesce", "cancel")
    assert {d["policy"] for d in found["differences"]} == {"cancel"}
    _, out, _ = replay("compare", run_directory, run_directory, "--format", "markdown")
    assert f"than in {run_directory}" not in out
    assert f"as many calls as in {run_directory}" in out
    code, _, err = replay("compare", run_directory, "--baseline", "coalesc")
    assert (code, "did you mean coalesce" in err) == (2, True)
    code, _, err = replay("compare", run_directory, run_directory, "--baseline", "cancel")
    assert (code, "is for policies of one run" in err) == (2, True)


def test_a_run_is_exported_to_one_file(replay: Replay, run_directory: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.db"
    code, out, err = replay("export", run_directory, "--duckdb", target)
    assert (code, out) == (0, "")
    assert f"wrote {target}: " in err
    with duckdb.connect(str(target), read_only=True) as database:
        assert database.sql("SELECT count(*) FROM summary").fetchall() == [(2,)]
    code, _, err = replay("export", run_directory, "--duckdb", target)
    assert (code, "is there already" in err) == (2, True)
    _, out, _ = replay("export", run_directory, "--duckdb", tmp_path / "other.db", "--json")
    assert {"calls", "summary"} <= set(json.loads(out)["tables"])
