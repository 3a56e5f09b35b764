"""A log is the same whatever a container runtime or a terminal has put around its lines."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from connectors.files import head
from connectors.registry import SURE, guess
from tests.connectors.examples import FIXTURES
from tests.connectors.reading import rows_of

LOGS = [FIXTURES / "logs" / name for name in (
    "azure_apim.jsonl", "bedrock.jsonl", "envoy.jsonl", "envoy_ai_gateway.jsonl", "helicone.jsonl", "kong.jsonl",
    "langfuse.jsonl", "sagemaker.jsonl", "sglang.jsonl", "sglang.metrics.log", "traefik.jsonl",
)] + [FIXTURES / "traps" / "envoy.istio.log"]  # fmt: skip
AROUND: dict[str, Callable[[str], str]] = {
    "kubernetes": lambda line: f"2026-03-02T09:00:00.123456789Z stdout F {line}",
    "compose": lambda line: f"gateway-1  | {line}",
    "docker": lambda line: json.dumps({"log": line + "\n", "stream": "stdout", "time": "2026-03-02T09:00:00.123Z"}),
    "stern": lambda line: f"gateway-5d7c9 gateway {line}",
}


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
@pytest.mark.parametrize("runtime", AROUND)
def test_what_a_runtime_puts_around_lines_changes_no_attempt(path: Path, runtime: str, tmp_path: Path) -> None:
    format = path.name.split(".")[0]
    wrapped = tmp_path / "log.gz"
    lines = [AROUND[runtime](line) for line in path.read_text().splitlines()]
    wrapped.write_bytes(gzip.compress("\n".join(lines).encode()))
    found, confidence = guess(head(str(wrapped)), str(wrapped))
    assert (found.name, confidence >= SURE) == (format, True)
    changing = {"source_file", "body_hash"}
    plain, packed = (
        [{key: value for key, value in row.items() if key not in changing} for row in rows_of(file, format)[0]]
        for file in (path, wrapped)
    )
    assert packed == plain
