"""A run fills in what its log cut short, says so, and compares its policies on the same calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import replay
from replay.cli import cli
from replay.ingest import ingest
from replay.report.answer import report, report_data
from replay.report.page import write_page

N = 200


@pytest.fixture
def cut_log(tmp_path: Path) -> str:
    """A log in which each fifth user left with 10 tokens of the stream, and each tenth after a while without any."""
    random = np.random.default_rng(2)
    lines = []
    for k in range(N):
        line: dict[str, Any] = {"call": k, "start": 0.5 * k, "prompt": 100, "stream": True}
        if k % 5 == 0:
            line |= {"status": "cancelled", "end": 0.5 * k + random.uniform(0.5, 4.0), "tokens": 10 if k % 10 else 0}
        else:
            line |= {"status": "ok", "end": 0.5 * k + random.uniform(0.2, 2.0), "output": 20 + k % 60}
        lines.append(json.dumps(line))
    path = tmp_path / "cut.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_what_was_cut_is_longer_in_every_replay_and_no_policy_shifts_a_draw(
    cut_log: str, profile_file: str, tmp_path: Path
) -> None:
    settings = {"profile": profile_file, "policies": ["cancel", "no_cancel"], "seeds": 2}
    run = replay.run(cut_log, str(tmp_path / "run"), settings)
    rows = run.sql(
        "SELECT policy, seed, call_id, output_tokens FROM calls WHERE call_id % 5 = 0 ORDER BY ALL"
    ).to_pylist()
    drawn = {
        (r["policy"], r["seed"]): [
            q["output_tokens"] for q in rows if (q["policy"], q["seed"]) == (r["policy"], r["seed"])
        ]
        for r in rows
    }
    assert min(min(tokens) for tokens in drawn.values()) > 10
    assert drawn["cancel", 0] == drawn["no_cancel", 0]
    assert drawn["cancel", 0] != drawn["cancel", 1]
    kept = run.sql("SELECT DISTINCT call_id, output_tokens FROM calls WHERE call_id % 5 <> 0 ORDER BY 1")
    assert kept["output_tokens"].to_pylist() == [20 + k % 60 for k in range(N) if k % 5]


def test_survivors_are_the_same_under_every_policy_and_seed(cut_log: str, profile_file: str, tmp_path: Path) -> None:
    settings = {"profile": profile_file, "policies": ["cancel", "no_cancel"], "seeds": 3}
    run = replay.run(cut_log, str(tmp_path / "run"), settings)
    found = run.sql("SELECT count(*) AS n FROM calls WHERE user_cancel_s IS NULL GROUP BY policy, seed")["n"]
    assert set(found.to_pylist()) == {N - N // 5}


def test_users_who_stayed_may_leave_a_slower_service(cut_log: str, profile_file: str, tmp_path: Path) -> None:
    slow = {"profile": profile_file, "policies": ["cancel"], "engine": {"max_num_seqs": 1}}
    left = {}
    for uncensor in ("kaplan-meier", "none"):
        run = replay.run(cut_log, str(tmp_path / uncensor), slow | {"uncensor": uncensor})
        (left[uncensor],) = run.sql("SELECT count(*) AS n FROM calls WHERE outcome = 'cancelled'")["n"].to_pylist()
    assert left["kaplan-meier"] > left["none"]


def test_the_report_says_how_much_is_drawn_and_nothing_where_nothing_is(
    cut_log: str, profile_file: str, tmp_path: Path
) -> None:
    settings = {"profile": profile_file, "policies": ["cancel"]}
    run = replay.run(cut_log, str(tmp_path / "run"), settings)
    drawn = report_data(run.path)["drawn"]
    assert drawn["outputs"] == N // 5
    assert 0 < drawn["patience"] <= N - N // 5
    said = " ".join(report(run.path).split())
    assert "40 outputs were cut short in the log: they are drawn from those that were not" in said
    assert f"Users of {drawn['patience']} calls stayed in the log" in said
    bounds = replay.run(cut_log, str(tmp_path / "bounds"), settings | {"uncensor": "none"})
    assert set(report_data(bounds.path)["drawn"].values()) == {0}
    assert "cut short" not in report(bounds.path)
    assert bounds.sql("SELECT max(output_tokens) AS n FROM calls WHERE call_id % 5 = 0")["n"].to_pylist() == [10]


def test_a_flag_takes_the_bounds_and_another_run_is_not_gone_on_with(
    cut_log: str, profile_file: str, tmp_path: Path
) -> None:
    command = ["run", cut_log, "-o", str(tmp_path / "run"), "--profile", profile_file, "--policy", "cancel"]
    command += ["--executor", "inline", "--quiet"]
    first = CliRunner().invoke(cli, command)
    assert first.exit_code == 0, first.output
    other = CliRunner().invoke(cli, [*command, "--uncensor", "none"], standalone_mode=False)
    assert "holds a run with other settings" in str(other.exception)
    assert CliRunner().invoke(cli, [*command, "--uncensor", "guess"]).exit_code != 0


def test_a_page_says_whether_turns_wait_for_each_other(profile_file: str, tmp_path: Path) -> None:
    settings = {"profile": profile_file, "policies": ["cancel"]}
    words = {}
    for loop in ("open", "closed"):
        trace = ingest(["synthetic:chat"], options={"calls": 60, "session_loop": loop, "prompt_tokens": 20})
        run = replay.run(trace, str(tmp_path / loop), settings)
        words[loop] = Path(write_page(run.path)).read_text()
    assert "Open loop" in words["open"]
    assert "turns of sessions come when the one before has ended" in words["closed"]
    assert "Open loop" not in words["closed"]
