"""The command line as a stranger uses it: data on stdout, one clear sentence on stderr, the right exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replay.cli import main

Result = tuple[int, str, str]
Command = Callable[..., Result]


@pytest.fixture
def replay(capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*arguments: str) -> Result:
        with pytest.raises(SystemExit) as exit:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return int(exit.value.code or 0), out, err

    return call


def one_sentence(err: str) -> bool:
    return err.startswith("replay: ") and err.count("\n") == 1 and "Traceback" not in err


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom replay.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    print(','.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split(","))
    assert "click" in loaded
    assert not loaded & {"numpy", "numba", "pyarrow", "duckdb", "rich", "yaml", "scipy", "msgspec"}
    for command in ("ingest", "describe", "run", "query", "sql", "report", "calibrate", "validate", "policies"):
        assert command in done.stdout


@pytest.mark.parametrize("command", ["ingest", "describe", "run", "query", "sql", "report", "calibrate", "validate"])
def test_every_command_has_help(replay: Command, command: str) -> None:
    code, out, _ = replay(command, "--help")
    assert code == 0
    assert "--json" in out


def test_from_a_log_to_an_answer(replay: Command, log_file: str, profile_file: str, tmp_path: Path) -> None:
    trace, run = tmp_path / "trace.parquet", tmp_path / "run"
    code, out, err = replay("ingest", log_file, "-o", trace)
    assert (code, out) == (0, "")
    assert "60 calls from 75 attempts" in err
    code, out, _ = replay("describe", trace, "--json")
    assert json.loads(out)["client"]["timeout_s"] == 2.0
    code, out, err = replay(
        "run", trace, "-o", run, "--profile", profile_file, "--seeds", "2", "--overload", "5:10", "--policy", "cancel",
        "--policy", "coalesce",
    )  # fmt: skip
    assert code == 0, err
    assert "cancel" in out
    assert "coalesce" in out
    code, again, _ = replay("report", run)
    assert again.strip() == out.strip()
    code, out, _ = replay("query", "delivered_by_phase", run, "--json")
    assert {row["policy"] for row in json.loads(out)} == {"cancel", "coalesce"}
    code, out, _ = replay("sql", run, "SELECT count(*) AS n FROM calls", "--format", "csv")
    assert out.split() == ["n", "240"]
    settings = (run / "config.resolved.yaml").read_text()
    assert "source: flag" in settings
    assert "source: log" in settings
    assert "source: default" in settings


WRONG = {
    "command": (["quary"], 2, "did you mean query"),
    "option": (["policies", "--jsn"], 2, "--json"),
    "policy": (["run", "LOG", "-o", "OUT", "--profile", "PROFILE", "--policy", "coalesse"], 2, "did you mean coalesce"),
    "query": (["query", "sumary", "RUN"], 2, "did you mean summary"),
    "format": (["ingest", "LOG", "-o", "OUT", "--format", "gatway"], 2, "did you mean gateway"),
    "set": (["run", "LOG", "-o", "OUT", "--profile", "PROFILE", "--set", "client.timeout=3"], 2, "client.timeout_s"),
    "set value": (
        ["run", "LOG", "-o", "OUT", "--profile", "PROFILE", "--set", "client.timeout_s=soon"],
        2,
        "timeout_s",
    ),
    "engine": (["run", "LOG", "-o", "OUT", "--profile", "PROFILE", "--set", "engine.max_seqs=3"], 2, "max_num_seqs"),
    "seeds": (["run", "LOG", "-o", "OUT", "--profile", "PROFILE", "--seeds", "0"], 2, "seeds"),
    "overload": (["run", "LOG", "-o", "OUT", "--profile", "PROFILE", "--overload", "9"], 2, "START:END"),
    "profile": (["run", "LOG", "-o", "OUT"], 2, "--profile"),
    "missing profile": (["run", "LOG", "-o", "OUT", "--profile", "nowhere.json"], 2, "nowhere.json"),
    "broken profile": (["run", "LOG", "-o", "OUT", "--profile", "LOG"], 3, "is not an engine profile"),
    "trace": (["run", "nowhere.parquet", "-o", "OUT", "--profile", "PROFILE"], 3, "nowhere.parquet"),
    "unwritable": (["run", "LOG", "-o", "LOG/below", "--profile", "PROFILE"], 2, "cannot be made"),
    "unwritable trace": (["ingest", "LOG", "-o", "LOG/below"], 2, "cannot be written"),
    "other run": (["run", "LOG", "-o", "RUN", "--profile", "PROFILE"], 2, "holds a run with other settings"),
    "no run": (["query", "summary", "."], 3, "is not a run directory"),
    "sql": (["sql", "RUN", "SELEC 1"], 2, "SQL: "),
    "parameter": (["query", "recovery", "RUN", "-p", "shar=1"], 2, "did you mean share"),
    "map": (["ingest", "LOG", "-o", "OUT", "--map", "prompt"], 2, "key=value"),
    "validate": (["validate", "."], 3, "holds no recording"),
    "calibrate": (["calibrate", "LOG", "-o", "OUT"], 3, "holds no step"),
}


@pytest.mark.parametrize(("arguments", "code", "words"), WRONG.values(), ids=list(WRONG))
def test_a_mistake_gets_one_sentence_and_its_code(
    arguments: list[str], code: int, words: str, replay: Command, log_file: str, profile_file: str, run_directory: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    places = {"LOG": log_file, "PROFILE": profile_file, "RUN": str(run_directory), "OUT": str(tmp_path / "out")}
    filled = []
    for argument in arguments:
        for name, place in places.items():
            if argument == name or argument.startswith(f"{name}/"):
                argument = argument.replace(name, place, 1)
        filled.append(argument)
    before = sorted(p for p in run_directory.rglob("*"))
    found, out, err = replay(*filled)
    assert (found, out) == (code, ""), err
    sentences = [line for line in err.splitlines() if line.startswith("replay: ")]
    assert len(sentences) == 1, err
    assert words in sentences[0]
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
    assert sorted(p for p in run_directory.rglob("*")) == before


def test_a_typo_in_an_experiment_file_is_named(
    replay: Command, log_file: str, profile_file: str, tmp_path: Path
) -> None:
    config = tmp_path / "experiment.yaml"
    config.write_text(f"profile: {profile_file}\nclient: {{max_atempts: 3}}\n")
    code, _, err = replay("run", log_file, "-o", tmp_path / "run", "--config", config)
    assert code == 2
    assert one_sentence(err)
    assert "experiment.yaml" in err
    assert "did you mean client.max_attempts" in err


def test_flags_beat_the_environment_which_beats_the_file(
    replay: Command, log_file: str, profile_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "experiment.yaml"
    config.write_text(f"profile: {profile_file}\nseeds: 4\npolicies: [no_retry]\nas_logged: no_retry\n")
    arguments = ["run", log_file, "--config", str(config), "--quiet", "-o"]

    def seeds(run: str) -> Any:
        _, out, _ = replay("sql", tmp_path / run, "SELECT count(DISTINCT seed) AS n FROM calls", "--json")
        return json.loads(out)[0]["n"]

    replay(*arguments, tmp_path / "file")
    monkeypatch.setenv("REPLAY_RUN_SEEDS", "3")
    replay(*arguments, tmp_path / "environment")
    replay(*arguments, tmp_path / "flag", "--seeds", "2")
    assert [seeds(run) for run in ("file", "environment", "flag")] == [4, 3, 2]


def test_a_policy_of_ones_own_is_a_few_lines(replay: Command, log_file: str, profile_file: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("name: mine\nbased_on: coalesce\ngateway: {orphan_ttl_s: 10}\n")
    run = tmp_path / "run"
    code, out, err = replay("run", log_file, "-o", run, "--profile", profile_file, "--policy", mine, "--quiet")
    assert code == 0, err
    assert "mine" in out
    mine.write_text("name: mine\nbased_on: coalesce\ngateway: {orphan_tl_s: 10}\n")
    code, _, err = replay("run", log_file, "-o", tmp_path / "r2", "--profile", profile_file, "--policy", mine)
    assert code == 2
    assert "did you mean gateway.orphan_ttl_s" in err


def test_calls_that_cannot_fit_are_rejected_and_counted(replay: Command, profile_file: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    line = {"attempt": 0, "prompt": 100, "output": 5, "start": 0.0, "end": 1.0, "status": "ok"}
    sizes = [100, 5_000, 100]
    log.write_text("".join(json.dumps({**line, "call": i, "prompt": p}) + "\n" for i, p in enumerate(sizes)))
    run = tmp_path / "run"
    code, out, err = replay("run", log, "-o", run, "--profile", profile_file, "--policy", "cancel", "--quiet")
    assert code == 0, err
    assert "1 calls do not fit the model or the KV pool" in out
    _, out, _ = replay("sql", run, "SELECT outcome, reason, eligible FROM calls ORDER BY call_id", "--json")
    assert [r["reason"] for r in json.loads(out)] == [None, "rejected:too_long", None]
    _, out, _ = replay("query", "delivered_by_phase", run, "--json")
    (row,) = json.loads(out)
    assert (row["calls"], row["too_long"], row["delivered_call_rate"]) == (2, 1, 1.0)


def test_lists_are_listed(replay: Command) -> None:
    assert "retry_budget" in replay("policies")[1]
    assert "orphan_ttl_s: 0.0" in replay("policies", "show", "cancel")[1]
    assert "gateway" in replay("formats")[1]
    assert "counter_gap" in replay("query", "--list")[1]
    assert "compiled" in replay("doctor")[1]


def test_other_clients_than_the_logs_are_not_held_against_it(
    replay: Command, log_file: str, profile_file: str, tmp_path: Path
) -> None:
    arguments = ["run", log_file, "--profile", profile_file, "--policy", "coalesce", "-o"]
    _, out, err = replay(*arguments, tmp_path / "same", "--timeout-s", "2")
    assert "in the log" in out
    assert "not compared" not in err
    _, out, err = replay(*arguments, tmp_path / "other", "--timeout-s", "20")
    assert "in the log" not in out
    assert "client.timeout_s is 20, in the log 2: the log's own policy is not compared with it" in err
