"""Parts of the public traces themselves, and files of every other format: each is read by its connector alone."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from connectors.files import head
from connectors.registry import SURE, connector
from replay.engine.identity import block_keys
from replay.ingest import Trace, ingest
from trace_schema.errors import BadInput

FORMATS = ("azure_llm", "burstgpt", "mooncake")
FORMAT_OF = {"azure-llm-2023": "azure_llm", "azure-llm-2024": "azure_llm", "azure-lmm-2025": "azure_llm",
             "burstgpt": "burstgpt", "mooncake": "mooncake"}  # fmt: skip
"""By folder."""
ALSO = {"template_mooncake_precise_schedule.jsonl": "mooncake", "template_mooncake_production_trace.jsonl": "mooncake",
        "example_trace-replay_trace.csv": "azure_llm"}  # fmt: skip
"""Files that other tools ship in these formats."""


def emitted(trace: Trace) -> int:
    assert trace.report is not None
    (file,) = trace.report.files
    assert not file.dropped
    return file.rows_emitted


def test_each_sample_is_known_by_its_own_connector_alone(samples: Path) -> None:
    files = [path for path in sorted(samples.glob("*/*")) if path.is_file()]
    assert len(files) > 40
    for path in files:
        try:
            first = head(str(path))
        except BadInput:
            continue
        rated = {name: connector(name).sniff(first, str(path)) for name in FORMATS}
        sure = {name for name, confidence in rated.items() if confidence >= SURE}
        expected = ALSO.get(path.name, FORMAT_OF.get(path.parent.name))
        assert sure == ({expected} if expected else set()), (path, rated)


@pytest.mark.parametrize("folder", ["azure-llm-2023", "azure-llm-2024", "azure-lmm-2025", "burstgpt"])
def test_every_row_of_a_csv_sample_is_a_call_with_its_tokens(samples: Path, folder: str) -> None:
    for path in sorted((samples / folder).glob("*.csv")):
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        trace = ingest([str(path)])
        assert emitted(trace) == len(rows)
        for field, names in (
            ("prompt_tokens", ("ContextTokens", "Request tokens")),
            ("output_tokens", ("GeneratedTokens", "Response tokens")),
        ):
            logged = [int(row[name]) for row in rows for name in names if name in row]
            assert trace.calls[field].to_pylist() == logged


def test_the_azure_sample_holds_two_thousand_calls_of_fourteen_minutes(samples: Path) -> None:
    trace = ingest([str(samples / "azure-llm-2023" / "AzureLLMInferenceTrace_code.head2000.csv")])
    assert emitted(trace) == 2000
    assert trace.calls["arrival_s"].to_pylist()[:3] == [0.0, 0.052, 0.098189]


def test_the_conversation_trace_is_read_whole(samples: Path) -> None:
    path = samples / "mooncake" / "conversation_trace.jsonl"
    trace = ingest([str(path)])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert emitted(trace) == len(lines) == 12_031
    assert trace.calls["prompt_tokens"].to_pylist() == [line["input_length"] for line in lines]
    assert trace.calls["output_tokens"].to_pylist() == [line["output_length"] for line in lines]
    assert trace.calls["block_hashes"].to_pylist() == [line["hash_ids"] for line in lines]
    assert trace.report is not None
    assert trace.report.time_resolution_s == 3.0


@pytest.mark.parametrize("block_size", [16, 128, 512])
def test_the_engines_blocks_of_the_conversation_trace_hit_what_its_hashes_say(samples: Path, block_size: int) -> None:
    """37.34% of the prompt tokens, with a cache that forgets nothing: those of leading whole blocks seen before."""
    path = samples / "mooncake" / "conversation_trace.jsonl"
    calls = ingest([str(path)]).calls
    found = block_keys(calls, block_size)
    blocks = [found.keys[at : at + count].tolist() for at, count in zip(found.first, found.number, strict=True)]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    logged = [line["hash_ids"][: line["input_length"] // 512] for line in lines]
    hits = leading_seen(blocks) * block_size
    assert hits == leading_seen(logged) * 512
    assert hits / sum(line["input_length"] for line in lines) == pytest.approx(0.3734, abs=1e-4)


def leading_seen(lists: list[list[int]]) -> int:
    """Leading entries of each list that stand in a list before it."""
    seen: set[int] = set()
    count = 0
    for entries in lists:
        count += next((place for place, entry in enumerate(entries) if entry not in seen), len(entries))
        seen.update(entries)
    return count
