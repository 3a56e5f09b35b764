"""Step times from a step log."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from connectors.vllm_steps import Header, read_step_log
from replay.calibrate import calibrate, settings_beside
from replay.calibrate.fit import fit, modelled, scaled
from replay.errors import BadConfig, BadInput

OVERHEAD, TOKEN, KV = 0.004, 0.0001, 2e-7


def step_log(
    path: Path, steps: int, *, mixed: bool = True, hiccup: int = 0, noise: float = 0.0, slower: float = 1.0
) -> str:
    """A log of steps that last `OVERHEAD + TOKEN * tokens + KV * context`."""
    rng = np.random.default_rng(1)
    now = 1.7e9
    lines = [{"kind": "config", "async_": False, "budget": 256, "seqs": 8, "blocks": 100, "block_size": 16}]
    for k in range(steps):
        rows = [[f"d{i}", 1, int(rng.integers(100, 900)), 50] for i in range(int(rng.integers(1, 8)) if mixed else 1)]
        if mixed and rng.random() < 0.6:
            rows.append(["p", int(rng.integers(1, 240)), 0, 1000])
        tokens = sum(r[1] for r in rows)
        context = sum(r[2] + 1 for r in rows if r[0] != "p")
        took = slower * (OVERHEAD + TOKEN * tokens + KV * context) * (1 + noise * rng.standard_normal())
        if hiccup and k % hiccup == 0:
            took *= 5
        lines.append({"kind": "step", "t0": now, "t1": now + took - 1e-4, "rows": rows})
        now += took
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_the_coefficients_of_a_log_are_found(tmp_path: Path) -> None:
    log = read_step_log(step_log(tmp_path / "x.steps.jsonl", 2000, noise=0.02))
    step_time, report = fit(log)
    assert report.mape < 0.02
    assert step_time.overhead_s + step_time.sequence_s == pytest.approx(OVERHEAD, rel=0.15)
    slope = (step_time.knots_s[-1] - step_time.knots_s[0]) / (step_time.knots_tokens[-1] - step_time.knots_tokens[0])
    assert slope == pytest.approx(TOKEN, rel=0.05)
    assert all(b >= a for a, b in zip(step_time.knots_s[:-1], step_time.knots_s[1:], strict=True))


def test_hiccups_are_left_out(tmp_path: Path) -> None:
    log = read_step_log(step_log(tmp_path / "x.steps.jsonl", 2000, hiccup=50))
    step_time, report = fit(log)
    assert report.outliers == 40
    clean = read_step_log(step_log(tmp_path / "y.steps.jsonl", 2000))
    np.testing.assert_allclose(
        modelled(clean, step_time).sum(), (clean.ended_at - clean.scheduled_at + 1e-4).sum(), rtol=0.01
    )


def test_every_step_can_be_scaled(tmp_path: Path) -> None:
    log = read_step_log(step_log(tmp_path / "x.steps.jsonl", 300))
    step_time, _ = fit(log)
    np.testing.assert_allclose(modelled(log, scaled(step_time, 1.1)), 1.1 * modelled(log, step_time))


@pytest.mark.parametrize(("steps", "mixed", "words"), [(20, True, "too few"), (500, False, "same number of tokens")])
def test_a_log_that_cannot_tell_is_refused(tmp_path: Path, steps: int, mixed: bool, words: str) -> None:
    path = step_log(tmp_path / "x.steps.jsonl", steps, mixed=mixed)
    with pytest.raises(BadInput, match=words):
        fit(read_step_log(path), path)


def test_a_profile_takes_the_engines_settings_from_the_log(tmp_path: Path) -> None:
    path = step_log(tmp_path / "x.steps.jsonl", 300)
    profile, _ = calibrate(path, {"prefix_caching": False})
    assert (profile.engine.max_num_seqs, profile.engine.num_blocks) == (8, 100)
    assert profile.engine.prefix_caching is False
    assert "held-back" in profile.error
    with pytest.raises(BadConfig, match="engine settings"):
        calibrate(path, {"num_blocks": 0})


def test_the_rules_of_an_engine_are_those_of_the_version_that_its_log_names(tmp_path: Path) -> None:
    def engine(version: str | None) -> dict[str, object]:
        said = {"max_num_seqs": 8, "freed_blocks_go": None, "admission_needs": "sequence"}
        return settings_beside(str(tmp_path / "x.steps.jsonl"), Header(engine=said, vllm_version=version))

    assert engine("0.33.0") == {"max_num_seqs": 8, "admission_needs": "sequence", "self_preempted": "pass_goes_on"}
    assert engine(None) == {"max_num_seqs": 8, "admission_needs": "sequence"}
    assert engine("0.18.1")["freed_blocks_go"] == "to_the_back"
    assert engine("0.18.1")["admission_needs"] == "sequence", "what the log says wins"


def test_a_broken_step_log_loses_only_what_is_broken(tmp_path: Path) -> None:
    whole = Path(step_log(tmp_path / "x.steps.jsonl", 400)).read_bytes()
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(whole)[:-200])
    (tmp_path / "mixed.jsonl").write_bytes(b"nonsense\n" + whole + b'{"kind": "step", "t0": 1')
    assert 100 < len(read_step_log(str(tmp_path / "cut.jsonl.gz")).rows) < 400
    log = read_step_log(str(tmp_path / "mixed.jsonl"))
    assert len(log.rows) == 400
    assert log.dropped.reasons == {"not a line of a step log": (2, [1, 403])}


def test_step_times_take_the_speed_of_another_hour(tmp_path: Path) -> None:
    path = step_log(tmp_path / "x.steps.jsonl", 300)
    slow = step_log(tmp_path / "slow.steps.jsonl", 300, slower=1.07)
    plain, _ = calibrate(path)
    profile, _ = calibrate(path, speed_of=slow)
    assert profile.step_time.overhead_s == pytest.approx(1.07 * plain.step_time.overhead_s, rel=0.005)
    assert "times 1.07" in profile.source
