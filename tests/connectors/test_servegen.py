"""ServeGen's clients: their requests are made as their files say, and what is wrong with those is named."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors.files import head
from connectors.registry import connector, guess
from connectors.synthetic.gaps import Gaps
from replay.ingest import Trace, ingest
from trace_schema.errors import BadConfig, BadInput

FIXTURES = Path(__file__).parents[1] / "fixtures" / "servegen"
TRACE = FIXTURES / "chunk-7-trace.csv"
LAWS = {"prompt_tokens": "uniform:low=10,high=20", "output_tokens": 5}


def made(path: Path = TRACE, **options: Any) -> Trace:
    return ingest([str(path)], options=options)


def times(trace: Trace) -> np.ndarray[Any, Any]:
    return np.asarray(trace.calls["arrival_s"])


def test_a_client_is_known_by_its_rows_whatever_its_name_and_packing(tmp_path: Path) -> None:
    for name in ("chunk-7-trace.csv.gz", "renamed"):
        content = TRACE.read_bytes()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        found, confidence = guess(head(str(tmp_path / name)), str(tmp_path / name))
        assert (found.name, confidence) == ("servegen", 1.0)
    shutil.copy(FIXTURES / "chunk-7-dataset.json", tmp_path)
    assert made(tmp_path / "chunk-7-trace.csv.gz").calls.equals(made().calls)
    assert connector("servegen").sniff(b"1,2,3,4,5,6\n", "numbers") == 0.0


def test_equal_seeds_make_equal_requests_and_others_do_not() -> None:
    assert made(seed=3).calls.equals(made(seed=3).calls)
    assert not made(seed=3).calls.equals(made(seed=4).calls)


def test_a_trace_says_that_its_requests_are_made() -> None:
    report = made(seed=3).report
    assert report is not None
    assert report.files[0].notes == [
        "nobody sent these requests: they are made of a client's rates and lengths, with seed 3"
    ]


def test_windows_have_their_rates_and_idle_ones_nobody() -> None:
    counts = np.mean([np.histogram(times(made(seed=k)), [0, 600, 1200, 1800, 2400])[0] for k in range(40)], axis=0)
    assert counts[1] == 0
    assert counts[[0, 2, 3]] == pytest.approx([300, 600, 150], rel=0.05)


def test_gaps_follow_the_fitted_law_not_the_measured_cv() -> None:
    gaps = np.concatenate([np.diff(times(made(seed=k, start_s=1200, duration_s=600))) for k in range(60)])
    assert gaps.std() / gaps.mean() == pytest.approx(Gaps("weibull", 0.7).cv, rel=0.05)


def test_lengths_are_drawn_from_the_dicts_of_their_time_and_of_the_last_that_had_requests() -> None:
    calls = made().calls
    arrival, prompt, output = (np.asarray(calls[name]) for name in ("arrival_s", "prompt_tokens", "output_tokens"))
    early, images = arrival < 1800, arrival >= 1800
    assert {*prompt[early]} == {60, 200}
    assert np.mean(prompt[early] == 200) == pytest.approx(0.75, abs=0.06)
    assert {*output[early]} == {10, 90}
    assert {*prompt[images]} == {50, 50 + 2 * 300}
    assert {*output[images]} == {7}
    assert {*calls["client"].to_pylist()} == {"chunk-7"}


def test_a_part_of_the_data_and_another_rate_can_be_asked_for() -> None:
    whole, part = made(seed=1), made(seed=1, start_s=1200, duration_s=700)
    assert times(part) == pytest.approx(times(whole)[(times(whole) >= 1200) & (times(whole) < 1900)] - 1200)
    assert made(rate=3.0).calls.num_rows == pytest.approx(3150, rel=0.2)
    with pytest.raises(BadInput, match=r"describes about 1\.05e"):
        made(rate=1e6)


def test_clients_together_are_one_trace(tmp_path: Path) -> None:
    for number in (1, 2):
        for kind in ("trace.csv", "dataset.json"):
            shutil.copy(FIXTURES / f"chunk-7-{kind}", tmp_path / f"chunk-{number}-{kind}")
    trace = ingest([str(tmp_path / "chunk-*-trace.csv")])
    clients = trace.calls["client"].to_pylist()
    assert {*clients} == {"chunk-1", "chunk-2"}
    assert clients.count("chunk-1") != clients.count("chunk-2")


def test_a_client_without_its_lengths_is_refused_unless_they_are_said(tmp_path: Path) -> None:
    path = Path(shutil.copy(TRACE, tmp_path / "chunk-1-trace.csv"))
    with pytest.raises(BadInput, match=r"its lengths are in a chunk-N-dataset\.json.*--option dataset=FILE"):
        made(path)
    assert made(path, dataset=str(FIXTURES / "chunk-7-dataset.json")).calls.num_rows > 0
    calls = made(path, **LAWS).calls
    assert {*calls["output_tokens"].to_pylist()} == {5}
    with pytest.raises(BadConfig, match="options of servegen: prompt_tokens: unknown law 'uniforn'"):
        made(path, prompt_tokens="uniforn:1,2")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("600,-1,1,Gamma,1,1", "rate not from 0"),
        ("nan,1,1,Gamma,1,1", "a start is not from 0"),
        ("600,1e300,1,Gamma,1,1", "rate not from 0"),
        ("600,x,1,Gamma,1,1", "is not a number"),
        ("600,1,1,Cauchy,1,1", "neither Gamma nor Weibull"),
        ("600,1,1,Weibull,0,1", "out of reach"),
        ("0,1,1,Gamma,1,1", "a window of this start stands above"),
        ("600,1,1,Gamma", "has 4 columns instead of 6"),
        ("__import__('os').abort(),1,1,Gamma,1,1", "is not a number"),
    ],
)
def test_a_row_that_is_no_window_is_dropped_and_leaves_the_client_idle(tmp_path: Path, row: str, reason: str) -> None:
    lines = TRACE.read_text().splitlines()
    lines[1] = row
    path = tmp_path / "chunk-7-trace.csv"
    path.write_text("\n".join(lines))
    trace = ingest([str(path)], format="servegen", options=LAWS)
    assert trace.report is not None
    ((found, (count, rows)),) = trace.report.files[0].dropped.items()
    assert reason in found
    assert (count, rows) == (1, [2])
    arrival = times(trace)
    assert not ((arrival >= 600) & (arrival < 1200)).any()
    assert trace.report.files[0].rows_read == trace.calls.num_rows + 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"0": {"input_tokens": "__import__(\'os\').abort()", "output_tokens": "{}"}}', "is no ServeGen dataset"),
        ('{"0": {"input_tokens": "{1: -2.0}", "output_tokens": "{1: 1.0}"}}', "is no ServeGen dataset: weight"),
        ('{"0": {"input_tokens": "{1: 1.0", "output_tokens": "{1: 1.0}"}}', "is no ServeGen dataset"),
        ('{"0": {"input_tokens": "[1]", "output_tokens": "{1: 1.0}"}}', "is no dict of probabilities"),
        ('{"0": {"input_tokens": "{}", "output_tokens": "{}"}}', "no span of it has requests"),
        ("[1, 2", "is no ServeGen dataset"),
    ],
)
def test_a_dataset_that_is_none_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "chunk-7-dataset.json"
    path.write_text(content)
    with pytest.raises(BadInput, match=problem) as refused:
        made(dataset=str(path))
    assert "\n" not in str(refused.value)


def test_a_client_that_is_idle_throughout_has_no_requests(tmp_path: Path) -> None:
    path = tmp_path / "chunk-1-trace.csv"
    path.write_text("0,0,0,,0,0\n600,0,0,,0,0\n")
    with pytest.raises(BadInput, match="no row can be used"):
        made(path)
