"""GuideLLM's JSON report: one object with benchmarks, each with lists of its requests.

https://github.com/vllm-project/guidellm, versions 0.2 to 0.8. Traps: requests stand in three lists by how they ended;
those that the benchmark's end cut short are `incomplete`; a report may keep a sample of the requests or none; field
names changed between versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from connectors.base import Batch
from connectors.benchmarks import Served, batches, difference, documents, first_known, number, scaled
from trace_schema.errors import BadInput

STATUS = {"successful": "ok", "incomplete": "cancelled", "errored": "error"}
MARKS = (b'"guidellm_version"', b"generative_benchmark", b'"guidellm"')


class Timings(msgspec.Struct, frozen=True, gc=False):
    """Seconds since 1970."""

    request_start: Any = None
    request_end: Any = None
    first_token_iteration: Any = None


class Info(msgspec.Struct, frozen=True, gc=False):
    timings: Timings = Timings()


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request; times are seconds since 1970. The second names are those of versions 0.2 and 0.3."""

    request_id: Any = None
    info: Info | None = None
    request_start_time: Any = None
    start_time: Any = None
    request_end_time: Any = None
    end_time: Any = None
    first_token_time: Any = None
    request_latency: Any = None
    prompt_tokens: Any = None
    output_tokens: Any = None
    cached_tokens: Any = None
    time_to_first_token_ms: Any = None


class Requests(msgspec.Struct, frozen=True, gc=False):
    successful: list[Request] | None = None
    incomplete: list[Request] | None = None
    errored: list[Request] | None = None


class Made(msgspec.Struct, frozen=True, gc=False):
    successful: int | None = None


class Scheduled(msgspec.Struct, frozen=True, gc=False):
    requests_made: Made = Made()


class Backend(msgspec.Struct, frozen=True, gc=False):
    model: str | None = None


class Config(msgspec.Struct, frozen=True, gc=False):
    backend: Backend = Backend()


class OneBenchmark(msgspec.Struct, frozen=True, gc=False):
    requests: Requests = Requests()
    scheduler_metrics: Scheduled = Scheduled()
    config: Config = Config()


class Report(msgspec.Struct, frozen=True, gc=False):
    benchmarks: list[OneBenchmark | None] = []


class GuideLlm:
    name = "guidellm"
    describes = "GuideLLM's JSON report: each benchmark's requests with start, lengths, TTFT, latency, how they ended"

    def sniff(self, head: bytes, path: str) -> float:
        if not head.lstrip().startswith(b"{") or b'"benchmarks"' not in head:
            return 0.0
        return 1.0 if any(mark in head for mark in MARKS) else 0.4

    def read(self, path: str) -> Iterator[Batch]:
        columns: dict[str, list[Any]] = {}
        for benchmark in self.benchmarks(path):
            self.refuse_sample(benchmark, path)
            for kind, status in STATUS.items():
                requests = getattr(benchmark.requests, kind) or []
                for name, values in self.columns(requests, status, benchmark.config.backend.model).items():
                    columns.setdefault(name, []).extend(values)
        count = len(columns.get("arrival_s", []))
        if not count:
            raise BadInput.at(
                path, "holds no single request, sums alone; let guidellm keep all requests in its JSON report"
            )
        yield from batches(columns, count, source_format=self.name, path=path)

    def benchmarks(self, path: str) -> list[OneBenchmark]:
        return [b for report in documents(path, Report) for b in report.benchmarks if b is not None]

    def refuse_sample(self, benchmark: OneBenchmark, path: str) -> None:
        """Raises BadInput when requests were left out: what is left is not the load that was measured."""
        kept, made = len(benchmark.requests.successful or []), benchmark.scheduler_metrics.requests_made.successful
        if made is not None and 0 < kept < made:
            raise BadInput.at(
                path, f"holds a sample: {kept} of {made} successful requests; let guidellm keep all (sample_size: null)"
            )

    def columns(self, requests: list[Request], status: str, model: str | None) -> dict[str, list[Any]]:
        """Columns by ATTEMPTS name."""
        whole, cut = status == "ok", status == "cancelled"
        starts = [start_of(x) for x in requests]
        return {
            "arrival_s": starts,
            "prompt_tokens": [x.prompt_tokens for x in requests],
            "output_tokens": [x.output_tokens if whole else None for x in requests],
            "received_tokens": [None if whole else x.output_tokens for x in requests],
            "cached_prompt_tokens": [x.cached_tokens for x in requests],
            "ttft_s": [ttft(x, start) for x, start in zip(requests, starts, strict=True)],
            "e2e_s": [
                first_known(x.request_latency, difference(end_of(x), start))
                for x, start in zip(requests, starts, strict=True)
            ],
            "status": [status] * len(requests),
            "cancel_reason": ["benchmark_end" if cut else None] * len(requests),
            "source_request_id": [None if x.request_id is None else str(x.request_id) for x in requests],
            "model": [model] * len(requests),
        }

    def served(self, path: str) -> Served:
        models = [b.config.backend.model for b in self.benchmarks(path) if b.config.backend.model]
        return Served(model=models[0] if models else None)


def timings(request: Request) -> Timings:
    return request.info.timings if request.info is not None else Timings()


def start_of(request: Request) -> Any:
    return first_known(request.request_start_time, request.start_time, timings(request).request_start)


def end_of(request: Request) -> Any:
    return first_known(request.request_end_time, request.end_time, timings(request).request_end)


def ttft(request: Request, start: Any) -> Any:
    """Seconds to the first token."""
    if number(request.time_to_first_token_ms) is not None:
        return scaled(request.time_to_first_token_ms, 1e-3)
    return difference(first_known(request.first_token_time, timings(request).first_token_iteration), start)
