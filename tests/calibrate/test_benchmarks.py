"""Step times from benchmarks: what is recovered, what is refused, and benchmarks held against profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from replay.calibrate.benchmarks import calibrate_benchmarks, validate_benchmark
from replay.calibrate.sources import batch_sizes, read_measured
from replay.cli import cli
from replay.errors import BadConfig, BadInput
from replay.profiles.loader import find_profile, save_profile
from tests.calibrate.loads import BASE, SETTINGS, WRITERS, base, requests, served, truth, vllm_bench

F, OVERHEAD_S, API_SERVER_S = 1.25, 2.5e-3, 9e-3


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_slowed_an_engine_is_found_within_the_stated_intervals(seed: int, tmp_path: Path) -> None:
    path = vllm_bench(requests(truth(F, OVERHEAD_S, API_SERVER_S), seed), tmp_path / "bench.json")
    profile, fit = calibrate_benchmarks([path], base=BASE, engine=SETTINGS)
    values = {value.name: value for value in fit.values}
    true = {"f": F, "kv": 1.0, "attention": 1.0, "overhead_s": OVERHEAD_S, "sequence_s": base().timed.sequence_s}
    for name, value in true.items():
        assert abs(values[name].value - value) <= values[name].half_width, name
    # Of six intervals of 95% and three seeds, one may miss by a little.
    assert abs(values["api_server_s"].value - API_SERVER_S) <= 2.0 * values["api_server_s"].half_width
    assert values["f"].told
    assert values["f"].half_width < 0.2
    assert fit.errors["tpot"].mean < 0.04 < fit.errors_before["tpot"].mean
    assert profile.step_time.knots_s[-1] == pytest.approx(values["f"].value * base().step_time.knots_s[-1])
    assert profile.engine == base().engine
    assert profile.api_server_s == values["api_server_s"].value


def test_what_the_data_do_not_tell_is_kept_and_said(tmp_path: Path) -> None:
    path = vllm_bench(requests(truth(), 1), tmp_path / "bench.json")
    profile, fit = calibrate_benchmarks([path], base=BASE, engine=SETTINGS)
    attention = next(value for value in fit.values if value.name == "attention")
    assert (attention.told, attention.value) == (False, 1.0)
    assert "prompts of 8,000" in attention.advice
    assert profile.step_time.prefill_attention_s == base().step_time.prefill_attention_s
    assert attention.words in profile.weakness


def test_every_tools_file_gives_the_same_requests(tmp_path: Path) -> None:
    found = requests(truth(), 4, count=80)
    expected = {key: np.array([r[key] for r in found]) for key in ("start", "prompt", "output", "ttft", "decoding")}
    for name, write in WRITERS.items():
        run = read_measured(write(found, tmp_path / f"{name}.requests.jsonl"))
        np.testing.assert_allclose(run.arrival_s, expected["start"], atol=2e-6, err_msg=name)
        np.testing.assert_allclose(run.ttft_s, expected["ttft"], atol=2e-6, err_msg=name)
        np.testing.assert_allclose(run.e2e_s, expected["ttft"] + expected["decoding"], atol=2e-6, err_msg=name)
        assert run.calls["prompt_tokens"].to_pylist() == expected["prompt"].tolist(), name
        assert run.calls["output_tokens"].to_pylist() == expected["output"].tolist(), name


def test_a_batch_counts_who_decodes_at_the_same_time(tmp_path: Path) -> None:
    """Two requests decode from 1 s to 3 s, one of which goes on alone until 5 s."""
    found = [
        {"start": 0.0, "prompt": 9, "output": 9, "ttft": 1.0, "decoding": 2.0},
        {"start": 0.5, "prompt": 9, "output": 9, "ttft": 0.5, "decoding": 4.0},
    ]
    np.testing.assert_allclose(batch_sizes(read_measured(vllm_bench(found, tmp_path / "x.json"))), [2.0, 1.5])


def test_several_runs_are_fitted_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    files = []
    for number, gap in enumerate((2.0, 0.2)):
        alike = np.full(30, 400), np.full(30, 200)
        found = served(truth(), np.arange(30) * gap, *alike, 0.02, rng)
        files.append(vllm_bench(found, tmp_path / f"{number}.json"))
    with pytest.raises(BadInput, match="30 requests with times are too few"):
        calibrate_benchmarks(files[:1], base=BASE, engine=SETTINGS)
    _, fit = calibrate_benchmarks(files, base=BASE, engine=SETTINGS)
    assert fit.errors["tpot"].mean < 0.05


def one_load(path: Path) -> str:
    """A run at one concurrency: every request alone."""
    rng = np.random.default_rng(6)
    found = served(truth(), np.arange(60) * 5.0, np.full(60, 300), np.full(60, 100), 0.02, rng)
    return vllm_bench(found, path)


def without(key: str, value: Any = None) -> Any:
    """A file that lacks one list, or has others in its place."""
    return lambda path: vllm_bench(requests(truth(), 1, count=80), path, **{key: value})


CANNOT_TELL = {
    "one batch size": (one_load, "batches of one size.*--max-concurrency 1, 8 and 64"),
    "too few": (lambda path: vllm_bench(requests(truth(), 1, count=20), path), "20 requests .* are too few"),
    "sums alone": (without("ttfts"), "has no ttfts of single requests; run vllm bench serve with --save-result"),
    "no start": (
        lambda path: vllm_bench(requests(truth(), 1, count=80), path, start_times=None, request_rate=4.0),
        "has no start_times .* later vLLM",
    ),
    "no output lengths": (without("output_lens", [None] * 80), "does not say how many tokens were written"),
    "no first token": (without("ttfts", [None] * 80), "has no time to first token"),
    "all failed": (without("errors", ["boom"] * 80), "no request of it can be used: .*80 requests that failed"),
    "lists of other lengths": (without("itls", [[0.1]]), "80 input_lens and 1 itls"),
    "not lists": (without("input_lens", "many"), "is not as its tool writes it"),
}


@pytest.mark.parametrize(("write", "words"), CANNOT_TELL.values(), ids=list(CANNOT_TELL))
def test_data_that_cannot_tell_are_refused_with_what_to_do(write: Any, words: str, tmp_path: Path) -> None:
    path = write(tmp_path / "bench.json")
    with pytest.raises(BadInput, match=words):
        calibrate_benchmarks([path], base=BASE, engine=SETTINGS)


def test_prompts_out_of_the_cache_are_refused(tmp_path: Path) -> None:
    path = Path(WRITERS["guidellm"](requests(truth(), 1, count=80), tmp_path / "g.json"))
    path.write_text(path.read_text().replace('"cached_tokens": 0', '"cached_tokens": 90'))
    with pytest.raises(BadInput, match="came out of the prefix cache"):
        read_measured(str(path))


def test_an_engine_that_nobody_names_is_asked_for(tmp_path: Path) -> None:
    path = vllm_bench(requests(truth(), 1, count=80), tmp_path / "bench.json")
    with pytest.raises(BadConfig, match=r"does not say its GPU \(--gpu\)"):
        calibrate_benchmarks([path])
    with pytest.raises(BadConfig, match="unknown GPU"):
        calibrate_benchmarks([path], gpu="abacus")
    named = vllm_bench(requests(truth(), 1, count=80), tmp_path / "named.json", gpu="NVIDIA H100 80GB HBM3")
    found = validate_benchmark(named, None)
    assert found.profile == BASE
    assert any("mode=" in note and "num_blocks=" in note for note in found.notes)


def test_runs_of_two_engines_are_refused(tmp_path: Path) -> None:
    found = requests(truth(), 1, count=80)
    files = [vllm_bench(found, tmp_path / f"{gpu}.json", gpu=gpu) for gpu in ("h100", "a100")]
    with pytest.raises(BadInput, match=r"another engine.*gpu a100, not h100"):
        calibrate_benchmarks(files, base=BASE)


def test_a_request_longer_than_the_engine_takes_is_said(tmp_path: Path) -> None:
    path = vllm_bench(requests(truth(), 1, count=80), tmp_path / "bench.json")
    with pytest.raises(BadConfig, match="was served, but the engine of"):
        calibrate_benchmarks([path], base=BASE, engine={**SETTINGS, "max_model_len": 500})


def test_a_benchmark_of_a_known_engine_is_predicted(tmp_path: Path) -> None:
    """A client that measures without noise finds what the profile says, figure by figure."""
    save_profile(truth(), str(tmp_path / "truth.json"))
    path = vllm_bench(requests(truth(), 7, noise=0.0), tmp_path / "bench.json")
    found = validate_benchmark(path, str(tmp_path / "truth.json"))
    assert len(found.figures) == 15
    for figure in found.figures:
        assert abs(figure.error) < 2e-3, figure
    off = validate_benchmark(path, BASE, SETTINGS)
    assert next(f for f in off.figures if f.figure == "tpot_ms_mean").error < -0.15


def test_calibrate_and_validate_on_the_command_line(tmp_path: Path) -> None:
    path = vllm_bench(requests(truth(), 1), tmp_path / "bench.json")
    out = str(tmp_path / "profile.json")
    said = [part for key, value in SETTINGS.items() for part in ("--engine", f"{key}={value}")]
    shown = CliRunner().invoke(cli, ["calibrate", path, "--gpu", "H100", "-o", out, *said])
    assert shown.exit_code == 0, shown.output
    assert "tokens of a step (f)" in shown.stdout
    assert find_profile(out).source.startswith(f"{BASE} fitted to bench.json")
    shown = CliRunner().invoke(cli, ["validate", path, "--profile", out, "--json"])
    errors = {row["figure"]: row["error"] for row in json.loads(shown.stdout)}
    assert abs(errors["tpot_ms_mean"]) < 0.03
    assert abs(errors["makespan_s"]) < 0.03


def test_the_recorded_run_of_an_rtx_4090_is_predicted_from_the_shipped_profile(samples: Path) -> None:
    path = samples / "llmservingsim-vllm-bench" / "RTX4090_Llama-3.1-8B_requests.jsonl"
    errors = {figure.figure: figure.error for figure in validate_benchmark(str(path), None).figures}
    assert abs(errors["tpot_ms_mean"]) < 0.06
    assert abs(errors["makespan_s"]) < 0.06
