"""What a user says about a log because the log does not: options of its format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from connectors import registry
from connectors.base import Batch
from connectors.files import first_object, objects
from connectors.registry import connector
from connectors.rows import attempts_of
from replay.cli import main
from replay.ingest import ingest, read_trace
from trace_schema.errors import BadConfig


class Milliseconds:
    """A log whose times are in a unit that it does not name."""

    class Options(msgspec.Struct, frozen=True):
        tick_s: float = 0.001

    name = "ticks"
    describes = "lines of a time in ticks and a prompt length"

    def __init__(self, options: Options) -> None:
        self.options = options

    def sniff(self, head: bytes, path: str) -> float:
        return float("tick" in (first_object(head) or ()))

    def read(self, path: str) -> Iterator[Batch]:
        for items, rows, dropped in objects(path, msgspec.json.Decoder(dict[str, int]), str):
            columns = {
                "arrival_s": [item["tick"] * self.options.tick_s for item in items],
                "prompt_tokens": [item["in"] for item in items],
            }
            yield attempts_of(columns, np.asarray(rows), source_format="ticks", source_file=path, dropped=dropped)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(registry.BUILT_IN, "ticks", f"{__name__}:Milliseconds")
    path = tmp_path / "log"
    path.write_text("".join(json.dumps({"tick": tick, "in": 7}) + "\n" for tick in (0, 500)))
    return str(path)


@pytest.mark.parametrize("format", ["ticks", None])
def test_an_option_reaches_the_connector_that_has_it(log: str, format: str | None) -> None:
    assert ingest([log], format=format).calls["arrival_s"].to_pylist() == [0.0, 0.5]
    assert ingest([log], format=format, options={"tick_s": 2}).calls["arrival_s"].to_pylist() == [0.0, 1000.0]


@pytest.mark.parametrize("format", ["ticks", None])
def test_an_option_that_a_format_does_not_have_names_the_nearest(log: str, format: str | None) -> None:
    with pytest.raises(BadConfig, match=r"options of ticks: unknown key 'tick'; did you mean tick_s\?"):
        ingest([log], format=format, options={"tick": 2})
    with pytest.raises(BadConfig, match="options of ticks: tick_s: expected `float`, got `str`"):
        ingest([log], format=format, options={"tick_s": "often"})


def test_a_format_without_options_says_so() -> None:
    with pytest.raises(BadConfig, match="format csv has no options, such as 'tick_s'"):
        connector("csv", options={"tick_s": 1})


def test_options_are_said_on_the_command_line_and_listed(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def replay(*arguments: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = capsys.readouterr()
        return ended.value.code, out + err

    output = str(tmp_path / "trace.parquet")
    assert replay("ingest", log, "-o", output, "--option", "tick_s=2.5")[0] == 0
    assert read_trace(output).calls["arrival_s"].to_pylist() == [0.0, 1250.0]
    code, message = replay("ingest", log, "-o", output, "--option", "tick=2")
    assert (code, message) == (2, "replay: options of ticks: unknown key 'tick'; did you mean tick_s?\n")
    assert replay("ingest", log, "-o", output, "--option", "tick_s")[0] == 2
    assert "--option tick_s=0.001" in replay("formats")[1]
    assert json.loads(replay("formats", "--json")[1])["qwen_bailian"]["options"] == {"hash_block_tokens": 16}
