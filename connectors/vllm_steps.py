"""The step log of vLLM's scheduler: what it scheduled, step by step, with requests added and aborted.

JSON lines of four kinds: `config`; `add` (t, id, prompt, max); `abort` (t, id, computed, prompt, out); `step` (t0 =
scheduled at, t1 = outputs read at, running, waiting and free blocks, rows of [id, tokens, computed before, prompt]).
Times are Unix seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from connectors.base import Dropped
from connectors.files import objects
from trace_schema.errors import BadInput

Row = tuple[str, int, int, int]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Config(msgspec.Struct, tag="config", tag_field="kind"):
    budget: int
    seqs: int
    blocks: int
    block_size: int


class Add(msgspec.Struct, tag="add", tag_field="kind"):
    t: float
    id: str
    prompt: int
    max: int


class Abort(msgspec.Struct, tag="abort", tag_field="kind"):
    t: float
    id: str
    computed: int = 0


class Step(msgspec.Struct, tag="step", tag_field="kind"):
    t0: float
    t1: float
    rows: list[Row]


Line = Config | Add | Abort | Step


@dataclass(frozen=True, slots=True)
class StepLog:
    """A step log as arrays, one entry a step that ran something; lengths in tokens, times in Unix seconds."""

    config: Config | None
    scheduled_at: Floats
    ended_at: Floats
    prefill: Ints
    """Tokens of prefill chunks."""
    decode: Ints
    """Decoding requests."""
    context: Ints
    """Context of the decoding requests after the step."""
    attention: Floats
    """Sum over prefill chunks of chunk * (context before + chunk / 2)."""
    prefill_context: Ints
    """Sum over prefill chunks of the context before them."""
    rows: Ints
    """Requests in the step."""
    prompt_tokens: Ints
    """Prompt tokens computed by the step."""
    adds: int
    aborts: int
    dropped: Dropped


def read_step_log(path: str) -> StepLog:
    """Read a step log, compressed or not. Raises BadInput when it holds no step."""
    config: Config | None = None
    steps: list[tuple[float, ...]] = []
    dropped = Dropped()
    adds = aborts = 0
    for events, _, unread in objects(path, msgspec.json.Decoder(Line), lambda _: "not a line of a step log"):
        dropped.merge(unread)
        for event in events:
            if isinstance(event, Step):
                if event.rows:
                    steps.append((event.t0, event.t1, *sums(event.rows)))
            elif isinstance(event, Config):
                config = event
            else:
                adds += isinstance(event, Add)
                aborts += isinstance(event, Abort)
    if not steps:
        raise BadInput.at(path, "holds no step of a scheduler")
    columns = np.array(steps).T
    counts = [columns[k].astype(np.int64) for k in (2, 3, 4, 6, 7, 8)]
    prefill, decoding, context, prefill_context, rows, prompt = counts
    return StepLog(
        config, columns[0], columns[1], prefill, decoding, context, columns[5], prefill_context, rows, prompt,
        adds, aborts, dropped,
    )  # fmt: skip


def sums(rows: list[Row]) -> tuple[float, ...]:
    """prefill tokens, decoding rows, their context, attention, prefill context, rows, prompt tokens of a step."""
    prefill = decode = context = prefill_context = prompt = 0
    attention = 0.0
    for _, n, before, length in rows:
        prompt += max(min(before + n, length) - before, 0)
        if n == 1 and before >= length:
            decode += 1
            context += before + 1
        else:
            prefill += n
            attention += n * (before + 0.5 * n)
            prefill_context += before
    return prefill, decode, context, attention, prefill_context, len(rows), prompt
