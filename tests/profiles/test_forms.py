"""Step times in other forms: a soft roofline, a table of steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replay.engine.setup import step_seconds
from replay.errors import BadInput
from replay.profiles.loader import load_profile
from replay.profiles.profile import Profile


def written(tmp_path: Path, step_time: Any) -> Profile:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"name": "p", "engine": {}, "step_time": step_time}))
    return load_profile(str(path))


def test_a_soft_roofline_is_met_at_every_number_of_tokens(tmp_path: Path) -> None:
    floor, token, p = 0.007, 2.1e-5, 1.6
    profile = written(
        tmp_path, {"compact": {"floor_s": floor, "token_s": token, "p": p}, "decode_s": 1e-6, "kv_token_s": 4e-8}
    )
    seconds = step_seconds(profile.step_time, 8192)
    for tokens in (1, 7, 100, 333, 1000, 5000, 8192):
        assert seconds[tokens] == pytest.approx((floor**p + (token * tokens) ** p) ** (1 / p), rel=1e-4)
    assert (profile.step_time.decode_s, profile.step_time.kv_token_s) == (1e-6, 4e-8)


def test_a_table_of_steps_is_met_on_its_rows_and_between_them(tmp_path: Path) -> None:
    rows = [
        (p, d, d * c, 0.006 + 2e-5 * (p + d) + 1e-6 * d + 4e-8 * d * c)
        for p in (0, 100, 1000)
        for d in (1, 16, 64)
        for c in (100, 2000)
    ]
    profile = written(tmp_path, {"table": rows})
    step = profile.step_time
    for prefill, decode, context in ((0, 1, 100), (1000, 64, 64_000), (500, 16, 16_000)):
        seconds = step_seconds(step, 2048)[prefill + decode] + step.decode_s * decode + step.kv_token_s * context
        true = 0.006 + 2e-5 * (prefill + decode) + 1e-6 * decode + 4e-8 * context
        assert seconds == pytest.approx(true, rel=0.01)
    assert "on the rows of its table" in profile.error


def test_a_table_that_the_engine_cannot_be_is_refused_by_its_worst_row(tmp_path: Path) -> None:
    rows = [(p, d, d * c, 0.001 * (1 + (p > 0) * c)) for p in (0, 64) for d in (1, 64) for c in (1, 9)]
    with pytest.raises(BadInput, match=r"step_time.table: row \d+ is \d+% off the nearest step times of the form"):
        written(tmp_path, {"table": rows})


@pytest.mark.parametrize(
    ("step_time", "words"),
    [
        ({"table": [[1, 1, 1, 0.1]]}, "three at least"),
        ({"table": [[1, 1, 1, 0.1]] * 3 + [[1, 1, 0.1]]}, "row 4 is not"),
        ({"table": [[0, 1, 1, 0.1]] * 3, "decode_s": 1}, "leave the other keys out"),
        ({"compact": {"floor_s": 0.1}}, "missing required field `token_s`"),
        ({"compact": {"floor_s": 0.1, "token_s": 1, "q": 2}}, "unknown key 'step_time.compact.q'; "),
    ],
)
def test_a_wrong_form_is_named(tmp_path: Path, step_time: Any, words: str) -> None:
    with pytest.raises(BadInput, match=rf"p.json: .*{words}"):
        written(tmp_path, step_time)
