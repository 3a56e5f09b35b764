"""Profiles that nobody measured: scaled from the nearest row, marked, or refused."""

from __future__ import annotations

import math
import statistics

import pytest

from replay.engine.setup import step_seconds
from replay.errors import BadConfig
from replay.profiles.guess import distance, scaled
from replay.profiles.hardware import GPUS
from replay.profiles.loader import find_profile
from replay.profiles.models import MODELS
from replay.profiles.named import Measured, measured, named_profile


def test_a_guess_says_that_it_is_one_and_of_what() -> None:
    guess = find_profile("h100/Qwen/Qwen2.5-14B-Instruct/tp1/bf16/vllm")
    assert guess.name == "h100-sxm/qwen2.5-14b/tp1/bf16/vllm/guess"
    assert guess.source.startswith("a guess: h100-sxm/qwen3-14b/tp1/bf16/vllm scaled to qwen2.5-14b (1.00 times")
    assert "not known" in guess.error
    assert guess.weakness.startswith("nobody measured it")
    assert find_profile(guess.name) == guess


def test_a_larger_model_takes_as_much_longer_as_it_is_larger_and_leaves_less_room() -> None:
    small, large = find_profile("h100/qwen2.5-7b/tp1/bf16/vllm"), find_profile("h100/qwen2.5-14b/tp1/bf16/vllm")
    assert 1.5 < step_seconds(large.step_time, 1)[1] / step_seconds(small.step_time, 1)[1] < 2.5
    assert large.engine.num_blocks < small.engine.num_blocks
    assert large.memory is not None
    assert large.memory.kv_bytes_per_token == 2 * 48 * 8 * 128 * 2


def test_another_gpu_is_guessed_by_its_bandwidth_and_compute() -> None:
    sxm, pcie = find_profile("h100-sxm/qwen3-8b/tp1/bf16/vllm"), find_profile("h100-pcie/qwen3-8b/tp1/bf16/vllm")
    assert pcie.step_time.knots_s[0] == pytest.approx(sxm.step_time.knots_s[0] * 3350 / 2000)
    assert pcie.step_time.kv_token_s == pytest.approx(sxm.step_time.kv_token_s * 3350 / 2000)
    assert "h100-pcie (0.60 times the bandwidth, 0.76 times the compute)" in pcie.source


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("h100/llama-3.1-405b/tp8/fp8/vllm", "nothing near enough to guess from"),
        ("h100/llama-3.1-8b/tp16/bf16/vllm", "measured with tp16 in bf16"),
        ("h100/llama-3.1-70b/tp1/bf16/vllm", r"leave no room for KV blocks .* more GPUs \(tpN\) share the weights"),
        ("h100/mixtral-8x7b/tp2/bf16/vllm", "unknown model 'mixtral-8x7b'"),
    ],
)
def test_what_is_not_near_is_refused(name: str, words: str) -> None:
    with pytest.raises(BadConfig, match=words):
        find_profile(name)


def nearest_of_another_model(row: Measured) -> str | None:
    """The row of the same GPU and engine from which `row` would be guessed, were it not there."""
    others = {
        name: distance(row.key, other)
        for name, other in measured().items()
        if (other.gpu, other.engine) == (row.gpu, row.engine) and other.model != row.model
    }
    near = [name for name, far in others.items() if not math.isinf(far)]
    return min(near, key=lambda name: (others[name], name)) if near else None


def test_measured_rows_are_guessed_from_other_models_as_well_as_is_told() -> None:
    errors = []
    for name, row in measured().items():
        near = nearest_of_another_model(row)
        if near is None:
            continue
        guess = scaled(named_profile(near).step_time, measured()[near], MODELS[row.model], GPUS[row.gpu])
        guessed, true = step_seconds(guess, 8192), step_seconds(named_profile(name).step_time, 8192)
        errors += [abs(guessed[n] / true[n] - 1) for n in (1, 32, 128, 512, 2048, 8192)]
    assert len(errors) > 2_000
    assert statistics.median(errors) < 0.07
    assert statistics.quantiles(errors, n=10)[-1] < 0.21
