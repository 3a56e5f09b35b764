"""What people read of a run: a verdict first, figures that agree with the queries, tables that fit a page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from replay.report.answer import report, report_data
from replay.report.tables import WIDTH, render
from replay.report.verdict import verdict
from replay.report.words import listed, percent


def answers(**changes: Any) -> dict[str, list[dict[str, Any]]]:
    summary = [
        {"policy": p, "group": "", "label": p, "delivered_call_rate": rate, "unresolved": 0}
        for p, rate in (("cancel", 0.5), ("coalesce", 1.0))
    ]
    recovery = [
        {"policy": p, "group": "", "recovered_share": share, "observed_calls": 60, "observed_s": 40.0}
        for p, share in (("cancel", 0.0), ("coalesce", 0.4))
    ]
    waste = {f"{cause}_gpu_s": 0.0 for cause in ("post_cancel", "duplicate", "recompute", "poll", "held_slot")}
    wasted = [
        {"policy": p, "group": "", "busy_gpu_s": 100.0, "abandoned_gpu_s": 100.0 * f, "wasted_compute_frac": f, **waste}
        for p, f in (("cancel", 0.8), ("coalesce", 0.0))
    ]
    own = [{"figure": "delivered during", "group": "", "observed": 0.2, "predicted": 0.22, "low": 0.1, "high": 0.3}]
    possible = [{"policy": "cancel", "group": "", "phase": None, "calls": 100, "possible_delivered": 100}]
    found = {"summary": summary, "recovery": recovery, "wasted_compute": wasted, "self_replay": own}
    found["share_of_possible"] = possible
    return {**found, **changes}


def test_the_verdict_says_who_delivers_who_recovers_and_what_was_wasted() -> None:
    assert verdict(answers(), "cancel") == [
        "coalesce delivers most calls: 100%; cancel, the log's own, 50%.",
        "After the overload, service recovers sometimes with coalesce (40% of seeds), not with cancel.",
        "cancel wasted 80% of its GPU time (80 of 100 s), most of it on requests whose client gave up.",
    ]


def test_without_a_policy_of_the_log_the_least_waste_is_named() -> None:
    assert verdict(answers(), None)[2] == "coalesce wastes least GPU time, 0%; cancel most, 80%."


def test_a_replay_that_is_off_the_log_is_pointed_out() -> None:
    off = [{"figure": "delivered after", "group": "", "observed": 0.2, "predicted": 0.5, "low": 0.4, "high": 0.6}]
    assert verdict(answers(self_replay=off), "cancel")[-1].startswith("Caution: replayed as cancel, delivered after is")


def test_what_no_policy_could_deliver_is_said() -> None:
    most = [{"policy": "cancel", "group": "", "phase": None, "calls": 100, "possible_delivered": 80}]
    said = verdict(answers(share_of_possible=most), "cancel")
    assert said[1] == "No policy with clients as patient could deliver more than 80%."


def test_a_cut_and_an_unknowable_recovery_are_said() -> None:
    found = answers()
    found["summary"][0]["unresolved"] = 7
    for row in found["recovery"]:
        row["recovered_share"] = None
    said = " ".join(verdict(found, None))
    assert "up to 7 calls (cancel) had not ended" in said
    assert "Recovery cannot be told: no call was on time before the overload, or 60 calls in the 40 s" in said


def test_two_fleets_are_told_apart() -> None:
    found = answers()
    for name, rows in found.items():
        found[name] = [{**row, "group": group} for group in ("e, 1x", "e, 2x") for row in rows]
    said = verdict(found, "cancel")
    assert len(said) == 6
    assert said[0].startswith("e, 1x: coalesce delivers")
    assert said[3].startswith("e, 2x: coalesce delivers")


def test_policies_that_do_equally_well_are_named_together() -> None:
    found = answers()
    found["summary"][0]["delivered_call_rate"] = 0.999
    assert verdict(found, "cancel")[0] == "Every policy delivers as many calls: 100%."
    found["summary"].append({**found["summary"][0], "policy": "no_retry", "delivered_call_rate": 0.3})
    said = verdict(found, "cancel")[0]
    assert said == "cancel and coalesce deliver most calls: 100% (cancel is the log's own)."


@pytest.mark.parametrize(("share", "said"), [(0.0, "0%"), (0.004, "0.4%"), (0.999, "99.9%"), (1.0, "100%")])
def test_all_and_nothing_are_never_rounded_to(share: float, said: str) -> None:
    assert percent(share) == said


def test_names_are_listed_as_in_a_sentence() -> None:
    assert [listed(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


def test_a_report_begins_with_its_verdict_and_fits_a_page(run_directory: Path) -> None:
    text = report(str(run_directory))
    data = report_data(str(run_directory))
    first = " ".join(text.split("\n\n")[0].split())
    assert first == " ".join(data["verdict"])
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "profile" not in text
    json.dumps(data, allow_nan=False)


def test_columns_that_tell_nothing_apart_are_left_out_for_people_alone() -> None:
    table = pa.table({"policy": ["a", "b"], "profile": ["e", "e"], "fleet": ["1x", "2x"], "n": [1, 2]})
    assert "profile" not in render(table)
    assert "fleet" in render(table)
    assert "profile" not in render(table, "markdown")
    assert render(table, "csv").startswith("policy,profile,fleet,n")
    assert json.loads(render(table, "json"))[0]["profile"] == "e"


def test_a_table_wider_than_the_page_is_turned() -> None:
    wide = pa.table({"policy": ["a", "b"], **{f"a_figure_with_a_long_name_{i}": [1, 2] for i in range(9)}})
    lines = render(wide).splitlines()
    assert lines[0].split() == ["policy", "a", "b"]
    assert lines[2].split() == ["a_figure_with_a_long_name_0", "1", "2"]
    assert max(map(len, lines)) <= WIDTH


def test_a_table_without_rows_shows_its_columns() -> None:
    assert render(pa.table({"n": pa.array([], pa.int64())})).split()[0] == "n"


def test_a_run_that_was_broken_off_is_reported_as_such(run_directory: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(run_directory, run)
    assert "not finished" not in report(str(run))
    for cell in run.glob("*/policy=coalesce/*/*/seed=1"):
        shutil.rmtree(cell)
    assert report(str(run)).startswith("The run is not finished: 3 of 4 replays are in")
    assert report_data(str(run))["verdict"][0].startswith("The run is not finished")
