"""docs/formats.md says of each format what it gives and what it cannot show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from connectors.registry import BUILT_IN, options_of

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
SECTIONS = {name: body for head, body in re.findall(r"^## ([a-z].*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
            for name in head.split(", ")}  # fmt: skip


def test_each_format_has_its_section_and_each_section_its_format() -> None:
    assert {*SECTIONS} == {*BUILT_IN}


@pytest.mark.parametrize("format", [name for name in BUILT_IN if options_of(name)])
def test_each_option_of_a_format_is_in_its_section(format: str) -> None:
    for option in options_of(format):
        assert re.search(rf"\b{option}\b", SECTIONS[format]), option
