"""The step log of vLLM's scheduler: what it scheduled, step by step, with requests added, finished and aborted.

JSON lines in two layouts. `scripts/vllm_step_log.py` writes the one that begins with a `header` (docs/step-log.md). An
older one begins with `config`; its `add` (t, id, prompt, max), `abort` (t, id, computed, prompt, out) and `step` (t0 =
scheduled at, t1 = outputs read at, rows of [id, tokens, computed before, prompt]) carry ids. Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Meta

from connectors.base import Batch, Dropped
from connectors.files import first_object, head, objects
from connectors.rows import attempts_of
from trace_schema.errors import BadInput

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Count = Annotated[int, Meta(ge=-(2**53), le=2**53)]
"""Sums of more would leave 64 bits."""

NO_LINE = "not a line of a step log"
LOST = "lost by the log itself, which was not written fast enough"
OLD_SETTINGS = {"max_num_batched_tokens": "budget", "max_num_seqs": "seqs", "num_blocks": "blocks",
                "block_size": "block_size"}  # fmt: skip
RUNNING, FINISHED, ABORTED = 0, 1, 2
STATUS_OF = {"FINISHED_ERROR": "error", "FINISHED_IGNORED": "rejected"}
"""What a request's end was, by vLLM's name for it; ok for any other name."""


class Config(msgspec.Struct, tag="config", tag_field="kind"):
    """The first line of the older layout."""

    budget: int
    seqs: int
    blocks: int
    block_size: int

    @property
    def settings(self) -> dict[str, Any]:
        """What it says of the engine, by the names of `EngineSettings`."""
        return {name: getattr(self, key) for name, key in OLD_SETTINGS.items()}


class Header(msgspec.Struct, tag="header", tag_field="kind"):
    """The first line of a log by `scripts/vllm_step_log.py`."""

    engine: dict[str, Any]
    format: int = 2
    vllm_version: str | None = None
    model: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What it says of the engine, by the names of `EngineSettings`; what vLLM did not say is left out."""
        return {name: value for name, value in self.engine.items() if value is not None}


class Add(msgspec.Struct, tag="add", tag_field="kind"):
    t: float
    id: str
    prompt: Count | None = None
    max: int | None = None
    priority: int | None = None
    arrival: float | None = None
    stops: int = 0


class Left(msgspec.Struct, tag_field="kind"):
    """A request that left or was preempted, and its progress: `n` is its number, `id` its id in the older layout."""

    t: float
    id: str | None = None
    n: Count | None = None
    computed: Count | None = None
    out: Count | None = None
    status: str | None = None


class Abort(Left, tag="abort", tag_field="kind"):
    pass


class Finish(Left, tag="finish", tag_field="kind"):
    pass


class Preempt(Left, tag="preempt", tag_field="kind"):
    pass


class Lost(msgspec.Struct, tag="dropped", tag_field="kind"):
    steps: int
    events: int


class End(msgspec.Struct, tag="end", tag_field="kind"):
    reason: str = ""


class OldStep(msgspec.Struct, tag="step", tag_field="kind"):
    t0: float
    t1: float
    rows: list[tuple[str, Count, Count, Count]]


class Step(msgspec.Struct, tag="step", tag_field="kind"):
    t0: float
    t: float
    t1: float
    rows: list[tuple[Count, Count, Count]]


OLD_LINE = Config | Add | Abort | OldStep
LINE = Header | Add | Abort | Finish | Preempt | Lost | End | Step


@dataclass(frozen=True, slots=True)
class StepLog:
    """A step log as arrays, one entry a step that ran something; lengths in tokens, times in Unix seconds."""

    config: Config | Header | None
    scheduled_at: Floats
    began_at: Floats
    """When it was scheduled, or when the step before it ended: with async scheduling, the later of the two."""
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
    preemptions: int
    lost_steps: int
    """Steps that the log dropped because it was not written fast enough."""
    closed: bool
    """The log has its last line: the engine ended in good order. Logs of the older layout have none."""
    dropped: Dropped


@dataclass(slots=True)
class Requests:
    """The requests of a step log in order of their adds, and what became of them."""

    lines: list[int]
    """1-based line of each add."""
    adds: list[Add]
    leaves: dict[int, tuple[int, Left]]
    """By number: FINISHED or ABORTED, and the line that says so."""
    first_computed: Ints
    """Tokens found in the cache when it was first scheduled; -1: it never was."""
    first_token_at: Floats
    """End of the first step that gave an output token; NaN: none did."""
    last_step_at: Floats
    tokens: Ints
    """Steps that gave an output token."""


class Reading:
    """A step log on its way from lines to arrays."""

    def __init__(self) -> None:
        self.config: Config | Header | None = None
        self.numbers: dict[str, int] = {}
        self.requests = Requests([], [], {}, *self.blank(0))
        self.steps: list[tuple[npt.NDArray[Any], ...]] = []
        self.aborts = self.preemptions = self.lost_steps = 0
        self.closed = False
        self.dropped = Dropped()

    @staticmethod
    def blank(count: int) -> tuple[Ints, Floats, Floats, Ints]:
        """What is not known of `count` requests: first_computed, first_token_at, last_step_at, tokens."""
        return np.full(count, -1), np.full(count, np.nan), np.full(count, np.nan), np.zeros(count, np.int64)

    def take(self, events: Sequence[Any], lines: Sequence[int]) -> None:
        """Some lines of the file, in order."""
        steps = []
        for event, number in zip(events, lines, strict=True):
            if isinstance(event, Step | OldStep):
                if event.rows:
                    steps.append(event)
            elif isinstance(event, Add):
                self.numbers[event.id] = len(self.requests.adds)
                self.requests.adds.append(event)
                self.requests.lines.append(number)
            elif isinstance(event, Abort | Finish):
                self.leave(event)
            elif isinstance(event, Config | Header):
                self.config = event
            elif isinstance(event, Lost):
                self.lost_steps += event.steps
                self.dropped.add(LOST, number, event.steps + event.events)
            else:
                self.preemptions += isinstance(event, Preempt)
                self.closed |= isinstance(event, End)
        if steps:
            self.add_steps(steps)

    def leave(self, event: Left) -> None:
        self.aborts += isinstance(event, Abort)
        number = event.n if event.id is None else self.numbers.get(event.id)
        if number is not None:
            self.requests.leaves[number] = (ABORTED if isinstance(event, Abort) else FINISHED, event)

    def add_steps(self, steps: list[Any]) -> None:
        """Sum the rows of some steps, and follow their requests."""
        if isinstance(steps[0], OldStep):
            number = np.array([self.numbers.get(row[0], -1) for step in steps for row in step.rows])
            table = integers([row[1:] for step in steps for row in step.rows], 3)
            tokens, before, prompt = table[:, 0], table[:, 1], table[:, 2]
            began = [step.t0 for step in steps]
        else:
            table = integers(list(chain.from_iterable(step.rows for step in steps)), 3)
            number, tokens, before = table[:, 0], table[:, 1], table[:, 2]
            lengths = np.array([add.prompt or 0 for add in self.requests.adds] + [0], np.int64)
            number = np.where(number < len(lengths) - 1, number, -1)
            prompt = lengths[number]
            began = [step.t for step in steps]
        size = np.array([len(step.rows) for step in steps])
        ended = np.array([step.t1 for step in steps])
        times = (np.array([step.t0 for step in steps]), np.array(began), ended)
        self.steps.append((*times, *sums(size, tokens, before, prompt), size))
        self.follow(number, np.repeat(ended, size), before, before + tokens >= prompt)

    def follow(self, number: Ints, ended: Floats, before: Ints, gives: npt.NDArray[np.bool_]) -> None:
        """Note what rows say of their requests; `gives`: an output token."""
        known = self.requests
        missing = len(known.adds) - len(known.tokens)
        if missing:
            fresh = self.blank(missing)
            known.first_computed = np.append(known.first_computed, fresh[0])
            known.first_token_at = np.append(known.first_token_at, fresh[1])
            known.last_step_at = np.append(known.last_step_at, fresh[2])
            known.tokens = np.append(known.tokens, fresh[3])
        named = number >= 0
        number, ended, before, gives = number[named], ended[named], before[named], gives[named]
        who, place = np.unique(number, return_index=True)
        new = known.first_computed[who] < 0
        known.first_computed[who[new]] = before[place[new]]
        np.fmax.at(known.last_step_at, number, ended)
        np.fmin.at(known.first_token_at, number[gives], ended[gives])
        known.tokens += np.bincount(number[gives], minlength=len(known.tokens))

    def log(self, path: str) -> StepLog:
        """The steps. Raises BadInput when there is none."""
        if not self.steps:
            raise BadInput.at(path, "holds no step of a scheduler")
        columns = [np.concatenate(parts) for parts in zip(*self.steps, strict=True)]
        scheduled, began, ended, prefill, decode, context, attention, prefill_context, prompt, rows = columns
        return StepLog(
            self.config, scheduled, began, ended, prefill, decode, context, attention, prefill_context, rows, prompt,
            len(self.requests.adds), self.aborts, self.preemptions, self.lost_steps, self.closed, self.dropped,
        )  # fmt: skip


def integers(rows: list[Any], width: int) -> Ints:
    """Rows of whole numbers as an array."""
    flat = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * width)
    return flat.reshape(-1, width)


def sums(size: Ints, tokens: Ints, before: Ints, prompt: Ints) -> tuple[Ints, Ints, Ints, Floats, Ints, Ints]:
    """prefill tokens, decoding rows, their context, attention, prefill context, prompt tokens of each step."""
    starts = np.cumsum(size) - size
    decodes = (tokens == 1) & (before >= prompt)
    chunk = np.where(decodes, 0, tokens)
    of_prompt = np.maximum(np.minimum(before + tokens, prompt) - before, 0)
    return (
        np.add.reduceat(chunk, starts),
        np.add.reduceat(decodes.astype(np.int64), starts),
        np.add.reduceat(np.where(decodes, before + 1, 0), starts),
        np.add.reduceat(chunk * (before + 0.5 * chunk), starts),
        np.add.reduceat(np.where(decodes, 0, before), starts),
        np.add.reduceat(of_prompt, starts),
    )


def read_lines(path: str) -> Reading:
    """Read a step log of either layout, compressed or not. Raises BadInput when it cannot be read at all."""
    start = first_object(head(path)) or {}
    kinds: Any = LINE if start.get("kind") == "header" else OLD_LINE
    reading = Reading()
    for events, lines, unread in objects(path, msgspec.json.Decoder(kinds), lambda _: NO_LINE):
        reading.dropped.merge(unread)
        reading.take(events, lines)
    return reading


def read_step_log(path: str) -> StepLog:
    """The steps of a step log, compressed or not. Raises BadInput when it holds none."""
    return read_lines(path).log(path)


class VllmSteps:
    class Options(msgspec.Struct, frozen=True):
        """What the engine cannot know."""

        aborts: Literal["cancelled", "timeout"] = "cancelled"
        """Why clients let go: their users left, or they had waited long enough and tried again."""

    name = "vllm_steps"
    describes = "step log of vLLM's own scheduler (scripts/vllm_step_log.py): requests, how far they came, aborts"
    sees = "engine"

    def __init__(self, options: Options) -> None:
        self.options = options

    def sniff(self, head: bytes, path: str) -> float:
        first = first_object(head) or {}
        if first.get("kind") == "header" and isinstance(first.get("engine"), dict):
            return 1.0
        return 0.9 if first.get("kind") == "config" and {"budget", "seqs", "blocks"} <= first.keys() else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        """One batch: a request's beginning and end may lie far apart. Its rows are the requests added."""
        reading = read_lines(path)
        reading.follow(*(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64), np.zeros(0, bool)))
        columns = self.columns(reading)
        lines = np.asarray(reading.requests.lines, np.int64)
        yield attempts_of(columns, lines, source_format=self.name, source_file=path, dropped=reading.dropped)

    def notes(self, attempts: pa.Table) -> list[str]:
        """What an engine cannot know."""
        return [
            "an engine knows no users: which requests are tries of one call, who left and who timed out, and what "
            "never reached it, its gateway's log tells (read both: --with access.json.log)"
        ]

    def columns(self, reading: Reading) -> dict[str, list[Any]]:
        """The columns of ATTEMPTS, an entry a request."""
        known = reading.requests
        names = ("status", "cancel_reason", "output_tokens", "received_tokens", "ttft_s", "e2e_s", "extra")
        columns: dict[str, list[Any]] = {name: [] for name in names}
        arrivals = [a.t if a.arrival is None else min(a.arrival, a.t) for a in known.adds]
        tokens, ends = known.tokens.tolist(), known.last_step_at.tolist()
        old = not isinstance(reading.config, Header)
        for number, add in enumerate(known.adds):
            kind, left = known.leaves.get(number, (RUNNING, None))
            out = tokens[number] if left is None or left.out is None else left.out
            ended = None if left is None else left.t
            if old and kind == RUNNING and add.max is not None and out >= add.max:
                # The older layout says nothing of a finish: a request has finished when it has all its tokens.
                kind, out, ended = FINISHED, add.max, ends[number]
            status, reason = self.status(kind, left, add, out)
            columns["status"].append(status)
            columns["cancel_reason"].append(reason)
            columns["output_tokens"].append(out if status == "ok" else None)
            columns["received_tokens"].append(out)
            columns["e2e_s"].append(None if ended is None else ended - arrivals[number])
            columns["extra"].append([("computed_tokens", str(left.computed))] if left and left.computed else None)
        first = np.where(known.tokens > 0, known.first_token_at - np.asarray(arrivals), np.nan)
        columns["ttft_s"] = [None if np.isnan(s) else s for s in first.tolist()]
        columns["cached_prompt_tokens"] = [None if n < 0 else n for n in known.first_computed.tolist()]
        columns["arrival_s"] = arrivals
        for name, key in (("source_request_id", "id"), ("prompt_tokens", "prompt"), ("max_tokens", "max")):
            columns[name] = [getattr(add, key) for add in known.adds]
        columns["priority"] = [add.priority for add in known.adds]
        return columns

    def status(self, kind: int, left: Left | None, add: Add, out: int) -> tuple[str, str | None]:
        """(status, cancel_reason) of a request."""
        if kind == FINISHED:
            return STATUS_OF.get((left and left.status) or "", "ok"), None
        if kind == RUNNING or (add.stops and out):
            # vLLM's front end aborts a request whose text holds a stop string: that may have been no client's doing.
            return "unknown", None
        by_user = self.options.aborts == "cancelled"
        return self.options.aborts, "client_disconnect" if by_user else "client_timeout"
