"""The paper's claims, on runs of the overload study in small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay.engine import simulate
from replay.ingest import made_trace
from replay.policies.knobs import Client, Policy
from replay.profiles.loader import find_profile, with_settings
from replay.report.plots_titled import titled_png
from replay.studies.engines import ENGINES, capacity
from replay.studies.overload import CLIENT, ENGINE, LENGTHS, patience_of
from replay.studies.overload_plots import plots
from replay.studies.results import Tables


def cell(tables: Tables, policy: str, load: float) -> dict[str, Any]:
    (found,) = (row for row in tables["map"].to_pylist() if (row["policy"], row["load"]) == (policy, load))
    return found


def test_cancellation_alone_comes_back_at_a_low_load_and_never_at_half_of_the_capacity(overload_tables: Tables) -> None:
    assert cell(overload_tables, "cancel", 0.2)["recovered_share"] == 1.0
    lost = cell(overload_tables, "cancel", 0.5)
    assert (lost["recovered_share"], lost["metastable"]) == (0.0, True)
    assert lost["delivered_after"] < 0.38


def test_its_retries_begin_just_before_their_timeout_and_compute_most_of_their_prompt(overload_tables: Tables) -> None:
    lost = cell(overload_tables, "cancel", 0.5)
    assert lost["cancel_window_s"] < 0.5
    assert 0.75 < lost["prefill_progress_at_abort"] < 0.9
    assert 1 / 3 < lost["counter_shortfall"] < 0.5


def test_a_retry_budget_brings_service_back_and_leaves_the_calls_of_the_overload(overload_tables: Tables) -> None:
    saved = cell(overload_tables, "retry_budget", 0.5)
    assert saved["recovered_share"] == 1.0
    assert saved["delivered_during"] < 0.6


def test_coalescing_delivers_what_cancellation_does_not_take_away(overload_tables: Tables) -> None:
    assert cell(overload_tables, "coalesce", 0.5)["delivered_since_overload"] > 0.97
    both, cancel = (cell(overload_tables, policy, 0.5) for policy in ("coalesce_cancel", "cancel"))
    assert both["delivered_since_overload"] == pytest.approx(cancel["delivered_since_overload"], abs=0.02)


def test_coalescing_fails_users_who_are_less_patient_than_the_backlog_is_long(overload_tables: Tables) -> None:
    sweep = {
        row["patience_s"]: row
        for row in overload_tables["sweeps"].to_pylist()
        if (row["swept"], row["policy"]) == ("patience_s", "coalesce")
    }
    hasty, patient = sweep[min(sweep)], sweep[max(sweep)]
    assert min(sweep) < hasty["backlog_s"] < hasty["drain_s"] < max(sweep)
    assert hasty["delivered_since_overload"] < 0.8
    assert patient["delivered_since_overload"] >= 0.995


def test_with_caching_aborted_work_is_used_again(overload_tables: Tables) -> None:
    salvaged = {
        row["prefix_caching"]: row["salvaged_frac"]
        for row in overload_tables["sweeps"].to_pylist()
        if row["policy"] == "cancel"
        and row["swept"] in ("cached_attempts", "max_attempts")
        and row["max_attempts"] == 3
    }
    assert salvaged[False] == 0.0
    assert salvaged[True] > 0.0


def test_the_turning_point_is_the_first_load_at_which_most_seeds_are_lost(overload_tables: Tables) -> None:
    turning = {row["policy"]: row for row in overload_tables["turning_points"].to_pylist()}
    assert (turning["cancel"]["comes_back_up_to_load"], turning["cancel"]["metastable_from_load"]) == (0.2, 0.5)
    assert turning["coalesce"]["metastable_from_load"] is None


def test_every_claim_has_a_verdict_and_its_numbers(overload_tables: Tables) -> None:
    claims = overload_tables["claims"].to_pylist()
    assert len(claims) == 10
    for row in claims:
        held, tried = row["scenarios_in_which_it_holds"], row["scenarios"]
        assert row["verdict"] == ("holds" if held == tried else "holds in this range" if held else "does not hold")
        assert any(letter.isdigit() for letter in row["found"])


def test_intervals_hold_their_means(overload_tables: Tables) -> None:
    figures = [row for row in overload_tables["figures"].to_pylist() if row["low"] is not None]
    assert len(figures) > 100
    for row in figures:
        assert row["low"] - 1e-9 <= row["mean"] <= row["high"] + 1e-9


def test_the_maps_and_a_line_for_each_sweep_are_drawn(overload_tables: Tables) -> None:
    drawn = list(plots(overload_tables))
    assert [titled.name[:2] for titled in drawn] == [f"{n:02}" for n in range(1, 10)]
    assert all(titled_png(titled).startswith(b"\x89PNG") for titled in drawn[:4])


def test_an_engine_serves_its_capacity_and_no_more() -> None:
    engine = with_settings(find_profile(ENGINES["medium"]), ENGINE)
    per_s = capacity(engine, LENGTHS)
    overloaded = {**LENGTHS, "duration_s": 200.0, "rate_per_s": 1.5 * per_s, "seed": 7}
    calls = made_trace("synthetic:poisson", overloaded).calls
    found = simulate(calls, Policy(name="patient", client=Client(max_attempts=1)), engine).calls
    ends = np.asarray(found["end_s"])
    assert ((ends > 60) & (ends <= 180)).sum() / 120 == pytest.approx(per_s, rel=0.05)


def test_a_clients_patience_is_its_timeouts_and_waits() -> None:
    assert CLIENT.timeout_s == 20.0
    assert patience_of(CLIENT) == 3 * 20.0 + 0.5 + 1.0
