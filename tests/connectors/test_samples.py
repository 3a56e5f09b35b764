"""Logs of other people's tools, and parts of the public traces: each is read whole by its own format, or named.

The sums are those of the files' own numbers, added up without this package.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from connectors.base import Dropped
from connectors.files import head
from connectors.registry import SURE, connector, guess, names
from replay.engine.identity import block_keys
from replay.ingest import Trace, ingest
from trace_schema.errors import BadInput


class Read(NamedTuple):
    """What a file holds; None where it says nothing."""

    format: str
    rows: int
    attempts: int
    prompt_tokens: int | None = None
    output_tokens: int | None = None


READ = {
    "aiperf/GENERATED_aiperf0.13_profile_export.jsonl": Read("aiperf", 30, 30, 2171, 660),
    "aiperf/template_mooncake_precise_schedule.jsonl": Read("mooncake", 8, 8, 2800, 2056),
    "aiperf/template_mooncake_production_trace.jsonl": Read("mooncake", 10, 9, 6656, 1600),
    "azure-llm-2023/AzureLLMInferenceTrace_code.head2000.csv": Read("azure_llm", 2000, 2000, 3_973_157, 59_024),
    "azure-llm-2024/EXCERPT_code_1week_from_notebook.csv": Read("azure_llm", 5, 5, 14_683, 35),
    "azure-llm-2024/EXCERPT_conv_1week_from_notebook.csv": Read("azure_llm", 7, 7, 8996, 528),
    "azure-lmm-2025/EXCERPT_multimodal_from_notebook.csv": Read("azure_llm", 6, 6, 9049, 866),
    "blis-tracev2/TESTFIXTURE_trace.csv": Read("blis_tracev2", 3, 3, 30, 15),
    "burstgpt/EXCERPT_BurstGPT_1_first_rows.csv": Read("burstgpt", 3, 3, 1976, 524),
    "burstgpt/EXCERPT_BurstGPT_3_first_rows.csv": Read("burstgpt", 4, 4, 3656, 776),
    "dynamo-request-trace/TESTFIXTURE_request_trace_v1.jsonl": Read("dynamo_request_trace", 2, 2, 300, 30),
    "envoy-ai-gateway/docs_accesslog_example_1.json": Read("envoy_ai_gateway", 1, 1, 15, 7),
    "envoy-ai-gateway/docs_accesslog_example_2.json": Read("envoy_ai_gateway", 1, 0),
    "guidellm/GENERATED_guidellm0.8.1_benchmarks_mixed.json": Read("guidellm", 21, 21, 635, 640),
    "inference-perf/example_trace-replay_trace.csv": Read("azure_llm", 20, 20, 11_540, 1674),
    "langfuse/autogen-2025-06-06.json": Read("langfuse", 2, 1, 41, 3),
    "langfuse/google-vertex-tools-langchain-2025-09-19.json": Read("langfuse", 1, 1, 1200, 15),
    "langfuse/pydantic-ai-tools-2025-12-04.json": Read("langfuse", 12, 4, 1315, 209),
    "litellm/issue35958_real_spendlog_excerpt.json": Read("litellm", 1, 1, 45, 511),
    "litellm/spend_logs_payload.trimmed.json": Read("litellm", 1, 1, 10, 20),
    "litellm/standard_logging_payload.trimmed.json": Read("litellm", 1, 1, 10, 20),
    "llmservingsim-vllm-bench/RTX4090_Llama-3.1-8B_requests.jsonl": Read("llmservingsim", 300, 300, 257_239, 195_753),
    "llmservingsim-vllm-bench/RTXPRO6000_Qwen3-32B_requests.jsonl": Read("llmservingsim", 300, 300, 258_691, 199_486),
    "mooncake/conversation_trace.jsonl": Read("mooncake", 12_031, 12_031, 144_793_823, 4_122_048),
    "nginx/GENERATED_nginx1.22_llm_access.combined.log": Read("nginx", 18, 19),
    "nginx/GENERATED_nginx1.22_llm_access.json.log": Read("nginx", 18, 19),
    "openinference/openinference_client_span_input_output_only.json": Read("openinference", 1, 1, 97, 52),
    "openinference/openinference_client_span_tool_calls.json": Read("openinference", 1, 1, 97, 52),
    "openinference/otel_genai_client_span_tool_calls.json": Read("openinference", 1, 1, 97, 52),
    "openinference/otel_genai_deprecated_client_span_tool_calls.json": Read("openinference", 1, 1, 97, 52),
    "otel-genai-json/inference-perf_customer_support_escalation.json": Read("otlp", 9, 9),
    "otel-genai-json/inference-perf_parallel_requests.json": Read("otlp", 5, 5),
    "otel-genai-json/inference-perf_simple_chain.json": Read("otlp", 3, 3),
    "otlp-json/opentelemetry-proto_examples_trace.json": Read("otlp", 1, 0),
    "qwen-bailian/EXCERPT_rows.jsonl": Read("qwen_bailian", 1, 1, 502, 1494),
    "ragpulse/0_trace.head60.jsonl": Read("ragpulse", 60, 60, 183_037, 13_563),
    "sagemaker/DOCEXAMPLE_data_capture.jsonl": Read("sagemaker", 1, 1, 12, 8),
    "splitwise-sim/test_trace.csv": Read("splitwise", 3, 3, 8192, 56),
    "tracelab/multi_session_example.csv": Read("tracelab", 8, 8, 5308, 448),
    "tracelab/multi_session_large.csv": Read("tracelab", 303, 303, 1_150_397, 58_678),
    "tracelab/round_trace.jsonl": Read("tracelab", 19, 19, 514_012, 11_335),
    "tracelab/session_workload_example.csv": Read("tracelab", 11, 11, 535_277, 24_798),
    "vllm-server-log/GENERATED_vllm0.32_cancel.head900.log": Read("vllm_log", 262, 262, None, 7361),
}
SERVEGEN = {
    "servegen/language_m-large_chunk-0-trace.csv": 675_387,
    "servegen/language_m-large_chunk-101-trace.csv": 325_772,
    "servegen/multimodal_mm-image_chunk-9-trace.csv": 4099,
    "servegen/reason_deepseek-r1_chunk-2-trace.csv": 312,
    "servegen/reason_deepseek-r1_chunk-39-trace.csv": 997,
}
"""Requests that a client's rates make one expect."""
REFUSED = {
    "aiperf/GENERATED_aiperf0.13_profile_export_aiperf.csv": "sums alone; single requests are in profile_export.jsonl",
    "aiperf/GENERATED_aiperf0.13_profile_export_aiperf.json": "sums alone; single requests are in profile_export.jsonl",
    "blis-tracev2/TESTFIXTURE_trace.yaml": "is the header of a BLIS trace; its requests are in the CSV beside it",
    "guidellm/llm-d-benchmark_guidellm_report_v2.json": "holds no single request, sums alone; let guidellm keep all",
    **{
        f"inference-perf/kubecon-na-2025_vllm+batch_size_{name}_metrics.json": "sums alone; single requests are written"
        for name in ("stage_0_lifecycle", "stage_0_prometheus", "stage_6_lifecycle", "summary_lifecycle",
                     "summary_prometheus")
    },
    "llmservingsim-vllm-bench/RTX4090_Llama-3.1-8B_meta.json": "its requests are in the requests.jsonl beside it",
    "llmservingsim-vllm-bench/RTX4090_Llama-3.1-8B_timeseries.csv": "the requests are in the requests.jsonl beside it",
    "llmservingsim-vllm-bench/RTXPRO6000_Qwen3-32B_meta.json": "its requests are in the requests.jsonl beside it",
    "llmservingsim-vllm-bench/RTXPRO6000_Qwen3-32B_timeseries.csv": "the requests are in the requests.jsonl beside it",
    "nginx/GENERATED_nginx1.22_error.log": "is nginx's error log.*give its access log",
    "nginx/nginx.conf": "is a configuration of nginx; give the access log",
    "servegen/multimodal_mm-image_chunk-9-dataset.json": "its rates are in the chunk-N-trace.csv beside it: give that",
    "servegen/reason_deepseek-r1_chunk-2-dataset.json": "its rates are in the chunk-N-trace.csv beside it: give that",
    "servegen/reason_deepseek-r1_chunk-39-dataset.json": "its rates are in the chunk-N-trace.csv beside it: give that",
    "uvicorn-access/GENERATED_uvicorn0.54_access.log": "its lines have no time, so that they are no trace",
}  # fmt: skip
"""Files that hold no requests, or too little of them: what is said."""
NO_LENGTHS = [name for name, found in READ.items() if found.attempts and found.prompt_tokens is None]


def test_every_sample_is_read_or_refused(samples: Path) -> None:
    files = {str(path.relative_to(samples)) for path in samples.glob("*/*")}
    assert files == {*READ, *SERVEGEN, *REFUSED}


@pytest.mark.parametrize("name", READ)
def test_a_sample_has_as_many_rows_and_tokens_as_its_file(samples: Path, name: str) -> None:
    path = str(samples / name)
    reader, confidence = guess(head(path), path)
    assert confidence >= SURE
    batches = list(reader.read(path))
    attempts = pa.concat_tables([batch.attempts for batch in batches])
    rows = sum(batch.rows_read for batch in batches)
    tokens = [pc.sum(attempts[field]).as_py() for field in ("prompt_tokens", "output_tokens")]
    assert Read(reader.name, rows, attempts.num_rows, *tokens) == READ[name]
    dropped = Dropped()
    for batch in batches:
        dropped.merge(batch.dropped)
    assert len({*attempts["source_row"].to_pylist()}) + dropped.total == rows


@pytest.mark.parametrize("name", [*READ, *SERVEGEN, "uvicorn-access/GENERATED_uvicorn0.54_access.log"])
def test_a_sample_is_known_best_by_its_own_format_also_renamed_and_packed(
    samples: Path, tmp_path: Path, name: str
) -> None:
    expected = READ[name].format if name in READ else name.split("/")[0].removesuffix("-access")
    packed = tmp_path / "log.1"
    packed.write_bytes(gzip.compress((samples / name).read_bytes(), 1))
    for path in (str(samples / name), str(packed)):
        first = head(path)
        rated = {format: connector(format).sniff(first, path) for format in names()}
        assert {format for format in rated if rated[format] >= max(rated.values())} == {expected}
        assert rated[expected] >= SURE


@pytest.mark.parametrize("name", REFUSED)
def test_a_sample_without_requests_is_named_and_so_is_the_file_to_give(samples: Path, name: str) -> None:
    with pytest.raises(BadInput, match=REFUSED[name]) as refused:
        ingest([str(samples / name)])
    assert re.match(re.escape(f"{samples / name}: "), str(refused.value))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", NO_LENGTHS)
def test_a_sample_that_knows_no_lengths_says_what_would(samples: Path, name: str) -> None:
    with pytest.raises(
        BadInput, match=f"none of {READ[name].attempts} attempts says how long its prompt was; read them"
    ):
        ingest([str(samples / name)])


@pytest.mark.parametrize("name", SERVEGEN)
def test_a_client_of_servegen_sends_as_many_requests_as_its_rates_say(samples: Path, name: str) -> None:
    beside = samples / name.replace("trace.csv", "dataset.json")
    laws = {} if beside.exists() else {"prompt_tokens": 100, "output_tokens": 10}
    trace = ingest([str(samples / name)], options={"seed": 1, **laws})
    assert trace.calls.num_rows == pytest.approx(SERVEGEN[name], rel=0.15)


def test_a_servegen_client_without_its_lengths_says_where_they_are(samples: Path) -> None:
    with pytest.raises(BadInput, match="its lengths are in a chunk-N-dataset"):
        ingest([str(samples / "servegen" / "language_m-large_chunk-0-trace.csv")])


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


LOGGED: dict[str, Callable[[Path], tuple[list[int], list[int]]]] = {
    "azure_llm": lambda path: columns(rows(path), "ContextTokens", "GeneratedTokens"),
    "burstgpt": lambda path: columns(rows(path), "Request tokens", "Response tokens"),
    "splitwise": lambda path: columns(rows(path), "prompt_size", "token_size"),
    "blis_tracev2": lambda path: columns(rows(path), "server_input_tokens", "output_tokens"),
    "ragpulse": lambda path: columns(lines(path), "input_length", "output_length"),
    "qwen_bailian": lambda path: columns(lines(path), "input_length", "output_length"),
    "llmservingsim": lambda path: columns(lines(path), "input_toks", "output_toks"),
}


def columns(found: list[Any], prompt: str, output: str) -> tuple[list[int], list[int]]:
    return [int(row[prompt]) for row in found], [int(row[output]) for row in found]


@pytest.mark.parametrize("name", [name for name in READ if READ[name].format in LOGGED])
def test_every_row_of_a_sample_is_a_call_with_its_tokens(samples: Path, name: str) -> None:
    calls = ingest([str(samples / name)]).calls
    prompts, outputs = LOGGED[READ[name].format](samples / name)
    assert sorted(zip(calls["prompt_tokens"].to_pylist(), calls["output_tokens"].to_pylist(), strict=True)) == sorted(
        zip(prompts, outputs, strict=True)
    )


def test_tracelab_rounds_have_the_tokens_of_their_prefix_and_their_input(samples: Path) -> None:
    path = samples / "tracelab" / "multi_session_large.csv"
    calls = ingest([str(path)]).calls
    logged = [int(row["prefix_len"]) + int(row["input_len"]) for row in rows(path)]
    assert sorted(calls["prompt_tokens"].to_pylist()) == sorted(logged)
    assert len({*calls["session_id"].to_pylist()}) == 48
    shared = block_keys(calls, 512)
    found = [shared.keys[at : at + count].tolist() for at, count in zip(shared.first, shared.number, strict=True)]
    reused = sum(int(row["prefix_len"]) // 512 for row in rows(path))
    assert leading_seen(found) <= reused
    assert leading_seen(found) > 0.9 * reused
    first = [row for row in rows(path) if row["round_idx"] == "0"]
    starts = sorted(int(row["arrival_time"]) / 1e3 for row in first)
    sessions: dict[str, float] = {}
    for session, arrival in zip(calls["session_id"].to_pylist(), calls["arrival_s"].to_pylist(), strict=True):
        sessions.setdefault(session, arrival)
    assert sorted(sessions.values()) == pytest.approx(starts)


def emitted(trace: Trace) -> int:
    assert trace.report is not None
    (file,) = trace.report.files
    assert not file.dropped
    return file.rows_emitted


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
