"""Traces of BLIS (inference-sim), version 2: a CSV with a YAML header beside it, observed, generated or replayed.

https://github.com/inference-sim/inference-sim, sim/workload/tracev2.go. Traps: 0 stands for unknown; columns come and
go with what the run knew; `arrival_time_us` is when a request was due and `send_time_us` when it was sent; in a prefix
group `input_tokens` leaves the prefix out, and the server's count holds it; a deadline is a time, not a duration.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from connectors.rows import as_floats
from connectors.text_columns import TextColumns

MICRO = 1e-6
ABORT = "abort"
NUMBERS = ("due_us", "sent_us", "first_us", "last_us", "deadline_us", "input", "server_input", "prefix", "output")


class BlisTraceV2(TextColumns):
    name = "blis_tracev2"
    describes = "BLIS (inference-sim) traces, version 2, CSV: times, lengths, prefix groups, deadlines, outcomes"
    needed: ClassVar = {
        "source_request_id": "request_id", "input": "input_tokens", "output": "output_tokens",
        "due_us": "arrival_time_us", "sent_us": "send_time_us", "status": "status",
    }  # fmt: skip
    optional: ClassVar = {
        "first_us": "first_chunk_time_us", "last_us": "last_chunk_time_us", "deadline_us": "deadline_us",
        "server_input": "server_input_tokens", "group": "prefix_group", "prefix": "prefix_length",
        "x_request_id": "x_request_id", "priority": "vllm_priority", "client": "client_id", "tenant": "tenant_id",
        "session_id": "session_id", "stream": "streaming", "model": "model", "finish": "finish_reason",
    }  # fmt: skip

    def columns(self, found: dict[str, pa.Array]) -> dict[str, pa.Array]:
        nothing = pa.nulls(len(found["status"]), pa.string())
        known = {name: as_floats(found.get(name, nothing)) for name in NUMBERS}
        text = {name: blank_is_null(found.get(name, nothing)) for name in ("group", "finish", "x_request_id")}
        sent = pc.coalesce(positive(known["sent_us"]), known["due_us"])
        group = pc.if_else(
            pc.greater(pc.fill_null(known["prefix"], 0.0), 0.0), text["group"], pa.scalar(None, pa.string())
        )
        columns = {name: found[name] for name in found if name not in (*NUMBERS, *text)}
        columns |= {
            "arrival_s": seconds(sent),
            "ttft_s": seconds(pc.subtract(positive(known["first_us"]), sent)),
            "e2e_s": seconds(pc.subtract(positive(known["last_us"]), sent)),
            "client_timeout_s": seconds(pc.subtract(positive(known["deadline_us"]), known["due_us"])),
            "prompt_tokens": prompt_tokens(known, group, found["input"]),
            "block_hashes": shared(group),
            "hash_block_tokens": pc.if_else(pc.is_valid(group), known["prefix"], pa.scalar(None, pa.float64())),
            "source_request_id": pc.coalesce(text["x_request_id"], found["source_request_id"]),
        }
        return columns | outcome(found["status"], text["finish"], found["output"])


def seconds(microseconds: pa.Array) -> pa.Array:
    return pc.multiply(microseconds, MICRO)


def positive(values: pa.Array) -> pa.Array:
    """0 is unknown."""
    return pc.if_else(pc.equal(values, 0.0), pa.scalar(None, values.type), values)


def blank_is_null(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def prompt_tokens(known: Mapping[str, pa.Array], group: pa.Array, logged: pa.Array) -> pa.Array:
    """The server's count; else what the client sent, which leaves a group's prefix out; what is no number as it is."""
    with_prefix = pc.add(known["input"], pc.if_else(pc.is_valid(group), known["prefix"], 0.0))
    return pc.coalesce(pc.coalesce(positive(known["server_input"]), with_prefix).cast(pa.string()), logged)


def shared(group: pa.Array) -> pa.Array:
    """A prompt's prefix as one block that is the same in its group; null where it has none."""
    hashes = [None if name is None else [numbered(name)] for name in group.to_pylist()]
    return pa.array(hashes, pa.list_(pa.uint64()))


def numbered(name: str) -> int:
    """64 bits for a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def outcome(status: pa.Array, finish: pa.Array, output: pa.Array) -> dict[str, pa.Array]:
    """How requests ended. What one that failed had of its output is a lower bound of it."""
    aborted = pc.fill_null(pc.equal(finish, ABORT), False)
    ended = pc.if_else(aborted, "cancelled", blank_is_null(status))
    whole = pc.fill_null(pc.equal(ended, "ok"), True)
    nothing = pa.scalar(None, output.type)
    return {
        "status": ended,
        "cancel_reason": pc.if_else(aborted, "engine_abort", pa.scalar(None, pa.string())),
        "output_tokens": pc.if_else(whole, output, nothing),
        "received_tokens": pc.if_else(whole, nothing, output),
    }
