"""inference-perf's `per_request_lifecycle_metrics.json`: a JSON array with an object for each request.

https://github.com/kubernetes-sigs/inference-perf, with `report.request_lifecycle.per_request: true`. Traps: times are
of a monotonic clock; output lengths are of text that the client tokenized again, which undercounts, unless the server's
own usage is there or the request ignored the end of text and so has its full length; newer versions nest the metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from connectors.base import Batch
from connectors.benchmarks import Served, batches, difference, documents, first_known
from connectors.files import UNDECODABLE
from trace_schema.errors import BadInput


class Usage(msgspec.Struct, gc=False):
    prompt_tokens: Any = None
    completion_tokens: Any = None


class Response(msgspec.Struct, gc=False):
    output_tokens: Any = None
    output_token_times: list[Any] | None = None
    chunk_times: list[Any] | None = None
    server_usage: Usage | None = None


class Info(msgspec.Struct, gc=False):
    """Older versions have at the top what newer ones have in `response_metrics`."""

    input_tokens: Any = None
    output_tokens: Any = None
    output_token_times: list[Any] | None = None
    response_metrics: Response | None = None

    @property
    def response(self) -> Response:
        own = Response(output_tokens=self.output_tokens, output_token_times=self.output_token_times)
        return own if self.response_metrics is None else self.response_metrics


class Error(msgspec.Struct, gc=False):
    error_type: str = ""


class Row(msgspec.Struct, gc=False):
    """One request; times are seconds on a monotonic clock."""

    start_time: Any = None
    end_time: Any = None
    request: Any = None
    info: Info | None = None
    error: Error | None = None


class Asked(msgspec.Struct, gc=False):
    """What a request's body says."""

    model: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    ignore_eos: bool = False

    @property
    def most(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class InferencePerf:
    name = "inference_perf"
    describes = "inference-perf's per_request_lifecycle_metrics.json: start, lengths, token times, errors"

    def sniff(self, head: bytes, path: str) -> float:
        start = head.lstrip()
        if start.startswith(b"[") and b'"start_time"' in head and b'"end_time"' in head:
            return 1.0 if b'"info"' in head else 0.6
        return 0.9 if start.startswith(b"{") and b'"load_summary"' in head and b'"successes"' in head else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        rows = self.rows(path)
        columns = self.columns(rows)
        yield from batches(columns, len(rows), source_format=self.name, path=path)

    def rows(self, path: str) -> list[Row]:
        """All requests. Raises BadInput, also when there are none."""
        kind: Any = list[Row] | dict[str, msgspec.Raw]
        found: list[Row] | dict[str, msgspec.Raw] = documents(path, kind)[0]
        if isinstance(found, dict):
            raise BadInput.at(
                path, "holds sums alone; single requests are written with report.request_lifecycle.per_request: true"
            )
        if not found:
            raise BadInput.at(path, "holds no request")
        return found

    def columns(self, rows: list[Row]) -> dict[str, list[Any]]:
        """Columns by ATTEMPTS name."""
        info = [row.info or Info() for row in rows]
        asked = [asked_of(row.request) for row in rows]
        status = [status_of(row) for row in rows]
        outputs = [output_tokens(i.response, a) for i, a in zip(info, asked, strict=True)]
        whole = [s == "ok" for s in status]
        return {
            "arrival_s": [row.start_time for row in rows],
            "prompt_tokens": [
                first_known((i.response.server_usage or Usage()).prompt_tokens, i.input_tokens) for i in info
            ],
            "output_tokens": [n if ok else None for n, ok in zip(outputs, whole, strict=True)],
            "max_tokens": [a.most for a in asked],
            "ttft_s": [difference(first_time(i.response), row.start_time) for i, row in zip(info, rows, strict=True)],
            "e2e_s": [difference(row.end_time, row.start_time) for row in rows],
            "status": status,
            "cancel_reason": ["benchmark_end" if s == "cancelled" else None for s in status],
            "model": [a.model for a in asked],
        }

    def served(self, path: str) -> Served:
        models = [asked.model for asked in (asked_of(row.request) for row in self.rows(path)) if asked.model]
        return Served(model=models[0] if models else None)


def asked_of(request: Any) -> Asked:
    """A request's body, which is kept as JSON text."""
    try:
        return msgspec.json.decode(request, type=Asked) if isinstance(request, str) else Asked()
    except UNDECODABLE:
        return Asked()


def status_of(row: Row) -> str:
    if row.error is None:
        return "ok"
    kind = row.error.error_type.lower()
    return "timeout" if "timeout" in kind else "cancelled" if "cancel" in kind else "error"


def output_tokens(response: Response, asked: Asked) -> Any:
    """The server's count; else the limit where the end of text was ignored; else the client's."""
    counted = (response.server_usage or Usage()).completion_tokens
    return first_known(counted, asked.most if asked.ignore_eos else None, response.output_tokens)


def first_time(response: Response) -> Any:
    """When the first token came, where the response was streamed."""
    seen = response.output_token_times or response.chunk_times
    return seen[0] if seen else None
