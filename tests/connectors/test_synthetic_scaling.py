"""A log made busier or calmer, longer or shorter: sessions stay whole, and time is not stretched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from scipy import stats

from connectors import synthetic
from connectors.synthetic.scaling import scaled
from replay.cli import cli
from replay.describe import describe
from replay.ingest import Trace, ingest, read_trace, scale_trace, write_trace
from trace_schema.check import check_calls
from trace_schema.errors import BadConfig

CHAT = {"calls": 4_000, "session_turns": "geometric:4", "prefixes": 3, "prefix_tokens": 64, "rate_per_s": 2.0}


@pytest.fixture(scope="module")
def chat() -> pa.Table:
    return synthetic.calls("poisson", **CHAT)


def turns_of(calls: pa.Table) -> dict[str, list[dict[str, Any]]]:
    sessions: dict[str, list[dict[str, Any]]] = {}
    for call in calls.to_pylist():
        sessions.setdefault(call["session_id"], []).append(call)
    return sessions


@pytest.mark.parametrize("rate", [0.3, 0.9, 1.5, 2.0, 3.7])
def test_the_rate_is_what_is_asked_for_and_every_session_is_whole(chat: pa.Table, rate: float) -> None:
    calls, _ = scaled(chat, {"rate": rate, "seed": 4})
    check_calls(calls)
    before, after = turns_of(chat), turns_of(calls)
    assert len(after) == pytest.approx(rate * len(before), abs=5 * len(before) ** 0.5)
    for name, turns in after.items():
        original = before[name.split("~")[0]]
        assert [t["turn"] for t in turns] == [t["turn"] for t in original]
        assert [t["previous_call_id"] for t in turns] == [None, *(t["call_id"] for t in turns[:-1])]
        moved = [t["arrival_s"] - o["arrival_s"] for t, o in zip(turns, original, strict=True)]
        assert moved == pytest.approx([moved[0]] * len(moved), abs=1e-6)
        assert abs(moved[0]) <= 10.0
        for name_of in ("prompt_tokens", "output_tokens", "think_time_s"):
            assert [t[name_of] for t in turns] == [o[name_of] for o in original]


def test_time_is_not_stretched_unless_that_is_asked_for(chat: pa.Table) -> None:
    last = chat["arrival_s"][-1].as_py()
    for rate in (0.5, 2.0):
        assert scaled(chat, {"rate": rate})[0]["arrival_s"][-1].as_py() == pytest.approx(last, rel=0.02)
    slow, _ = scaled(chat, {"stretch": 2.0})
    assert slow["arrival_s"].to_numpy() == pytest.approx(2.0 * chat["arrival_s"].to_numpy())


def test_a_thinned_or_superposed_poisson_process_is_one() -> None:
    calls = synthetic.calls("poisson", calls=20_000, rate_per_s=20.0)
    for rate in (0.25, 2.5):
        gaps = np.diff(scaled(calls, {"rate": rate, "seed": 1})[0]["arrival_s"].to_numpy())
        assert stats.kstest(gaps, stats.expon(scale=1.0 / (20.0 * rate)).cdf).pvalue > 0.01


def test_an_overload_stays_where_it_was_and_as_tall_as_it_was() -> None:
    calls = synthetic.calls("overload", calls=20_000, overload_factor=3.0)
    counts = [
        np.histogram(t["arrival_s"].to_numpy(), [0.0, 60.0, 120.0, 180.0])[0]
        for t in (calls, scaled(calls, {"rate": 4.0})[0])
    ]
    assert counts[1] / counts[0] == pytest.approx([4.0, 4.0, 4.0], rel=0.15)


def test_copies_are_other_people_who_share_what_all_share(chat: pa.Table) -> None:
    calls, _ = scaled(chat, {"rate": 3.0})
    content = calls["content_id"].to_pylist()
    assert len(set(content)) == len(content)
    owners: dict[int, set[str]] = {}
    for name, turns in turns_of(calls).items():
        for block in turns[-1]["block_hashes"]:
            owners.setdefault(block, set()).add(name)
    shared = [names for names in owners.values() if len(names) > 1]
    assert len(shared) == 3 * 4
    blocks = sum(len(turns[-1]["block_hashes"]) for turns in turns_of(chat).values())
    distinct = sum(len(turns[-1]["block_hashes"]) - 4 for turns in turns_of(chat).values())
    assert len(owners) == 3 * distinct + 12
    assert blocks > distinct


def test_more_rate_keeps_whom_less_rate_kept(chat: pa.Table) -> None:
    few, many = (set(scaled(chat, {"rate": rate, "seed": 2})[0]["session_id"].to_pylist()) for rate in (0.2, 0.6))
    assert few < many


def test_lengths_are_scaled_and_so_is_what_prompts_share() -> None:
    calls = synthetic.calls(
        "poisson", calls=400, prefixes=2, prefix_tokens=512, user_cancel_rate=0.3, user_cancel_tokens=40
    )
    longer, _ = scaled(calls, {"prompt": 1.5, "output": 0.5})
    for name, factor in {"prompt_tokens": 1.5, "output_tokens": 0.5, "user_cancel_tokens": 0.5}.items():
        before = calls[name].to_numpy(zero_copy_only=False) * factor
        assert longer[name].to_numpy(zero_copy_only=False) == pytest.approx(
            np.maximum(before, 1.0), abs=0.5, nan_ok=True
        )
    assert set(longer["hash_block_tokens"].to_pylist()) == {768}
    assert longer["block_hashes"].equals(calls["block_hashes"])
    check_calls(longer)


def test_blocks_that_do_not_fit_a_shorter_prompt_are_left_out(chat: pa.Table) -> None:
    shorter, _ = scaled(chat, {"prompt": 0.03})
    for call in shorter.to_pylist():
        assert len(call["block_hashes"]) * call["hash_block_tokens"] <= call["prompt_tokens"]


def test_calls_without_a_session_are_thinned_one_by_one_and_equal_options_give_equal_tables() -> None:
    calls = synthetic.calls("poisson", calls=5_000)
    once, again, other = (scaled(calls, {"rate": 1.4, "seed": seed})[0] for seed in (1, 1, 2))
    assert once.equals(again)
    assert not once.equals(other)
    assert once.num_rows == pytest.approx(7_000, abs=200)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "nothing is changed: give rate, prompt, output or stretch"),
        ({"rate": 1}, "nothing is changed"),
        ({"rate": 0}, "rate: expected `float` > 0.0"),
        ({"rates": 2}, "did you mean rate"),
        ({"rate": 1e-6}, "rate=1e-06 leaves none of the 5 sessions"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        scaled(synthetic.calls("poisson", calls=5), options)


def test_a_scaled_log_says_so_and_is_not_held_against_itself(log_file: str, tmp_path: Path) -> None:
    trace, path = str(tmp_path / "trace.parquet"), str(tmp_path / "double.parquet")
    write_trace(ingest([log_file]), trace)
    command = ["ingest", trace, "-o", path, "--scale", "rate=2", "--scale", "prompt=1.5", "--scale", "seed=3"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    assert "2 times the log's sessions and single calls" in done.stderr
    double = read_trace(path)
    assert double.calls.num_rows == 2 * read_trace(trace).calls.num_rows
    assert double.about.added is not None
    assert double.about.added.scales == [{"seed": 3, "rate": 2.0, "prompt": 1.5}]
    assert "synthetic       scale: made with seed 3, not observed" in describe(double).text()


def test_phases_are_stretched_with_the_times() -> None:
    trace = ingest(["synthetic:overload"], scale={"stretch": 3.0})
    assert [(p.start_s, p.end_s) for p in trace.phases] == [(0.0, 180.0), (180.0, 360.0), (360.0, None)]


def test_users_and_a_scale_are_both_remembered(tmp_path: Path) -> None:
    calls = synthetic.calls("poisson", calls=100)
    laid = ingest(["synthetic:poisson"], options={"calls": 100, "user_cancel_rate": 0.5})
    both = scale_trace(Trace(calls, laid.about), {"rate": 2.0})
    assert both.about.added is not None
    assert both.about.added.workload == "poisson"
    assert both.about.added.says[-1].startswith("2 times the log's sessions")
