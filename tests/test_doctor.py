"""Is the installation in order?"""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

import replay.doctor as doctor
from replay.errors import RunFailed


def test_a_sound_installation_says_where_it_is_and_compiles() -> None:
    findings = doctor.examine(warm=True)
    assert Path(findings["packages"], "replay", "__init__.py").exists()
    assert findings["engine"] == "compiled"


def test_a_package_that_shadows_ours_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = doctor.find_spec

    def shadowed(name: str) -> ModuleSpec | None:
        return ModuleSpec(name, None, origin="/home/ann/queries/__init__.py") if name == "queries" else found(name)

    monkeypatch.setattr(doctor, "find_spec", shadowed)
    with pytest.raises(RunFailed, match="queries from /home/ann"):
        doctor.examine()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    with pytest.raises(RunFailed, match="the package replay is missing"):
        doctor.examine()
