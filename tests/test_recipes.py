"""The recipes of CONTRIBUTING.md, followed."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from connectors.registry import connector, names
from replay.cli import main
from replay.errors import BadConfig
from replay.ingest import ingest, read_trace

RECIPES = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
LINES = [
    {"sent_ms": 500, "prompt": 100, "answer": 10},
    {"sent_ms": 1500, "prompt": -3},
    {"sent_ms": 2500, "prompt": 200},
]
WITH_OPTIONS = """
import msgspec
from my_package_mylog import MyLog as Plain


class MyLog(Plain):
    class Options(msgspec.Struct, frozen=True):
        sure: float = 1.0

    def __init__(self, options: Options) -> None:
        self.options = options

    def sniff(self, head: bytes, path: str) -> float:
        return self.options.sure * super().sniff(head, path)
"""

Install = Callable[..., None]


def block(language: str) -> str:
    """The first block of code of CONTRIBUTING.md in a language."""
    found = re.search(rf"```{language}\n(.*?)```", RECIPES, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a package outside this one in place that registers a connector by entry point."""

    def installed(package: str, source: str, *, format: str = "mylog") -> None:
        registration = block("toml").replace('[project.entry-points."replay.connectors"]', "[replay.connectors]")
        registration = registration.replace("mylog =", f"{format} =").replace('"my_package.mylog:', f"{package}:")
        (tmp_path / f"{package}.py").write_text(source)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(registration.replace('"', ""))
        sys.modules.pop(package, None)

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return installed


def test_a_connector_from_outside_reads_like_a_built_in(tmp_path: Path, install: Install) -> None:
    install("my_package_mylog", block("python"))
    assert "mylog" in names()
    assert connector("mylog").describes.startswith("JSON lines of our gateway")
    log = tmp_path / "log"
    for content in (
        "\n".join(map(json.dumps, LINES)).encode(), json.dumps(LINES, indent=1).encode(),
        gzip.compress("".join(json.dumps(line) + "\r\n" for line in LINES).encode()),
    ):  # fmt: skip
        log.write_bytes(content)
        trace = ingest([str(log)])
        assert trace.calls["prompt_tokens"].to_pylist() == [100, 200]
        assert trace.calls["arrival_s"].to_pylist() == [0.5, 2.5]
        assert trace.report is not None
        (file,) = trace.report.files
        assert (file.format, file.rows_read, file.rows_emitted) == ("mylog", 3, 2)
        assert file.dropped == {"prompt_tokens is negative": (1, [2])}


def test_a_connector_from_outside_is_named_on_the_command_line_and_has_options(
    tmp_path: Path, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("my_package_mylog", block("python"), format="plain-log")
    install("my_other_package", WITH_OPTIONS)
    log, output = tmp_path / "log", tmp_path / "trace.parquet"
    log.write_text("\n".join(map(json.dumps, LINES)))
    with pytest.raises(SystemExit) as ended:
        main(["ingest", str(log), "--format", "mylog", "--option", "sure=0.5", "-o", str(output), "--quiet"])
    assert ended.value.code == 0
    assert read_trace(str(output)).calls.num_rows == 2
    with pytest.raises(SystemExit):
        main(["formats"])
    assert "--option sure=1.0" in capsys.readouterr().out
    with pytest.raises(BadConfig, match="options of mylog: unknown key 'shure'; did you mean sure"):
        connector("mylog", options={"shure": 1})


def test_a_connector_from_outside_that_cannot_be_loaded_is_named_with_its_package(
    tmp_path: Path, install: Install
) -> None:
    install("my_broken_package", "import a_module_that_nobody_has")
    log = tmp_path / "log"
    log.write_text("\n".join(map(json.dumps, LINES)))
    with pytest.raises(BadConfig, match="format mylog, which my_broken_package registers, cannot be loaded"):
        ingest([str(log)])
