"""Files that lie beside logs and are none: what each is, and which file to give instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from connectors.delimited import names_in
from connectors.files import first_object

Check = Callable[[bytes, dict[str, Any]], object]
"""Whether a file is one, from its first bytes and the first JSON object in them (empty if there is none)."""


def begins(*starts: bytes) -> Check:
    return lambda head, _: head.lstrip().startswith(starts)


def looks_like(pattern: bytes) -> Check:
    found = re.compile(pattern, re.MULTILINE)
    return lambda head, _: found.search(head[:65536])


def has_keys(*keys: str) -> Check:
    return lambda _, first: set(keys) <= first.keys()


def has_columns(*columns: str) -> Check:
    return lambda head, _: set(columns) <= set(names_in(head))


def is_servegen_dataset(head: bytes, first: dict[str, Any]) -> bool:
    """An object of spans, each an object of Python dicts in texts; large ones are known by how they begin."""
    spans = [span for start, span in first.items() if start.isdigit() and isinstance(span, dict)]
    return any("output_tokens" in span for span in spans) or bool(SERVEGEN_DATASET.match(head))


SERVEGEN_DATASET = re.compile(rb'\s*\{\s*"\d+":\s*\{\s*"(input|text)_tokens":\s*"\{')
BYSTANDERS: tuple[tuple[str, Check], ...] = (
    ("is a Git LFS pointer, which stands for the file: fetch that with git lfs pull, or by its download link",
     begins(b"version https://git-lfs.github.com/spec/")),
    ("is a web page, not the file that it shows: download the raw file",
     begins(b"<!DOCTYPE html", b"<!doctype html", b"<html")),
    ("is a ZIP archive: unpack it", begins(b"PK\x03\x04")),
    ("is compressed with bzip2 or xz: unpack it, or use gzip or zstd", begins(b"BZh", b"\xfd7zXZ\x00")),
    ("is a tar archive: unpack it", lambda head, _: head[257:262] == b"ustar"),
    ("holds the lengths of a ServeGen client; its rates are in the chunk-N-trace.csv beside it: give that",
     is_servegen_dataset),
    ("is what LLMServingSim notes of a recording's engine; its requests are in the requests.jsonl beside it",
     has_keys("engine_kwargs", "vllm_version")),
    ("is an engine's load every second, as LLMServingSim records it; the requests are in the requests.jsonl beside it",
     has_columns("t", "prompt_throughput", "gen_throughput", "running", "waiting")),
    ("is AIPerf's summary, and holds sums alone; single requests are in profile_export.jsonl beside it",
     has_columns("Metric", "avg", "min", "max", "sum", "p50")),
    ("is the header of a BLIS trace; its requests are in the CSV beside it", looks_like(rb"^trace_version: *\d")),
    ("is a batch job's requests, which have no times: nothing says when each arrived",
     lambda _, first: {"request_id", "type", "input_length"} <= first.keys() and "timestamp" not in first),
    ("holds metrics as Prometheus reads them, sums alone; give an access log or the engine's own log",
     looks_like(rb"\A# (HELP|TYPE) \S+ ")),
    ("is nginx's error log, which has no lengths and only what went wrong; give its access log",
     looks_like(rb"\A\s*\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[\w+\] \d+#\d+: ")),
    ("is a configuration of nginx; give the access log that it writes",
     looks_like(rb"^\s*(log_format|access_log|proxy_pass)\s")),
    ("is an engine's profile: it is for --profile", has_keys("engine", "step_time", "name")),
)  # fmt: skip
"""(what it is or holds, whether a file is one), the first that fits."""


def known_as(head: bytes) -> str | None:
    """What a file that begins with `head` is or holds, where it is known to be no log."""
    first = first_object(head) or {}
    return next((what for what, is_one in BYSTANDERS if is_one(head, first)), None)
