"""Engine profiles as files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replay.errors import BadConfig, BadInput
from replay.profiles.loader import load_profile, save_profile
from replay.profiles.profile import Profile

Change = Callable[[dict[str, Any]], Any]


def test_a_profile_survives_its_file(profile: Profile, tmp_path: Path) -> None:
    path = str(tmp_path / "p.json")
    save_profile(profile, path)
    assert load_profile(path) == profile
    assert [p.name for p in tmp_path.iterdir()] == ["p.json"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: p["engine"].update(max_sequences=3), "unknown key 'engine.max_sequences'; did you mean"),
        (lambda p: p.update(step_tim={}), "unknown key 'step_tim'; did you mean step_time"),
        (lambda p: p.pop("engine"), "object missing required field `engine`"),
        (lambda p: p["engine"].update(num_blocks=0), "engine.num_blocks: expected `int` >= 2"),
        (lambda p: p["step_time"].update(overhead_s=-1), "step_time.overhead_s: expected `float` >= 0.0"),
        (lambda p: p["step_time"].update(knots_s=[1.0]), "step_time: knots_tokens and knots_s must be equally long"),
        (lambda p: p["step_time"].update(knots_tokens=[9, 9]), "step_time: knots_tokens must increase"),
    ],
)
def test_a_wrong_profile_is_named_with_its_key(profile: Profile, tmp_path: Path, change: Change, words: str) -> None:
    content = msgspec.to_builtins(profile)
    change(content)
    path = tmp_path / "p.json"
    path.write_text(json.dumps(content))
    with pytest.raises(BadInput, match=rf"p.json: .*{words}"):
        load_profile(str(path))


def test_what_is_no_profile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    for content in (b"", b"PAR1", b'{"name": "x", '):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="is not an engine profile"):
            load_profile(str(path))
    path.write_bytes(b"[1]")
    with pytest.raises(BadInput, match="expected `object`"):
        load_profile(str(path))
    with pytest.raises(BadConfig, match="cannot be read"):
        load_profile(str(tmp_path / "nowhere.json"))


def test_a_profile_that_cannot_be_written_leaves_nothing(profile: Profile, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadConfig, match="cannot be written"):
        save_profile(profile, str(tmp_path / "file" / "p.json"))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
