"""Results of benchmark tools as traces: their traps, and files that are not as they should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors.benchmarks import Benchmark, Served
from connectors.benchmarks.llmservingsim import LlmServingSim
from connectors.benchmarks.vllm_bench import VllmBench
from connectors.files import head
from connectors.registry import connector, guess
from replay.ingest import ingest
from tests.calibrate.loads import WRITERS, Request, aiperf, guidellm, inference_perf, vllm_bench
from trace_schema.errors import BadInput


def request(start: float, output: int = 10) -> Request:
    return {"start": start, "prompt": 100, "output": output, "ttft": 0.2, "decoding": 0.9}


THREE = [request(0.0), request(1.0), request(2.5)]


def rows(path: str | Path) -> list[dict[str, Any]]:
    """The attempts of a file, by its own format."""
    reader, confidence = guess(head(str(path)), str(path))
    assert confidence > 0.5
    return list(pa.concat_tables([batch.attempts for batch in reader.read(str(path))]).to_pylist())


def edited(path: str, edit: Any) -> Path:
    """A JSON file after `edit` has changed its content."""
    content = json.loads(Path(path).read_text())
    edit(content)
    Path(path).write_text(json.dumps(content))
    return Path(path)


@pytest.mark.parametrize("name", list(WRITERS))
def test_each_format_is_known_and_becomes_a_trace(name: str, tmp_path: Path) -> None:
    path = WRITERS[name](THREE, tmp_path / "x.requests.jsonl")
    trace = ingest([path])
    assert trace.report is not None
    assert trace.report.files[0].format == name
    assert trace.calls["arrival_s"].to_pylist() == pytest.approx([0.0, 1.0, 2.5], abs=1e-6)
    assert trace.calls["observed_e2e_s"].to_pylist() == pytest.approx([1.1] * 3, abs=1e-6)
    assert isinstance(connector(name), Benchmark)


def test_a_request_that_failed_in_vllm_bench_has_no_times(tmp_path: Path) -> None:
    def fail(result: dict[str, Any]) -> None:
        result["errors"][1], result["ttfts"][1], result["itls"][1], result["output_lens"][1] = "boom", 0.0, [], 0

    found = rows(edited(vllm_bench(THREE, tmp_path / "x.json"), fail))
    assert [row["status"] for row in found] == ["ok", "error", "ok"]
    assert (found[1]["ttft_s"], found[1]["e2e_s"], found[1]["output_tokens"]) == (None, None, None)


def test_a_response_that_was_not_streamed_has_no_first_token(tmp_path: Path) -> None:
    def join(result: dict[str, Any]) -> None:
        result["itls"], result["ttfts"] = [[], [], []], [1.1, 1.1, 1.1]

    found = rows(edited(vllm_bench(THREE, tmp_path / "x.json"), join))
    assert [(row["ttft_s"], row["e2e_s"], row["stream"]) for row in found] == [(None, 1.1, False)] * 3


def test_the_starts_of_an_older_closed_loop_follow_from_its_concurrency(tmp_path: Path) -> None:
    """Of three requests of 1.1 s, two at a time, the third is sent when the first ends."""
    path = vllm_bench(THREE, tmp_path / "x.json", start_times=None, max_concurrency=2)
    assert [row["arrival_s"] for row in rows(path)] == pytest.approx([0.0, 0.0, 1.1])
    path = vllm_bench(THREE, tmp_path / "x.json", start_times=None, max_concurrency=None)
    assert [row["arrival_s"] for row in rows(path)] == [0.0, 0.0, 0.0]


def test_results_that_were_appended_are_read_one_after_the_other(tmp_path: Path) -> None:
    first, second = (Path(vllm_bench(THREE, tmp_path / name)) for name in ("a.json", "b.json"))
    first.write_text(first.read_text() + "\n" + second.read_text())
    assert [row["source_row"] for row in rows(first)] == [1, 2, 3, 4, 5, 6]
    first.write_text(json.dumps(json.loads(second.read_text()), indent=1) + "\n" + second.read_text())
    assert len(rows(first)) == 6


def test_nan_is_unknown(tmp_path: Path) -> None:
    path = Path(vllm_bench(THREE, tmp_path / "x.json", std_ttft_ms=float("nan")))
    assert len(rows(path)) == 3
    edited(str(path), lambda result: result["ttfts"].__setitem__(0, float("nan")))
    assert rows(path)[0]["ttft_s"] is None


def test_what_the_benchmarks_end_cut_short_is_cancelled_with_what_it_had(tmp_path: Path) -> None:
    def cut(report: dict[str, Any]) -> None:
        requests = report["benchmarks"][0]["requests"]
        requests["incomplete"] = [requests["successful"].pop()]
        requests["incomplete"][0]["request_latency"] = None
        report["benchmarks"][0]["scheduler_metrics"]["requests_made"]["successful"] = 2

    last = rows(edited(guidellm(THREE, tmp_path / "x.json"), cut))[-1]
    assert (last["status"], last["cancel_reason"], last["received_tokens"]) == ("cancelled", "benchmark_end", 10)
    assert last["output_tokens"] is None
    assert last["e2e_s"] == pytest.approx(1.1, abs=1e-6)


def test_names_of_older_guidellm_reports_are_known(tmp_path: Path) -> None:
    def rename(report: dict[str, Any]) -> None:
        for found in report["benchmarks"][0]["requests"]["successful"]:
            found["start_time"], found["end_time"] = found.pop("request_start_time"), found.pop("request_end_time")
            found["first_token_time"] = found["start_time"] + found.pop("time_to_first_token_ms") / 1e3
            del found["info"]

    found = rows(edited(guidellm(THREE, tmp_path / "x.json"), rename))
    assert [row["ttft_s"] for row in found] == pytest.approx([0.2] * 3, abs=1e-6)


def test_a_sample_of_a_guidellm_run_is_refused(tmp_path: Path) -> None:
    def sample(report: dict[str, Any]) -> None:
        report["benchmarks"][0]["scheduler_metrics"]["requests_made"]["successful"] = 5000

    with pytest.raises(BadInput, match="holds a sample: 3 of 5000"):
        rows(edited(guidellm(THREE, tmp_path / "x.json"), sample))


def test_a_request_that_aiperf_cancelled_has_its_length_and_end(tmp_path: Path) -> None:
    path = Path(aiperf(THREE, tmp_path / "x.jsonl"))
    metadata = {"request_start_ns": 1_796_005_372 * 10**9, "request_end_ns": 1_796_005_372 * 10**9 + 3 * 10**8,
                "was_cancelled": True}  # fmt: skip
    line = {"metadata": metadata, "metrics": {"error_isl": {"value": 120, "unit": "tokens"}},
            "error": {"code": 499, "type": "RequestCancellationError"}}  # fmt: skip
    path.write_text(path.read_text() + json.dumps(line) + "\n")
    last = rows(path)[-1]
    assert (last["status"], last["prompt_tokens"], last["output_tokens"], last["http_status"]) == (
        "cancelled", 120, None, 499,
    )  # fmt: skip
    assert last["e2e_s"] == pytest.approx(0.3, abs=1e-6)


def test_aiperf_metrics_are_in_their_own_units(tmp_path: Path) -> None:
    path = Path(aiperf(THREE, tmp_path / "x.jsonl"))
    path.write_text(path.read_text().replace('"unit": "ms"', '"unit": "us"'))
    assert rows(path)[0]["ttft_s"] == pytest.approx(2e-4)
    path.write_text(path.read_text().replace('"unit": "us"', '"unit": "furlongs"'))
    reader = guess(head(str(path)), str(path))[0]
    assert sum(batch.dropped.total for batch in reader.read(str(path))) == 3


def test_inference_perf_counts_of_the_server_come_first(tmp_path: Path) -> None:
    def nest(found: list[dict[str, Any]]) -> None:
        for row in found:
            usage = {"prompt_tokens": 104, "completion_tokens": 11}
            metrics = {"output_tokens": 7, "output_token_times": row["info"]["output_token_times"]}
            row["info"] = {"input_tokens": 100, "response_metrics": metrics | {"server_usage": usage}}
        found[2]["error"] = {"error_type": "TimeoutError", "error_msg": ""}

    found = rows(edited(inference_perf(THREE, tmp_path / "x.json"), nest))
    assert [(row["prompt_tokens"], row["output_tokens"]) for row in found] == [(104, 11), (104, 11), (104, None)]
    assert [row["status"] for row in found] == ["ok", "ok", "timeout"]


def test_a_recordings_meta_file_says_its_engine(tmp_path: Path) -> None:
    path = WRITERS["llmservingsim"](THREE, tmp_path / "run_requests.jsonl")
    assert LlmServingSim().served(path) == Served()
    meta = {"model": "m/M-8B", "vllm_version": "0.19.0", "hardware": {"device_name": "NVIDIA H100"},
            "engine_kwargs": {"tensor_parallel_size": 2, "max_num_seqs": 64, "max_model_len": None},
            "kv_cache": {"num_gpu_blocks": 99, "block_size": 16, "enable_prefix_caching": False}}  # fmt: skip
    (tmp_path / "run_meta.json").write_text(json.dumps(meta))
    said = LlmServingSim().served(path)
    assert (said.model, said.gpu, said.tp, said.engine) == ("m/M-8B", "NVIDIA H100", 2, "vllm 0.19.0")
    assert said.settings == {"max_num_seqs": 64, "num_blocks": 99, "block_size": 16, "prefix_caching": False}
    (tmp_path / "run_meta.json").write_text("{")
    with pytest.raises(BadInput, match=r"run_meta.json: is not the meta.json"):
        LlmServingSim().served(path)


DOCUMENTS = {"vllm_bench": vllm_bench, "guidellm": guidellm, "inference_perf": inference_perf}


@pytest.mark.parametrize("name", list(DOCUMENTS))
@pytest.mark.parametrize("share", [0.2, 0.6, 0.99])
def test_a_document_that_is_cut_short_is_refused(name: str, share: float, tmp_path: Path) -> None:
    path = Path(DOCUMENTS[name](THREE, tmp_path / "x.json"))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(BadInput, match="not whole JSON"):
        ingest([str(path)], format=name)


@pytest.mark.parametrize("name", list(WRITERS))
@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"[[[", b'{"benchmarks": 3}', b"\x00\xff", b"null", b"[1]"])
def test_what_is_no_benchmark_gets_one_sentence(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(BadInput):
        ingest([str(path)], format=name)


def test_a_value_of_another_type_drops_its_row(tmp_path: Path) -> None:
    def spoil(result: dict[str, Any]) -> None:
        result["input_lens"][0], result["start_times"][1] = "many", -5

    path = edited(vllm_bench(THREE, tmp_path / "x.json"), spoil)
    batch = next(VllmBench().read(str(path)))
    assert (batch.attempts.num_rows, batch.rows_read) == (1, 3)
    assert set(batch.dropped.reasons) == {"prompt_tokens is not a number", "arrival_s is negative, or before 1970"}


SUMS = {
    "aiperf/GENERATED_aiperf0.13_profile_export_aiperf.json": "profile_export.jsonl",
    "guidellm/llm-d-benchmark_guidellm_report_v2.json": "holds no single request",
    "inference-perf/kubecon-na-2025_vllm+batch_size_stage_0_lifecycle_metrics.json": "per_request: true",
}


@pytest.mark.parametrize("file", list(SUMS))
def test_summaries_are_told_from_results(file: str, samples: Path) -> None:
    with pytest.raises(BadInput, match=SUMS[file]):
        ingest([str(samples / file)])


def test_files_of_the_tools_themselves_are_read(samples: Path) -> None:
    found = rows(samples / "aiperf" / "GENERATED_aiperf0.13_profile_export.jsonl")
    assert sum(row["status"] == "cancelled" for row in found) == 8
    assert {row["output_tokens"] for row in found if row["status"] == "ok"} == {30}
    found = rows(samples / "guidellm" / "GENERATED_guidellm0.8.1_benchmarks_mixed.json")
    assert [row["status"] for row in found] == ["ok"] * 16 + ["cancelled"] * 5
    recorded = rows(samples / "llmservingsim-vllm-bench" / "RTX4090_Llama-3.1-8B_requests.jsonl")
    assert len(recorded) == 300
    assert min(row["ttft_s"] for row in recorded) > 0
