"""What is drawn: the rows of queries, the policies that tell something, and nothing outside its scale."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from queries import run_query
from replay.report import figures
from replay.report.charts import Bars, Panels
from replay.report.plots import NARROW, WIDE, png, svg
from replay.report.scenes import Scene, scenes
from tests.queries.test_definitions import attempt, sample
from tests.queries.test_figures import S, call, execution, recovering, replica, write_run

QUERIES = ("summary", "delivered_by_phase", "recovery", "wasted_compute", "counter_gap", "delivered_over_time",
           "queue_over_time", "retries_over_time", "survivor_latency", "survivor_latency_curve")  # fmt: skip
Found = dict[str, list[dict[str, Any]]]


def policy(late_until_s: float, lost_s: int) -> dict[str, Any]:
    """Calls late until some time; so many seconds of GPU time lost, and one that was useful."""
    executions = [
        execution(0, "delivered", attended_decode_ns=S),
        execution(1, "lost", "aborted", attended_prefill_ns=lost_s * S, first_output_s=None, computed_prompt_tokens=60),
    ]
    attempts = [attempt(0, 0, 0, 1, 2.0, "timeout"), {**attempt(1, 0, 1, 0, 3.0, "ok"), "start_s": 2.5}]
    return {"calls": recovering(late_until_s), "executions": executions, "attempts": attempts,
            "replicas": replica(1 + lost_s), "timeline": [sample(1.0, waiting=lost_s), sample(30.0)]}  # fmt: skip


def asked(tmp_path: Path, policies: dict[str, dict[str, Any]], own: str | None = None) -> tuple[Found, list[Scene]]:
    run = write_run(tmp_path / "run", {(name, 0): tables for name, tables in policies.items()}, as_logged=own)
    found = {name: run_query(run, name).to_pylist() for name in QUERIES}
    return found, scenes(found, own)


PHASES = [{"phase": "before", "start_s": 0.0, "end_s": 10.0}, {"phase": "during", "start_s": 10.0, "end_s": 20.0}]


def test_delivered_calls_are_drawn_as_the_query_has_them(tmp_path: Path) -> None:
    found, (scene,) = asked(tmp_path, {"p": policy(30.0, 2), "q": policy(200.0, 5)}, "p")
    chart = figures.delivered_over_time(found, scene, PHASES, "p", 1)
    assert [panel.titles[-1] for panel in chart.panels] == ["arrivals", "p", "q"]
    assert chart.overload == (10.0, 20.0)
    for panel in chart.panels[1:]:
        rows = scene.rows(found["delivered_over_time"], panel.titles[-1])
        on_time = panel.layers[0]
        assert on_time.x[1:-1] == [(r["start_s"] + r["end_s"]) / 2 for r in rows]
        assert on_time.y[1:-1] == [r["on_time_rate"] for r in rows]
        assert (on_time.x[0], on_time.x[-1]) == (rows[0]["start_s"], rows[-1]["end_s"])
    assert "✓ recovers" in chart.panels[1].notes[0]
    assert "✗ does not recover" in chart.panels[2].notes[0]


def test_bars_are_as_long_as_their_figures_and_sorted(tmp_path: Path) -> None:
    found, (scene,) = asked(tmp_path, {"p": policy(30.0, 9), "q": policy(200.0, 2)})
    chart = figures.gpu_time(found, scene)
    rows = {r["policy"]: r for r in found["wasted_compute"]}
    assert [bar.label for bar in chart.bars] == ["q", "p"]
    for bar in chart.bars:
        row = rows[bar.label]
        assert [part.value for part in bar.parts if part.value] == [row["useful_gpu_s"], row["abandoned_gpu_s"]]
        assert sum(part.value for part in bar.parts) == pytest.approx(row["busy_gpu_s"])
    (counted, _) = figures.counter_view(found, scene).bars
    assert sum(part.value for part in counted.parts) == 160
    assert counted.mark == 100


def test_waits_add_up_to_everybody(tmp_path: Path) -> None:
    half = [call(i, float(i), i + 3.0 if i % 2 else None, "delivered" if i % 2 else "failed") for i in range(80)]
    lost = {**policy(30.0, 1), "calls": half}
    found, (scene,) = asked(tmp_path, {"p": policy(30.0, 1), "q": lost})
    for bar in figures.survivor_latency(found, scene).bars:
        assert sum(part.value for part in bar.parts) == pytest.approx(1.0)
        assert bar.parts[-1].value == (0.5 if bar.label == "q" else 0.0)


def test_policies_that_fare_alike_are_drawn_once_as_the_logs_own(tmp_path: Path) -> None:
    _, (scene,) = asked(tmp_path, {"a": policy(30.0, 2), "own": policy(30.0, 2), "other": policy(200.0, 2)}, "own")
    assert [shown.policies for shown in scene.shown] == [("own", "a"), ("other",)]
    assert scene.shown[0].labels[0] == "own = a, the log's own"


def test_of_too_many_policies_the_own_the_best_and_the_worst_keep_their_panels(tmp_path: Path) -> None:
    many = {f"p{k:02}": policy(30.0 + 4 * k, k) for k in range(20)}
    found, (scene,) = asked(tmp_path, many, "p17")
    assert len(scene.shown) == 20
    there = [shown.policy for shown in scene.in_panels()]
    assert len(there) == 16
    assert {"p17", scene.shown[0].policy, scene.shown[-1].policy} <= set(there)
    assert len(figures.gpu_time(found, scene).bars) == 20


def test_a_chart_that_dwarfs_the_others_runs_out_of_the_scale_and_says_so(tmp_path: Path) -> None:
    queues = {"p": policy(30.0, 3), "q": policy(60.0, 4), "r": policy(90.0, 400)}
    found, (scene,) = asked(tmp_path, queues)
    chart = figures.queue_over_time(found, scene, PHASES)
    notes = {panel.titles[-1]: panel.notes for panel in chart.panels}
    assert all(panel.top == pytest.approx(4 * 1.05) for panel in chart.panels)
    assert notes["r"] == ("at most 400 waiting, off the scale", "400 waiting ↑")
    assert notes["q"] == ("at most 4 waiting",)
    assert "<clipPath" in svg(chart, "queue", WIDE)


def test_missing_bins_leave_a_gap() -> None:
    rows = [{"start_s": 0.0, "end_s": 1.0, "v": 1.0}, {"start_s": 3.0, "end_s": 4.0, "v": 2.0}]
    x, y = figures.filled(rows, "v")
    assert x == [0.0, 0.5, 1.0, 2.0, 3.0, 3.5, 4.0]
    assert math.isnan(y[3])
    assert y[:3] + y[4:] == [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_chart_is_text_in_the_pages_colours_the_same_each_time(width: int, tmp_path: Path) -> None:
    found, (scene,) = asked(tmp_path, {"a$x_y$&<b>": policy(30.0, 2), "q": policy(200.0, 5)})
    charts: list[Panels | Bars] = [figures.gpu_time(found, scene), figures.retries_over_time(found, scene, PHASES)]
    for chart in charts:
        drawn = svg(chart, "name", width)
        assert drawn == svg(chart, "name", width)
        assert drawn.startswith(f'<svg viewBox="0 0 {width} ')
        assert "a$x_y$&amp;&lt;b&gt;" in drawn
        assert "var(--ink)" in drawn
        assert "DejaVu" not in drawn


def test_a_picture_is_the_same_each_time(tmp_path: Path) -> None:
    found, (scene,) = asked(tmp_path, {"p": policy(30.0, 2)})
    chart = figures.gpu_time(found, scene)
    assert png(chart) == png(chart)


def test_nothing_at_all_can_be_drawn() -> None:
    assert svg(Bars((), (), 0.0, "s"), "empty", WIDE).startswith("<svg")
    assert svg(Panels((), (), 1.0, None), "empty", WIDE).startswith("<svg")
