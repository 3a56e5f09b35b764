"""Profiles that are shipped: what they hold, what people call them, and how many blocks they leave."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from replay.engine.setup import step_seconds
from replay.errors import BadConfig, BadInput
from replay.profiles.kv_capacity import num_blocks
from replay.profiles.loader import find_profile, with_settings
from replay.profiles.named import SYNC, measured, shipped
from replay.profiles.profile import Memory

H100 = "h100-sxm/llama-3.1-8b/tp1/bf16/vllm"
REPOSITORY = Path(__file__).parents[2]


def memory(gpu_gib: float, weights_gib: float, kv_bytes_per_token: int) -> Memory:
    return Memory(gpu_gib=gpu_gib, weights_gib=weights_gib, kv_bytes_per_token=kv_bytes_per_token)


def test_every_shipped_profile_can_be_made() -> None:
    assert len(measured()) == len(shipped().rows) > 600
    for name in measured():
        profile = find_profile(name)
        assert profile.name == name
        assert "Apache-2.0" in profile.source or "MIT" in profile.source
        assert "%" in profile.error
        assert profile.weakness
        assert profile.engine.num_blocks > 1
        seconds = step_seconds(profile.step_time, 16_384)
        assert 0 < seconds[1] <= seconds[8_192] < seconds[16_384] < 60


def test_an_h100_has_the_step_times_and_the_pool_that_were_measured() -> None:
    profile = find_profile(H100)
    seconds = step_seconds(profile.step_time, 8192)
    assert seconds[2048] == pytest.approx(42.9964e-3)
    assert profile.engine.max_model_len == 131_072
    assert (profile.engine.max_num_batched_tokens, profile.engine.max_num_seqs) == (8_192, 1_024)
    assert profile.engine.num_blocks * 16 == pytest.approx(450_800, rel=0.01)


def test_synchronous_scheduling_brings_its_overhead_and_takes_it_away() -> None:
    profile = with_settings(find_profile(H100), {"mode": "sync"})
    assert (profile.timed.overhead_s, profile.timed.sequence_s) == (SYNC.step_s, SYNC.sequence_s) == (1.2e-3, 0.04e-3)
    assert with_settings(profile, {"mode": "async"}).timed.overhead_s == 0.0


@pytest.mark.parametrize(
    "name",
    [
        "H100/Llama-3.1-8B/tp1/bfloat16/vllm",
        "H100-SXM5-80GB/meta-llama/Llama-3.1-8B-Instruct/tp1/fp16/vLLM",
        "NVIDIA H100 80GB HBM3/meta-llama/Meta-Llama-3-8B/tp1/float16/vllm",
        "h100_sxm/deepseek-ai/DeepSeek-R1-Distill-Llama-8B/tp1/auto/vllm",
    ],
)
def test_a_profile_answers_to_the_names_that_people_give_its_parts(name: str) -> None:
    assert find_profile(name) == find_profile(H100)


def test_known_weaknesses_of_whole_runs_are_told() -> None:
    for name, words in {
        "b200-sxm/llama-3.1-70b/tp4/fp8/vllm": "16% too long",
        "rtx-pro-6000-server/qwen3-32b/tp2/bf16/vllm": "21% too short",
        "h200-sxm/llama-3.1-70b/tp4/fp8/tensorrt-llm": "34% off",
        "h100-sxm/qwen3-32b/tp1/fp8/sglang": "23% off",
        "a100-sxm/llama-3.1-8b/tp1/bf16/vllm": "carried over from other GPUs",
        "h100-sxm/qwen2.5-7b/tp1/bf16/vllm": "attention is that of 32 query heads, the model has 28",
    }.items():
        assert words in find_profile(name).weakness


def test_blocks_are_what_weights_and_the_rest_leave() -> None:
    logged = 119_408  # tokens, in a vLLM log of Llama-2-7B on H100
    assert num_blocks(memory(79.1, 12.55, 524_288), 0.9, 16) * 16 == pytest.approx(logged, rel=0.015)
    with pytest.raises(ValueError, match="no room"):
        num_blocks(memory(24.0, 22.0, 131_072), 0.9, 16)


def test_a_pool_follows_the_memory_that_it_may_use_and_a_number_of_blocks_wins() -> None:
    profile = find_profile(H100)
    less = with_settings(profile, {"gpu_memory_utilization": 0.5})
    assert less.engine.num_blocks * 16 == pytest.approx((0.5 * 79.1 - 14.96 - 1.2) * 2**30 / 131_072, rel=1e-3)
    longer = with_settings(profile, {"block_size": 32}).engine
    assert longer.num_blocks * 32 == pytest.approx(profile.engine.num_blocks * 16, rel=1e-3)
    assert with_settings(profile, {"gpu_memory_utilization": 0.5, "num_blocks": 77}).engine.num_blocks == 77
    assert with_settings(profile, {"max_num_seqs": 8}).engine.num_blocks == profile.engine.num_blocks
    with pytest.raises(BadConfig, match=r"engine.gpu_memory_utilization: 14.96 GiB of weights leave no room"):
        with_settings(profile, {"gpu_memory_utilization": 0.2})


def test_a_share_of_memory_that_nobody_knows_is_refused(profile_file: str) -> None:
    with pytest.raises(BadConfig, match=r"profile small does not know the memory of its GPU; give engine.num_blocks"):
        with_settings(find_profile(profile_file), {"gpu_memory_utilization": 0.5})


def test_an_unknown_name_names_the_nearest_or_the_part_that_is_wrong() -> None:
    with pytest.raises(BadConfig, match=r"unknown profile 'h100-sxm/llama-3.1-8b/tp1/bf16/vlm'; did you mean h100-sxm"):
        find_profile("h100-sxm/llama-3.1-8b/tp1/bf16/vlm")
    with pytest.raises(BadConfig, match=r"unknown GPU 'tpu-v5'; "):
        find_profile("tpu-v5/llama-3.1-8b/tp1/bf16/vllm")
    with pytest.raises(BadConfig, match=r"a name is GPU/MODEL/tpN/DTYPE/ENGINE; replay profiles lists them"):
        find_profile("mine")
    with pytest.raises((BadConfig, BadInput), match=r"missing\.json: cannot be read"):
        find_profile("missing.json")


def test_the_shipped_file_is_what_the_script_makes_of_the_rows(tmp_path: Path) -> None:
    rows = REPOSITORY.parent / "shared" / "calibration" / "profiles.json"
    if not rows.exists():
        pytest.skip("the fitted rows are not beside this repository")
    made = tmp_path / "measured.json"
    command = [sys.executable, "scripts/pack_profiles.py", str(rows), "-o", str(made)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=60)
    assert json.loads(made.read_text()) == json.loads((REPOSITORY / "replay/profiles/measured.json").read_text())
