"""Per-request timings of vLLM's engine, as LLMServingSim's `bench` records them: `requests.jsonl` with its `meta.json`.

https://github.com/casys-kaist/LLMServingSim, bench/. Trap: `arrival_time` is since 1970, the others of the engine's
monotonic clock; the shortest way from the one to `queued_ts` is taken as none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from connectors.base import Batch, Dropped
from connectors.benchmarks import Served, difference, number
from connectors.files import first_object, objects, reason_of
from connectors.rows import attempts_of
from trace_schema.errors import BadInput

MARKS = {"input_toks", "output_toks", "arrival_time", "queued_ts", "first_token_ts", "last_token_ts"}
KWARGS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")


class Line(msgspec.Struct, gc=False):
    """One request; `arrival_time` in seconds since 1970, `_ts` in seconds of the engine's clock."""

    arrival_time: Any = None
    input_toks: Any = None
    output_toks: Any = None
    request_id: str | None = None
    queued_ts: Any = None
    first_token_ts: Any = None
    last_token_ts: Any = None


class Cache(msgspec.Struct):
    num_gpu_blocks: int | None = None
    block_size: int | None = None
    enable_prefix_caching: bool | None = None


class Hardware(msgspec.Struct):
    device_name: str | None = None


class Meta(msgspec.Struct):
    """A meta.json."""

    model: str | None = None
    vllm_version: str | None = None
    engine_kwargs: dict[str, Any] = {}
    kv_cache: Cache | None = None
    hardware: Hardware | None = None


class LlmServingSim:
    name = "llmservingsim"
    describes = "LLMServingSim's recordings of vLLM, requests.jsonl: arrival, lengths, first and last token"

    def sniff(self, head: bytes, path: str) -> float:
        first = first_object(head) or {}
        return len(MARKS & first.keys()) / len(MARKS)

    def read(self, path: str) -> Iterator[Batch]:
        lines: list[Line] = []
        rows: list[int] = []
        dropped = Dropped()
        for found, numbers, unread in objects(path, msgspec.json.Decoder(Line), reason_of):
            lines += found
            rows += numbers
            dropped.merge(unread)
        lags = [lag for x in lines if (lag := difference(x.queued_ts, x.arrival_time)) is not None]
        offset = min(lags, default=0.0)
        sent = [None if (at := number(x.arrival_time)) is None else at + offset for x in lines]
        columns: dict[str, Any] = {
            "arrival_s": [x.arrival_time for x in lines],
            "prompt_tokens": [x.input_toks for x in lines],
            "output_tokens": [x.output_toks for x in lines],
            "source_request_id": [x.request_id for x in lines],
            "ttft_s": [difference(x.first_token_ts, at) for x, at in zip(lines, sent, strict=True)],
            "e2e_s": [difference(x.last_token_ts, at) for x, at in zip(lines, sent, strict=True)],
            "status": ["unknown" if x.last_token_ts is None else "ok" for x in lines],
        }
        yield attempts_of(
            columns, np.asarray(rows, np.int64), source_format=self.name, source_file=path, dropped=dropped
        )

    def served(self, path: str) -> Served:
        beside = Path(path).with_name(Path(path).name.replace("requests.jsonl", "meta.json"))
        if not beside.exists() or beside == Path(path):
            return Served()
        try:
            meta = msgspec.json.decode(beside.read_bytes(), type=Meta)
        except (OSError, msgspec.DecodeError) as error:
            raise BadInput.at(beside, f"is not the meta.json of a recording: {error}") from error
        settings = {key: meta.engine_kwargs[key] for key in KWARGS if meta.engine_kwargs.get(key) is not None}
        if meta.kv_cache is not None:
            known = {"num_blocks": meta.kv_cache.num_gpu_blocks, "block_size": meta.kv_cache.block_size,
                     "prefix_caching": meta.kv_cache.enable_prefix_caching}  # fmt: skip
            settings |= {key: value for key, value in known.items() if value is not None}
        return Served(
            model=meta.model,
            gpu=None if meta.hardware is None else meta.hardware.device_name,
            tp=meta.engine_kwargs.get("tensor_parallel_size"),
            dtype=meta.engine_kwargs.get("dtype"),
            engine=None if meta.vllm_version is None else f"vllm {meta.vllm_version}",
            settings=settings,
        )
