"""Profiles that are shipped: what they hold, and how many blocks they leave."""

from __future__ import annotations

import pytest

from replay.engine.setup import step_seconds
from replay.errors import BadConfig, BadInput
from replay.profiles.kv_capacity import num_blocks
from replay.profiles.loader import find_profile
from replay.profiles.named import measured

H100 = "h100-sxm/llama-3.1-8b/tp1/bf16/vllm"


def test_every_shipped_profile_can_be_made() -> None:
    for name in measured():
        profile = find_profile(name)
        assert profile.name == name
        assert profile.source
        assert "%" in profile.error
        assert profile.engine.num_blocks > 1


def test_an_h100_has_the_step_times_and_the_pool_that_were_measured() -> None:
    profile = find_profile(H100)
    seconds = step_seconds(profile.step_time, 8192)
    assert seconds[2048] == pytest.approx(42.9964e-3)
    assert profile.step_time.overhead_s == pytest.approx(1.2e-3)
    assert (profile.engine.mode, profile.engine.max_model_len) == ("sync", 131_072)
    assert profile.engine.num_blocks * 16 == pytest.approx(450_800, rel=0.01)


def test_blocks_are_what_weights_and_the_rest_leave() -> None:
    assert num_blocks(79.1, 12.55, 524_288, 16) * 16 == pytest.approx(119_408, rel=0.015)  # a vLLM log, Llama-2-7B
    with pytest.raises(ValueError, match="no room"):
        num_blocks(24.0, 22.0, 131_072, 16)


def test_an_unknown_name_names_the_nearest(tmp_path: object) -> None:
    with pytest.raises(BadConfig, match=r"unknown profile 'h100-sxm/llama-3.1-8b/tp1/bf16/vlm'; did you mean h100-sxm"):
        find_profile("h100-sxm/llama-3.1-8b/tp1/bf16/vlm")
    with pytest.raises((BadConfig, BadInput), match=r"missing\.json: cannot be read"):
        find_profile("missing.json")
