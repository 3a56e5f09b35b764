"""The laws of the cancellation benchmark, and its advice, on runs of the study in small."""

from __future__ import annotations

from typing import Any

import pytest

from replay.report.plots_titled import titled_png
from replay.studies.cancellation import POLICIES, WORKLOAD_NAMES, longer
from replay.studies.cancellation_plots import plots
from replay.studies.results import Tables
from tests.studies.conftest import WORKLOADS

LAWS = (
    "the gap to push is proportional to the poll interval",
    "the cost of polling is inversely proportional to the interval",
    "waste saved: oracle >= push >= poll_1 >= poll_2 >= poll_4 >= poll_8 >= none",
    "recovery score: oracle >= push >= poll_4 >= poll_8 >= none",
    "KV released late strands more, and more so with longer outputs",
    "a slot that is not repacked costs GPU time, and more so with longer outputs",
    "survivors wait longer where the slot is not repacked, and no less where KV is released late",
    "the recovery score is positive from the lowest cancel rate on",
    "the recovery score is near-linear in the cancel rate",
)
FAMILIES = (
    "01_wasted_compute", "02_survivor_p95", "03_kv_waste", "04_effect_isolation", "05_cancel_rate_sweep",
    "06_recovery_score", "07_polling_frontier",
)  # fmt: skip


def rows(tables: Tables, name: str, **where: Any) -> list[dict[str, Any]]:
    return [row for row in tables[name].to_pylist() if all(row[key] == value for key, value in where.items())]


def test_the_study_has_the_nine_policies_and_six_workloads_of_the_benchmark() -> None:
    assert len(POLICIES) == 9
    assert len(WORKLOAD_NAMES) == 6


@pytest.mark.parametrize("law", LAWS)
def test_a_law_of_the_benchmark_holds(law: str, cancellation_tables: Tables) -> None:
    (found,) = rows(cancellation_tables, "laws", claim=law)
    assert found["verdict"] == "holds", found


def test_there_is_no_other_law(cancellation_tables: Tables) -> None:
    assert [row["claim"] for row in rows(cancellation_tables, "laws")] == list(LAWS)


@pytest.mark.parametrize("tokens", [2, 4, 8])
def test_the_gap_to_push_doubles_with_the_interval_within_1_percent(tokens: int, cancellation_tables: Tables) -> None:
    figures = rows(cancellation_tables, "figures", figure="decoding_gap_gpu_ms")
    gaps = {(row["scenario"], row["policy"]): row["mean"] for row in figures}
    for workload in WORKLOADS:
        one = gaps[f"benchmark-{workload}", "poll_every_1"]
        assert gaps[f"benchmark-{workload}", f"poll_every_{tokens}"] == pytest.approx(tokens * one, rel=0.01)


def test_the_map_takes_push_and_says_why_with_numbers(cancellation_tables: Tables) -> None:
    decisions = rows(cancellation_tables, "decision_map")
    assert {row["workload"] for row in decisions} == set(WORKLOADS)
    for row in decisions:
        assert (row["take"], row["advice_push_first"]) == ("push_cancel", "holds")
        assert row["fallback"].startswith("poll_every_")
        assert f"{round(row['push_saves_gpu_ms']):,}" in row["why"]


def test_each_variant_lifts_a_limit_of_the_benchmark(cancellation_tables: Tables) -> None:
    own, real, tight = (
        rows(cancellation_tables, "summary", variant=name, workload=WORKLOADS[0], policy="no_cancel_handling")[0]
        for name in ("benchmark", "calibrated", "preemption")
    )
    assert (own["batch_cost"], real["batch_cost"]) == ("linear", "calibrated")
    assert own["preemptions"] == real["preemptions"] == 0
    assert tight["preemptions"] > 0


def test_polling_at_every_token_is_not_worth_it_where_tokens_are_cheap(cancellation_tables: Tables) -> None:
    saved = {
        (row["variant"], row["policy"]): row["net_saved_gpu_ms"]
        for row in rows(cancellation_tables, "summary", workload=WORKLOADS[0])
    }
    assert saved["benchmark", "poll_every_1"] > saved["benchmark", "poll_every_8"]
    assert saved["calibrated", "poll_every_1"] < saved["calibrated", "poll_every_4"]


def test_every_workload_has_a_plot_of_each_family(cancellation_tables: Tables) -> None:
    drawn = {titled.name: titled for titled in plots(cancellation_tables)}
    assert sorted(drawn) == sorted(f"{family}_{workload}" for family in FAMILIES for workload in WORKLOADS)
    for family in FAMILIES:
        assert titled_png(drawn[f"{family}_{WORKLOADS[0]}"]).startswith(b"\x89PNG")


def test_a_law_of_lengths_keeps_its_shape_when_it_is_made_longer() -> None:
    assert longer("lognormal:mean=250,cv=0.6", 2.0) == "lognormal:mean=500,cv=0.6"
