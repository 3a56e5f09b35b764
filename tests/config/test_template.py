"""The experiment file that `replay init` writes: complete, true, and as strict as any other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from replay.cli import main
from replay.config import Experiment, flat, layered, read_experiment, template


def without_marks() -> dict[str, Any]:
    """The template with every setting in force."""
    lines = [re.sub(r"^# (?=(  )*(- )?[a-z_]+:|  +- )", "", line) for line in template().splitlines()]
    settings: dict[str, Any] = yaml.safe_load("\n".join(lines))
    return settings


def test_every_setting_is_in_it_with_its_default() -> None:
    shown = without_marks()
    policies = shown.pop("policies")
    assert policies[0] == "cancel"
    assert policies[-1]["name"] == "mine"
    defaults = dict(flat(msgspec.to_builtins(Experiment())))
    written = dict(flat(shown))
    assert set(written) == set(defaults) - {"policies"}
    for key, value in written.items():
        if key != "profile":
            assert value == (list(defaults[key]) if isinstance(defaults[key], tuple) else defaults[key]), key


def test_it_can_be_read_as_it_is_and_with_every_setting_in_force(tmp_path: Path) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_text(template())
    assert layered([("file", read_experiment(str(path)))])[0].profile == ["h100-sxm/llama-3.1-8b/tp1/bf16/vllm"]
    path.write_text(yaml.safe_dump(without_marks()))
    assert layered([("file", read_experiment(str(path)))])[0].seeds == 1


def test_init_writes_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    for code in (0, 2):
        with pytest.raises(SystemExit) as exit:
            main(["init", str(path)])
        assert exit.value.code == code
        assert path.read_text() == template()
    assert "exists already" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["init", "-"])
    assert capsys.readouterr().out == template()
