"""Comparisons: within a run, seed by seed; between two runs, only where they may be compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.stats import bootstrap

from queries import run_sql
from replay.report.compare import Comparison, Difference, compare, compare_runs, interval
from replay.report.differences import comparison_markdown, comparison_text, sentences
from replay.report.tables import WIDTH
from tests.queries.test_differences import replayed
from tests.queries.test_figures import write_run
from trace_schema.errors import BadConfig, BadInput, UnknownName


@pytest.fixture
def run(tmp_path: Path) -> str:
    """base delivers 1, 2, 1 of four calls over three seeds and wastes 8, 6, 7 s; better delivers all and wastes 1 s."""
    cells = {("base", seed): replayed(n, waste) for seed, (n, waste) in enumerate(((1, 8), (2, 6), (1, 7)))}
    cells |= {("better", seed): replayed(4, 1, attempts=2) for seed in range(3)}
    return finished(write_run(tmp_path / "run", cells))


def finished(root: str, **settings: Any) -> str:
    """With the papers that a run leaves."""
    (Path(root) / "manifest.json").write_text(json.dumps({"version": "1", "trace_sha256": "t", **settings}))
    held = {"client.timeout_s": {"value": 2.0, "source": "flag"}, "seeds": {"value": 3, "source": "flag"}}
    (Path(root) / "config.resolved.yaml").write_text(yaml.safe_dump(held))
    return root


def found(comparison: Comparison, figure: str, policy: str = "better") -> Difference:
    (difference,) = [d for d in comparison.differences if (d.figure, d.policy) == (figure, policy)]
    return difference


def test_figures_are_subtracted_seed_by_seed(run: str) -> None:
    comparison = compare(run)
    delivered = found(comparison, "delivered_call_rate")
    assert (delivered.baseline, delivered.seeds, delivered.value) == ("base", 3, 1.0)
    assert delivered.difference == pytest.approx((0.75 + 0.5 + 0.75) / 3)
    assert delivered.low is not None
    assert delivered.high is not None
    assert 0.5 <= delivered.low < delivered.difference < delivered.high <= 0.75
    assert found(comparison, "wasted_gpu_s").difference == -6.0
    attempts = found(comparison, "attempts")
    assert (attempts.difference, attempts.low, attempts.high) == (4.0, 4.0, 4.0)


def test_the_interval_is_the_bootstrap_of_paired_differences() -> None:
    gaps = [0.75, 0.5, 0.75, 0.6, 0.1]
    low, high = interval(gaps)
    expected = bootstrap(
        (np.array(gaps),), np.mean, method="percentile", n_resamples=9999, random_state=np.random.default_rng(0)
    ).confidence_interval
    assert (low, high) == (expected.low, expected.high)
    assert interval(gaps) == (low, high)
    assert interval([0.5]) == (None, None)


def test_a_latency_that_either_does_not_have_is_no_difference(run: str) -> None:
    latency = found(compare(run), "survivor_p95_s")
    assert (latency.value, latency.baseline_value, latency.difference, latency.low) == (1.0, None, None, None)
    assert "never → 1.0" in comparison_text(compare(run))


def test_a_policy_is_told_in_a_sentence(run: str) -> None:
    assert sentences(compare(run)) == [
        "better delivers 67 points more than base [50 to 75] and wastes 86% less GPU time."
    ]
    assert sentences(compare(run, "better")) == [
        "base delivers 67 points fewer than better [50 to 75] and wastes 7 times the GPU time."
    ]


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ((0.5, 0.5, 0.5), "better delivers as many calls as base and"),
        ((0.25, 0.5, 0.75), "better delivers about as many calls as base [-25 to 25] and"),
    ],
)
def test_what_is_the_same_or_may_be_is_said_so(rates: tuple[float, ...], said: str, tmp_path: Path) -> None:
    cells = {("base", seed): replayed(2, 5) for seed in range(3)}
    cells |= {("better", seed): replayed(int(4 * rate), 5) for seed, rate in enumerate(rates)}
    (sentence,) = sentences(compare(write_run(tmp_path / "run", cells)))
    assert sentence == f"{said} wastes as much GPU time."


def test_the_log_s_own_policy_is_the_baseline_where_it_is_known(tmp_path: Path) -> None:
    cells = {("first", 0): replayed(1, 8), ("own", 0): replayed(2, 8)}
    run = write_run(tmp_path / "run", cells, as_logged="own")
    assert compare(run).baseline == "own"
    assert compare(run, "first").baseline == "first"
    with pytest.raises(UnknownName, match="did you mean first"):
        compare(run, "firts")


def test_one_seed_has_no_interval_and_is_cautioned_of(tmp_path: Path) -> None:
    comparison = compare(write_run(tmp_path / "run", {("a", 0): replayed(1, 8), ("b", 0): replayed(2, 8)}))
    assert found(comparison, "delivered_call_rate", "b").low is None
    assert comparison.cautions == ["one seed: the differences have no interval; replay with --seeds 5 or more"]
    assert "b delivers 25 points more than a and" in " ".join(sentences(comparison))


def test_a_run_of_one_policy_has_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="has one policy, alone"):
        compare(write_run(tmp_path / "run", {("alone", 0): replayed(1, 8)}))


def test_two_runs_are_compared_policy_by_policy(run: str, tmp_path: Path) -> None:
    cells = {("base", seed): replayed(4, 0) for seed in range(3)} | {("new", 0): replayed(4, 0)}
    later = finished(write_run(tmp_path / "later", cells))
    comparison = compare_runs(run, later)
    assert {d.policy for d in comparison.differences} == {"base"}
    assert found(comparison, "delivered_call_rate", "base").difference == pytest.approx(2 / 3)
    assert sentences(comparison) == [f"base delivers 67 points more than in {run} [50 to 75] and wastes no GPU time."]
    assert f"What it cost, less that in {run}" in comparison_text(comparison)
    assert comparison.cautions == [
        "not in both runs, and left out: better, new",
        "3 seeds: the intervals are rough; --seeds 5 or more are better",
    ]


def test_runs_of_other_traces_are_refused(run: str, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "other")
    other = finished(str(tmp_path / "other"), trace_sha256="another")
    with pytest.raises(BadConfig, match="replay different traces"):
        compare_runs(run, other)


def test_what_differs_between_runs_is_named(run: str, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "other")
    other = finished(str(tmp_path / "other"), version="2")
    path = Path(other) / "config.resolved.yaml"
    held = yaml.safe_load(path.read_text())
    held["client.timeout_s"]["value"] = 30.0
    held["slo_s"] = {"value": 5.0, "source": "flag"}
    held["seeds"]["value"] = 2
    path.write_text(yaml.safe_dump(held))
    assert compare_runs(run, other).cautions[:3] == [
        "the runs differ in version: 1, then 2",
        "the runs differ in client.timeout_s: 2.0, then 30.0",
        "the runs differ in slo_s: not set, then 5.0",
    ]


def test_one_fleet_may_be_compared_with_another(run: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(run, other)
    for path in sorted(other.glob("*/policy=*/profile=*/fleet=1x")):
        path.rename(path.with_name("fleet=8x"))
    comparison = compare_runs(run, str(other))
    assert {(d.policy, d.fleet, d.difference) for d in comparison.differences if d.figure == "attempts"} == {
        ("base", "8x", 0.0),
        ("better", "8x", 0.0),
    }


def test_runs_without_a_policy_in_common_are_refused(run: str, tmp_path: Path) -> None:
    other = finished(write_run(tmp_path / "other", {("new", 0): replayed(1, 8)}))
    with pytest.raises(BadConfig, match="has no policy on the same profile and fleet"):
        compare_runs(run, other)


def test_a_directory_without_the_papers_of_a_run_is_named(run: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="it has no manifest"):
        compare_runs(run, str(tmp_path))
    (Path(run) / "config.resolved.yaml").write_text("- 1")
    with pytest.raises(BadInput, match="does not hold the settings of a run"):
        compare_runs(run, run)


def test_a_comparison_is_a_page_with_cautions_first(run_directory: Path) -> None:
    text = comparison_text(compare(str(run_directory)))
    assert text.startswith("Caution: 2 seeds")
    assert "What it cost, less that with cancel" in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_a_comparison_is_markdown_too(run: str) -> None:
    lines = comparison_markdown(compare(run)).splitlines()
    assert lines[1].startswith("- better delivers 67 points more")
    assert lines[3].startswith("| policy | delivered | on time | latency p95 s |")
    assert lines[5].startswith("| better | +66.7 [+50.0 to +75.0] |")


def test_calls_that_fare_better_and_worse_are_counted(run_directory: Path) -> None:
    comparison = compare(str(run_directory), "cancel")
    (moved,) = comparison.calls
    before, after = (
        {(r["seed"], r["call_id"]): r["delivered"] for r in run_sql(str(run_directory), text).to_pylist()}
        for text in (
            f"SELECT seed, call_id, delivered FROM calls WHERE eligible AND policy = '{p}'"
            for p in ("cancel", "coalesce")
        )
    )
    assert moved.policy == "coalesce"
    assert moved.gained == sum(after[k] and not before[k] for k in before) / 2
    assert moved.lost == sum(before[k] and not after[k] for k in before) / 2
    assert "Which calls, beside cancel" in comparison_text(comparison)
