"""Results of `vllm bench serve --save-result --save-detailed`: one JSON object with a list for each figure.

vLLM, vllm/benchmarks/serve.py. Traps: `start_times` are of a monotonic clock, and are written since 2026 (pull request
32667); those of an older closed loop follow from its `max_concurrency`; a failed request stands in every list, with 0
where nothing was measured; `itls` are gaps between chunks, which may hold several tokens; --append-result writes one
object after another.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import msgspec

from connectors.base import Batch
from connectors.benchmarks import Served, batches, documents, number
from trace_schema.errors import BadInput

NEEDED = ("start_times", "input_lens", "output_lens", "ttfts")
MARKS = (b'"model_id"', b'"tokenizer_id"', b'"num_prompts"', b'"request_throughput"')

ENGINES = ("vllm", "sglang", "tensorrt-llm")
"""Backends that name an engine; others name a protocol."""


class Result(msgspec.Struct, gc=False):
    """One benchmark. Lists have an item for each request; one that is no number is named when its row is made."""

    model_id: str | None = None
    backend: str | None = None
    gpu: str | None = None
    """Not vLLM's own: from `--metadata gpu=...`, as are `tp` and `dtype`."""
    tp: Any = None
    dtype: str | None = None
    input_lens: list[Any] | None = None
    output_lens: list[Any] | None = None
    start_times: list[Any] | None = None
    """Seconds on the client's monotonic clock."""
    ttfts: list[Any] | None = None
    itls: list[msgspec.Raw] | None = None
    """Seconds between chunks of a response: lists, which may be long, and of which the sum is needed alone."""
    errors: list[Any] | None = None
    request_rate: Any = None
    """Requests a second, or "inf"."""
    max_concurrency: int | None = None


class VllmBench:
    name = "vllm_bench"
    describes = "Results of vllm bench serve --save-result --save-detailed, JSON: start, lengths, TTFT, gaps, errors"

    def sniff(self, head: bytes, path: str) -> float:
        if not head.lstrip().startswith(b"{"):
            return 0.0
        return sum(mark in head for mark in MARKS) / len(MARKS)

    def read(self, path: str) -> Iterator[Batch]:
        columns: dict[str, list[Any]] = {}
        for result in documents(path, Result):
            for name, values in self.columns(result, path).items():
                columns.setdefault(name, []).extend(values)
        count = len(columns["arrival_s"])
        if not count:
            raise BadInput.at(path, "holds no request")
        yield from batches(columns, count, source_format=self.name, path=path)

    def columns(self, result: Result, path: str) -> dict[str, list[Any]]:
        """Columns by ATTEMPTS name. Raises BadInput when a list is missing, or is not as long as the others."""
        closed = result.start_times is None and result.request_rate == "inf"
        missing = [name for name in NEEDED if getattr(result, name) is None and not (closed and name == "start_times")]
        if missing:
            advice = "run vllm bench serve with --save-result --save-detailed"
            if missing == ["start_times"]:
                advice = "vLLM writes it since 2026: run a later vLLM's benchmark, or --request-rate inf"
            raise BadInput.at(path, f"has no {' and '.join(missing)} of single requests; {advice}")
        lists: dict[str, list[Any]] = {name: getattr(result, name) for name in NEEDED}
        count = len(lists["input_lens"])
        if closed:
            lists["start_times"] = [0.0] * count
        lists["itls"] = result.itls if result.itls is not None else [msgspec.Raw(b"[]")] * count
        lists["errors"] = result.errors if result.errors is not None else [None] * count
        for name, values in lists.items():
            if len(values) != count:
                raise BadInput.at(path, f"has {count} input_lens and {len(values)} {name}: they must be equally many")
        failed = [bool(error) or n == 0 for error, n in zip(lists["errors"], lists["output_lens"], strict=True)]
        timed = [
            (None, None) if bad else timing(ttft, gaps, length)
            for bad, ttft, gaps, length in zip(failed, lists["ttfts"], lists["itls"], lists["output_lens"], strict=True)
        ]
        if closed:
            lists["start_times"] = closed_loop([e2e for _, e2e in timed], result.max_concurrency or count)
        return {
            "arrival_s": lists["start_times"] if closed else [start or None for start in lists["start_times"]],
            "prompt_tokens": lists["input_lens"],
            "output_tokens": [None if bad else n for bad, n in zip(failed, lists["output_lens"], strict=True)],
            "ttft_s": [ttft for ttft, _ in timed],
            "e2e_s": [e2e for _, e2e in timed],
            "status": ["error" if bad else "ok" for bad in failed],
            "stream": [ttft is not None for ttft, _ in timed],
            "model": [result.model_id] * count,
        }

    def served(self, path: str) -> Served:
        first = documents(path, Result)[0]
        tp = int(first.tp) if str(first.tp).isdecimal() else None
        engine = first.backend if first.backend in ENGINES else None
        return Served(model=first.model_id, gpu=first.gpu, tp=tp, dtype=first.dtype, engine=engine)


def closed_loop(e2e_s: list[float | None], concurrency: int) -> list[float]:
    """When each request was sent by a client that keeps `concurrency` of them open: when one before it ended."""
    open_until: list[float] = []
    starts = []
    for seconds in e2e_s:
        start = heapq.heappop(open_until) if len(open_until) >= max(concurrency, 1) else 0.0
        heapq.heappush(open_until, start + (seconds or 0.0))
        starts.append(start)
    return starts


def timing(ttft: Any, gaps: msgspec.Raw, output_tokens: Any) -> tuple[Any, float | None]:
    """(time to first token, end to end) of a request that ended well, in seconds.

    The gaps add up to what follows the first token. Several tokens without a gap came in one response that was not
    streamed: its "TTFT" is its end.
    """
    try:
        seconds = msgspec.json.decode(gaps, type=list[float])
    except msgspec.DecodeError:
        return ttft, None
    first = number(ttft)
    if first is None:
        return ttft, None
    if not seconds and (number(output_tokens) or 0) > 1:
        return None, first
    return first, first + sum(seconds)
