"""A log is known by what it holds, whatever its file is called and however it is packed."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import pytest

from connectors.base import Connector
from connectors.files import head
from connectors.registry import MAPPED, SURE, connector, names
from tests.connectors.examples import FORMAT_OF

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"
FOLDERS = {
    "aiperf": "aiperf", "azure-llm-2023": "azure_llm", "azure-llm-2024": "azure_llm", "azure-lmm-2025": "azure_llm",
    "blis-tracev2": "blis_tracev2", "burstgpt": "burstgpt", "dynamo-request-trace": "dynamo_request_trace",
    "envoy-ai-gateway": "envoy_ai_gateway", "guidellm": "guidellm", "inference-perf": "inference_perf",
    "langfuse": "langfuse", "litellm": "litellm", "llmservingsim-vllm-bench": "llmservingsim", "mooncake": "mooncake",
    "nginx": "nginx", "openinference": "openinference", "otel-genai-json": "otlp", "otlp-json": "otlp",
    "qwen-bailian": "qwen_bailian", "ragpulse": "ragpulse", "sagemaker": "sagemaker", "servegen": "servegen",
    "splitwise-sim": "splitwise", "tracelab": "tracelab", "uvicorn-access": "uvicorn", "vllm-server-log": "vllm_log",
}  # fmt: skip
"""Format of the samples by folder."""
OTHERS = {"example_trace-replay_trace.csv": "azure_llm", "template_mooncake_precise_schedule.jsonl": "mooncake",
          "template_mooncake_production_trace.jsonl": "mooncake"}  # fmt: skip
"""Samples that a tool ships in the format of another."""
NO_LOG = ("nginx.conf", "GENERATED_nginx1.22_error.log", "TESTFIXTURE_trace.yaml", "_dataset.json", "-dataset.json",
          "_meta.json", "_timeseries.csv", "_export_aiperf.csv")  # fmt: skip
"""How samples end that lie beside a log: its tool's settings, sums, errors."""


def samples() -> dict[Path, str]:
    """Format by sample, where there are any."""
    found = [path for path in sorted(SAMPLES.glob("*/*")) if not path.name.endswith(NO_LOG)]
    return {path: OTHERS.get(path.name, FOLDERS.get(path.parent.name, "")) for path in found}


@cache
def known_by() -> list[Connector]:
    """A connector of each format: those of this package, and those that others have registered."""
    return [connector(name) for name in names()]


def rated(path: Path) -> dict[str, float]:
    """How sure each format is of a file."""
    first = head(str(path))
    return {made.name: made.sniff(first, str(path)) for made in known_by()}


def copies(path: Path, folder: Path) -> list[Path]:
    """A file, and what its bytes may look like elsewhere."""
    renamed, packed = folder / "export.bin", folder / "2026-03-02.log.gz"
    content = path.read_bytes()
    renamed.write_bytes(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
    packed.write_bytes(gzip.compress(renamed.read_bytes(), 1))
    return [path, renamed, packed]


def logs_of(format: str) -> list[Path]:
    return [path for path, found in {**FORMAT_OF, **samples()}.items() if found == format]


@pytest.mark.parametrize("format", names())
def test_a_format_wins_each_of_its_logs_alone_also_renamed_and_gzipped(format: str, tmp_path: Path) -> None:
    logs = logs_of(format)
    assert logs or format == "parquet"
    for log in logs:
        for copy in copies(log, tmp_path):
            found = rated(copy)
            best = found.pop(format)
            assert best >= SURE, (log, copy)
            assert best > max(found.values()), (log, copy, found)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="there are no samples beside this repository")
def test_every_sample_is_of_a_format_or_lies_beside_a_log() -> None:
    assert {path.parent.name for path in SAMPLES.glob("*/*")} == {*FOLDERS}
    beside = [path for path in SAMPLES.glob("*/*") if path.name.endswith(NO_LOG)]
    assert beside
    for path in beside:
        found = {name: confidence for name, confidence in rated(path).items() if name not in MAPPED}
        assert max(found.values()) < SURE, path


@pytest.mark.parametrize(
    "content",
    [
        b"[2026-03-02 09:00:00] INFO: nothing of interest\n" * 50,
        b'{"time": "2026-03-02T09:00:00Z", "level": "info", "message": "nothing of interest"}\n' * 50,
        b'{"status": 200, "path": "/", "method": "GET", "duration": 12, "timestamp": "2026-03-02T09:00:00Z"}\n' * 50,
        b"lorem ipsum\n" * 50,
    ],
)
def test_no_format_is_sure_of_what_is_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    path.write_bytes(content)
    assert max(rated(path).values()) < SURE
