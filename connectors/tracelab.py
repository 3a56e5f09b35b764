"""TraceLab's coding-agent sessions: rounds as they were recorded (`round_trace.jsonl`), or planned for a replay (CSV).

https://github.com/uw-syfi/TraceLab. Traps: a round's times are those of its events, of which a response's are logged
when each is complete, so that the first token is nowhere; the CSV has a time for a session's start alone, in
milliseconds, or none, and its sessions are called `session_id` or `id`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from connectors.base import Batch, Dropped
from connectors.delimited import layout_of, names_in
from connectors.files import first_object, head, objects, reason_of
from connectors.prefixes import Contexts, lists_of
from connectors.rows import as_floats, attempts_of
from connectors.sessions import Pace, Turns
from connectors.text_columns import TextColumns
from trace_schema.errors import BadInput

MARKS = {"session_id", "round_index", "input_tokens_total", "timing_events"}
COLUMNS = {
    "prefix": "prefix_len", "input": "input_len", "output_tokens": "output_len", "wait": "tool_wait_after_ms",
    "round": "round_idx",
}  # fmt: skip
SESSIONS = ("session_id", "id")
INPUTS = ("user_message", "tool_result")
OUTPUTS = ("reasoning", "text", "tool_call")
NUMBERS = ("start", "prefix", "input", "output_tokens", "wait")
MILLI = 1e-3
fromisoformat = datetime.fromisoformat


class Event(msgspec.Struct, gc=False):
    event_type: str = ""
    timestamp: str | None = None


class Round(msgspec.Struct, gc=False):
    """One invocation of a model."""

    session_id: str | None = None
    round_id: str | None = None
    user: str | None = None
    provider: str | None = None
    model: str | None = None
    input_tokens_total: float | None = None
    prefix_tokens: float | None = None
    """Of the input, those that were in the provider's cache."""
    output_tokens: float | None = None
    timing_events: list[Event] = []


class TraceLab:
    class Options(Pace, frozen=True, kw_only=True):
        """What the CSV does not say."""

        hash_block_tokens: Annotated[int, Meta(ge=16, le=2**31 - 1)] = 512
        """Tokens in the blocks that a session's rounds are found to share."""

    name = "tracelab"
    describes = "TraceLab's coding-agent sessions, round_trace.jsonl or its CSV: times, lengths, rounds, prefixes"

    def __init__(self, options: Options) -> None:
        self.options = options

    def sniff(self, head: bytes, path: str) -> float:
        names = set(names_in(head))
        if set(COLUMNS.values()) <= names:
            return 1.0 if names & set(SESSIONS) else 0.4
        return 1.0 if (first_object(head) or {}).keys() >= MARKS else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        if names_in(head(path)):
            yield from self.planned(path).read(path)
            return
        for found, rows, dropped in objects(path, msgspec.json.Decoder(Round), reason_of):
            yield self.attempts(found, rows, path, dropped)

    def planned(self, path: str) -> Planned:
        names = layout_of(path).names
        return Planned(self.options, session_column=next(filter(names.count, SESSIONS), SESSIONS[0]))

    def attempts(self, rounds: list[Round], rows: list[int], path: str, dropped: Dropped) -> Batch:
        times = [begin_and_end(one.timing_events) for one in rounds]
        columns: dict[str, Any] = {
            "arrival_s": [begin for begin, _ in times],
            "e2e_s": [seconds_between(begin, end) for begin, end in times],
            "prompt_tokens": [one.input_tokens_total for one in rounds],
            "output_tokens": [one.output_tokens for one in rounds],
            "cached_prompt_tokens": [one.prefix_tokens for one in rounds],
            "source_request_id": [one.round_id for one in rounds],
            "session_id": [one.session_id for one in rounds],
            "tenant": [one.user for one in rounds],
            "client": [one.provider for one in rounds],
            "model": [one.model for one in rounds],
            "status": ["unknown" if end is None else "ok" for _, end in times],
        }
        return attempts_of(
            columns, np.asarray(rows, np.int64), source_format=self.name, source_file=path, dropped=dropped
        )


def begin_and_end(events: list[Event]) -> tuple[str | None, str | None]:
    """When a round's input was complete, and when the last part of its response was."""
    outputs = [place for place, event in enumerate(events) if event.event_type in OUTPUTS]
    before = events[: outputs[0]] if outputs else events
    inputs = [event for event in before if event.event_type in INPUTS] or events[:1]
    return inputs[-1].timestamp if inputs else None, events[outputs[-1]].timestamp if outputs else None


def seconds_between(begin: str | None, end: str | None) -> float | None:
    """From one ISO 8601 time to another, None where one is missing or none."""
    try:
        return None if begin is None or end is None else (fromisoformat(end) - fromisoformat(begin)).total_seconds()
    except (ValueError, TypeError):
        return None


class Planned(TextColumns):
    """One reading of a CSV of rounds that are sent when the response before has come and a tool has run."""

    name = TraceLab.name
    needed: ClassVar = COLUMNS
    optional: ClassVar = {"start": "arrival_time"}

    def __init__(self, options: TraceLab.Options, *, session_column: str) -> None:
        super().__init__()
        self.session_column = session_column
        self.options = options
        self.turns = Turns(options)
        self.contexts = Contexts(options.hash_block_tokens)

    def sources(self, columns: list[str], path: str) -> dict[str, str]:
        found = super().sources(columns, path)
        if columns.count(self.session_column) != 1:
            raise BadInput.at(path, f"is no {self.name} log: one column must be called {self.session_column!r}")
        return {**found, "session_id": self.session_column}

    def columns(self, found: dict[str, pa.Array]) -> dict[str, Any]:
        nothing = pa.nulls(len(found["session_id"]), pa.string())
        known = {key: as_floats(found.get(key, nothing)) for key in NUMBERS}
        prompt = pc.add(known["prefix"], known["input"])
        sessions = found["session_id"].to_pylist()
        rounds = [
            self.one(*values)
            for values in zip(sessions, *(known[key].to_pylist() for key in known), prompt.to_pylist(), strict=True)
        ]
        hashes = lists_of([blocks for _, blocks in rounds])
        size = self.options.hash_block_tokens
        return {
            "arrival_s": pa.array([arrival for arrival, _ in rounds], pa.float64()),
            "prompt_tokens": pc.coalesce(prompt.cast(pa.string()), found["input"]),
            "output_tokens": found["output_tokens"],
            "session_id": found["session_id"],
            "block_hashes": hashes,
            "hash_block_tokens": pc.if_else(pc.is_valid(hashes), size, pa.scalar(None, pa.int32())),
        }

    def one(
        self,
        session: str | None,
        start_ms: float | None,
        prefix: float | None,
        input: float | None,
        output: float | None,
        wait_ms: float | None,
        prompt: float | None,
    ) -> tuple[float | None, npt.NDArray[np.uint64] | None]:
        """(when a round is sent, the blocks of its prompt)."""
        begins = session not in self.turns.ends
        start_s = (0.0 if start_ms is None else start_ms * MILLI) if begins else None
        arrival = self.turns.arrival(session, start_s, 0.0, output)
        self.turns.wait(session, None if wait_ms is None else wait_ms * MILLI)
        return arrival, self.contexts.blocks(session, prefix, prompt, output)
