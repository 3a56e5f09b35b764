"""Measured points against shipped profiles: what is read of them, replayed, named and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from replay.calibrate.points import (
    SEND_INTERVAL_S,
    Figure,
    Point,
    arrivals_of_closed_loop,
    compare_points,
    outcome,
    profile_for,
    replayed,
    spaced,
)
from replay.calibrate.workloads import Unmodelled, workload_of
from replay.cli import cli
from replay.errors import BadInput
from replay.profiles.profile import Profile
from replay.report.points import points_text

NOWHERE = Path("nowhere.jsonl")
OPEN = {
    "kind": "open loop, constant inter-arrival", "rate_rps": 4, "duration_s": 15,
    "prompt_len": {"mean": 600, "min": 580, "max": 610}, "output_tokens_server": 60,
}  # fmt: skip
CLOSED = {
    "kind": "closed loop", "concurrency": 4, "isl": 512, "osl": 64,
    "methodology": "random lengths uniform in [0.8,1.0]x, num_prompts=5*concurrency, max-num-batched-tokens 4096, "
    "max-num-seqs=concurrency, no prefix caching, async scheduling",
}  # fmt: skip


def point(**changed: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "id": "a", "gpu": "H100-SXM5-80GB", "model": "meta-llama/Llama-3.1-8B-Instruct", "tp": 1, "dtype": "fp16",
        "engine": "vllm 0.14.1", "workload": OPEN, "measured": {"ttft_ms": 30.0},
    }  # fmt: skip
    return {**given, **changed}


def written(tmp_path: Path, content: Any) -> str:
    path = tmp_path / "points.json"
    path.write_text(json.dumps(content))
    return str(path)


def compared(tmp_path: Path, *points: dict[str, Any]) -> dict[str, Figure]:
    return {f.figure: f for f in compare_points(written(tmp_path, {"points": points}))}


def test_every_measured_figure_is_predicted_under_its_own_name(tmp_path: Path) -> None:
    measured = {
        "ttft_ms": {"mean": 30.0, "p50": 29.0, "p99": 40.0}, "e2e_ms": {"mean": 500.0, "p99": 600.0},
        "tpot_ms_mean_derived": 8.0, "requests_per_s": 4.0, "success": 60, "fail": 0,
    }  # fmt: skip
    found = compared(tmp_path, point(measured=measured))
    assert set(found) == {"ttft_ms", "ttft_ms_p50", "ttft_ms_p99", "e2e_ms", "e2e_ms_p99", "tpot_ms", "requests_per_s"}
    for figure in found.values():
        assert figure.reason is None
        assert figure.profile == "h100-sxm/llama-3.1-8b/tp1/bf16/vllm"
        assert figure.predicted is not None
        assert figure.error == pytest.approx(figure.predicted / figure.measured - 1)
    mean = {name: found[name].predicted or 0.0 for name in ("ttft_ms", "e2e_ms", "tpot_ms")}
    assert mean["e2e_ms"] == pytest.approx(mean["ttft_ms"] + 59 * mean["tpot_ms"])
    assert 6 < mean["tpot_ms"] < 10  # a step of an H100 with a few sequences of an 8B model
    assert found["requests_per_s"].predicted == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"model": "mistralai/Mixtral-8x7B-v0.1"}, "no profile was measured: unknown model"),
        ({"dtype": "fp4"}, "no profile was measured: unknown dtype 'fp4'"),
        ({"tp": 3}, "no profile h100-sxm/llama-3.1-8b/tp3/bf16/vllm was measured"),
        ({"overload": True}, "an overload: when its clients gave up is not told"),
        ({"suspect": True}, "the file itself calls it suspect"),
        ({"workload": {"kind": "a dream"}}, "of a kind that is not known: a dream"),
        ({"workload": {"kind": "closed loop", "isl": 5, "osl": 5}}, "its concurrency is not told"),
        ({"workload": {"kind": "open", "rate_rps": 5, "n": 5, "isl": 5}}, "none of output_tokens_server"),
        ({"workload": {"kind": "open, recorded arrivals"}}, "recorded_runs/run_H100-SXM5-80GB_Llama-3.1-8B-Instruct"),
        ({"engine_args": {"max_model_len": 100}}, "requests do not fit into h100-sxm"),
        ({"engine_args": {"block_size": -1}}, "a: engine.block_size: expected `int` >= 1"),
        ({"measured": {"goodput": 1.0}}, "the replay has no such figure"),
    ],
)
def test_what_cannot_be_predicted_is_listed_with_the_reason(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    (figure,) = compared(tmp_path, point(**changed)).values()
    assert figure.predicted is None
    assert figure.reason is not None
    assert reason in figure.reason


def test_settings_are_those_that_a_point_tells_and_rules_those_of_its_version() -> None:
    def engine(**changed: Any) -> Any:
        return profile_for(Point(**point(**changed))).engine

    old = engine(engine="vllm 0.12.0")
    assert (old.mode, old.admission_needs, old.freed_blocks_go, old.aborts_read) == (
        "sync", "chunk", "to_the_back", "loop_top",
    )  # fmt: skip
    assert engine(engine="vllm 0.19.0").mode == "async"
    assert engine(engine="vllm nan").mode == "async"
    assert engine(engine="vllm 0.12.0", workload={"methodology": "async scheduling"}).mode == "async"
    told = engine(workload=CLOSED)
    assert (told.max_num_batched_tokens, told.max_num_seqs, told.prefix_caching) == (4096, 4, False)
    given = engine(workload=CLOSED, engine_args={"max_num_seqs": 9, "seed": 1}, kv={"num_gpu_blocks": 777})
    assert (given.max_num_seqs, given.num_blocks) == (9, 777)
    assert engine(engine_args={"gpu_memory_utilization": 0.5}).num_blocks < engine().num_blocks


def test_an_open_loop_has_the_lengths_and_the_rate_that_are_told() -> None:
    made = workload_of(OPEN, NOWHERE, seed=0)
    assert made.arrival_s is not None
    assert np.allclose(np.diff(made.arrival_s), 0.25)
    assert len(made.prompt_tokens) == 60
    assert made.prompt_tokens.min() >= 580
    assert made.prompt_tokens.max() <= 610
    assert set(made.output_tokens) == {60}
    assert len(set(made.content_id)) == 60
    shared = workload_of({**OPEN, "duration_s": 600, "note": "shared_prefix generator"}, NOWHERE, seed=0)
    assert len(set(shared.content_id)) < 60
    by_content = dict(zip(shared.content_id, shared.prompt_tokens, strict=True))
    assert [by_content[c] for c in shared.content_id] == list(shared.prompt_tokens)
    poisson = workload_of({**OPEN, "kind": "open loop, Poisson", "duration_s": 1000}, NOWHERE, seed=3)
    assert poisson.arrival_s is not None
    assert np.diff(poisson.arrival_s).mean() == pytest.approx(0.25, rel=0.05)


def test_a_closed_loop_keeps_as_many_requests_in_flight_as_it_has_clients(profile: Profile) -> None:
    told = {**CLOSED, "isl": 128, "osl": 16}
    made = workload_of(told, NOWHERE, seed=0)
    assert (made.clients, len(made.prompt_tokens)) == (4, 20)
    arrivals = arrivals_of_closed_loop(made, profile)
    ends = np.sort(np.asarray(outcome(made, profile, arrivals)["end_s"], dtype=np.float64))
    in_flight = [int((arrivals <= t).sum() - (ends <= t + 1e-9).sum()) for t in arrivals]
    assert max(in_flight) <= 4
    assert np.mean(in_flight[3:]) > 3.5
    assert np.allclose(arrivals, spaced(np.concatenate([np.zeros(4), ends[:16]])))
    assert (np.diff(arrivals) >= SEND_INTERVAL_S - 1e-12).all()


def test_requests_that_do_not_fit_are_counted(profile: Profile) -> None:
    with pytest.raises(Unmodelled, match="20 of its 20 requests do not fit into small"):
        replayed(workload_of({**CLOSED, "isl": 9_000}, NOWHERE, seed=0), profile)


def test_a_recorded_run_is_replayed_from_the_file_beside_the_points(tmp_path: Path) -> None:
    place = tmp_path / "recorded_runs"
    place.mkdir()
    rows = [{"input_toks": 100, "output_toks": 10, "queued_ts": 50.0 + k, "other": 1} for k in (2, 0, 1)]
    (place / "run_H100_Llama-3.1-8B_requests.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    told = point(
        gpu="H100", model="meta-llama/Llama-3.1-8B", workload={"kind": "open loop, recorded arrivals"},
        measured={"duration_s": 2.1},
    )  # fmt: skip
    figure = compared(tmp_path, told)["duration_s"]
    assert figure.predicted == pytest.approx(2.0 + 10 * 0.0066, rel=0.02)


def test_a_kv_pool_is_predicted_in_tokens_and_gib(tmp_path: Path) -> None:
    entries = [
        {"gpu": "H100-80GB", "model": "meta-llama/Llama-2-7b-hf", "tp": 1, "tokens": 119_408, "mbt": 2048},
        {"gpu": "A100-80GB x2", "model": "Qwen2-7B-Instruct", "tp": 2, "util": 0.25, "tokens": 450_192},
        {"gpu": "RTX4090 (25250627584 B)", "model": "meta-llama/Llama-3.1-8B", "tp": 1, "tokens": 41_408},
        {"gpu": "4x H100", "model": "Qwen3-235B-A22B-FP8", "tp": 4, "tokens": 178_880},
    ]
    figures = compare_points(written(tmp_path, {"kv_capacity": entries}))
    tokens = [f for f in figures if f.figure == "kv_tokens"]
    assert tokens[0].error == pytest.approx(0.0, abs=0.02)
    low = next(f for f in figures if f.figure == "kv_gib" and "A100" in f.id)
    assert low.predicted == pytest.approx(low.measured, abs=1.2)
    assert tokens[2].error == pytest.approx(0.0, abs=0.02)
    assert tokens[3].predicted is None
    assert "unknown model" in (tokens[3].reason or "")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "holds neither `points` nor `kv_capacity`"),
        ({"points": [{"id": "a"}]}, "is not a file of measured points: .*missing required field `gpu`"),
        ([1], "is not a file of measured points"),
    ],
)
def test_a_file_that_holds_no_points_is_named(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(BadInput, match=rf"points.json: {words}"):
        compare_points(written(tmp_path, content))


def test_the_tables_show_each_error_the_medians_and_the_reasons(tmp_path: Path) -> None:
    path = written(tmp_path, {"points": [point(), point(id="b", dtype="fp4")]})
    text = points_text(compare_points(path))
    assert "vllm h100-sxm, open loop" in text
    assert "Absolute errors" in text
    assert "- no profile was measured: unknown dtype 'fp4': b" in text


def test_the_command_prints_figures_for_programs_and_wants_one_source(tmp_path: Path) -> None:
    path = written(tmp_path, {"points": [point()]})
    shown = CliRunner().invoke(cli, ["validate", "--points", path, "--json", "--quiet"])
    (figure,) = json.loads(shown.stdout)
    assert {"id", "figure", "measured", "predicted", "error", "reason"} <= set(figure)
    assert (figure["id"], figure["figure"], figure["measured"]) == ("a", "ttft_ms", 30.0)
    both = CliRunner().invoke(cli, ["validate", str(tmp_path), "--points", path])
    assert "or --points FILE" in str(both.exception)


@pytest.mark.slow
def test_published_points_are_met_as_closely_as_the_documentation_tells() -> None:
    path = Path(__file__).parents[3] / "shared" / "calibration" / "validation.json"
    if not path.exists():
        pytest.skip("the published points are not beside this repository")
    found = [f for f in compare_points(str(path)) if f.error is not None]

    def median(figure: str, group: str) -> float:
        return float(np.median([abs(f.error or 0.0) for f in found if f.figure == figure and group in f.group]))

    assert median("tpot_ms", "vllm h") < 0.05
    assert median("ttft_ms", "vllm h") < 0.15
    assert median("e2e_ms", "vllm h100-sxm, open loop") < 0.05
    assert median("tpot_ms", "vllm rtx-4090") < 0.06
    assert median("duration_s", "vllm rtx-4090") < 0.06
    assert max(abs(f.error or 0.0) for f in found if f.figure == "kv_tokens" and f.group == "KV pool, h100-sxm") < 0.02
    a100 = [f for f in found if f.figure == "kv_gib" and "a100" in f.group]
    assert max(abs((f.predicted or 0.0) - f.measured) for f in a100) < 1.2
