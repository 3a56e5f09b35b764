"""The text log of a vLLM server with request logging on: versions 0.2 to 0.33, also as JSON and from containers.

`vllm serve --enable-log-requests` (on by default before 0.11). Traps: times are local, in whole seconds and without a
year; internal ids end in eight random digits, which the outer id lacks; an abort is written under both; no version says
how long a response was unless `--enable-log-outputs` is on, and lengths of prompts only older ones; nothing says that a
request has finished, but at times that the engine is idle, and then all before have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import msgspec
import pyarrow as pa
from msgspec import Meta

from connectors.base import Batch, Dropped
from connectors.bodies import keyed_hash
from connectors.clocks import LOCAL, UTC, LocalClock, YearlessClock, zone
from connectors.json_values import decoded
from connectors.record_log import Attempt, RecordLog, amount, number
from connectors.text_lines import lines, stamped
from trace_schema.columns import is_empty
from trace_schema.errors import BadInput

PREFIX = re.compile(
    r"(?:\([\w -]+ ?pid=\d+\) )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<month>\d\d)-(?P<day>\d\d) "
    r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d(?:[.,]\d+)?) \[?[\w./-]+:\d+\] ?"
)
"""What vLLM's own formatter puts before a message."""
EVENT = re.compile(
    r"(?P<word>Received request|Added request|Aborted requests?(?:\(s\))?|Finished request|Generated response|Request) "
    r"(?P<id>[^\s:]+)(?P<rest>.*)",
    re.DOTALL,
)
EVENT_WITHIN = 160
"""Characters of a line in which its event begins: a prompt further on may say anything."""
ASKED = "params: SamplingParams("
PROMPT = re.compile(r": prompt: (?P<prompt>.*?),\s?(?:prefix_pos: \w+, ?)?(?:sampling_)?$", re.DOTALL)
MAX_TOKENS, IGNORES_END = re.compile(r"\bmax_tokens=(\d+)"), re.compile(r"\bignore_eos=True")
TOKEN_IDS = re.compile(r"(?:prompt_token_ids|output_token_ids): \[([\d, ]*)\]")
FINISH = re.compile(r"finish_reason: (\w+)")
LORA = re.compile(r"lora_name='([^']+)'")
MODEL = re.compile(r"engine \(v[^)]*\) with config: (?:VllmConfig\()?model='([^']+)'")
LOAD = re.compile(
    r"(?:Engine (?P<engine>\d+): )?.*Running: (?P<running>\d+) reqs.*(?:Waiting|Pending): (?P<waiting>\d+) reqs"
)
RANDOM_END = re.compile(r"-[0-9a-f]{8}$")
TIMES = ("timestamp", "asctime", "time", "@timestamp", "ts", "created", "datetime")
MESSAGES = ("message", "msg", "event")
"""Keys of JSON formatters."""
NO_YEAR = re.compile(r"\d\d-\d\d \d\d:")
SNIFFED_BYTES = 1 << 20
IDLE_S = 2.0
"""A line about the load may be that much older than the requests before it, since it is of the step before."""
FLUSHED = 50_000
RUNNING, ABORTED, FINISHED, FAILED = range(4)
NO_YEAR_KNOWN = (
    "its times have no year, and count from the beginning of one: enough for --with FILE, whose times are better; else "
    "say --option year=2026 --option tz=Europe/Berlin"
)
NO_REQUEST = (
    "is a log of vLLM that holds no request: start it with --enable-log-requests, and see docs/formats.md for the step "
    "log, which knows lengths"
)


LACKS = {
    "prompt_tokens": "vLLM's text log knows no lengths of prompts: the step log does (docs/step-log.md); read it with "
    "that, or with a gateway's log that has usage or bytes (--with access.json)",
    "ttft_s": "no line says when a response began, nor when it ended unless it was aborted",
}


@dataclass(slots=True)
class Request:
    """A request on its way through the log."""

    row: int
    outer: str
    received_s: float | None
    attempt: Attempt
    ignores_end: bool = False
    inner: str | None = None
    state: int = RUNNING
    ended_s: float | None = None
    output: int | None = None
    finish: str | None = None


@dataclass(slots=True)
class Reading:
    """A log on its way from lines to requests."""

    year: YearlessClock
    local: LocalClock
    open: list[Request] = field(default_factory=list)
    """Not yet given out, in order of their lines."""
    running: list[Request] = field(default_factory=list)
    """Those of which no end had been seen when the engine was last idle, and all since."""
    by_id: dict[str, list[Request]] = field(default_factory=dict)
    """By both ids, those that may still end."""
    loads: dict[str, float | None] = field(default_factory=dict)
    """By engine: since when it is idle, None while it is not."""
    adds: bool = False
    model: str | None = None
    seen: bool = False
    """A request has been seen."""
    gone: set[str] = field(default_factory=set)
    """Ids of those given out last, of which a second line may still tell the end."""

    def take(self, line: str, row: int, dropped: Dropped) -> None:
        """One line of the log."""
        if "equest" not in line and "Generated response" not in line and "reqs" not in line and "model=" not in line:
            return
        instant, message = self.message_of(line)
        found = EVENT.search(message, 0)
        if found is None or found.start() > EVENT_WITHIN:
            self.take_load(message, instant)
            return
        word, name, rest = found["word"], found["id"].rstrip(".,"), found["rest"]
        if word == "Received request":
            self.seen = True
            attempt, ignores_end = asked(rest)
            request = Request(row, name, instant, attempt | {"model": lora(rest) or self.model}, ignores_end)
            self.open.append(request)
            self.running.append(request)
            self.by_id.setdefault(name, []).append(request)
        elif word == "Added request":
            self.take_added(name, row, instant)
        elif word.startswith("Aborted"):
            for single in name.split(","):
                self.take_end(single, ABORTED, instant, row, dropped)
        elif word == "Request" and rest.startswith(" aborted"):
            self.take_end(name, ABORTED, instant, row, dropped, outer=True)
        elif word == "Request" and rest.startswith(" failed"):
            self.take_end(name, FAILED, instant, row, dropped, outer=True)
        elif word == "Finished request":
            self.take_end(name, FINISHED, instant, row, dropped)
        elif word == "Generated response" and "(streaming delta)" not in rest[:24]:
            done = self.take_end(name, FINISHED, instant, row, dropped, outer=True)
            if done is not None:
                done.output = tokens_in(rest)
                ended = FINISH.search(rest, max(len(rest) - 200, 0))
                done.finish = ended[1] if ended else None

    def message_of(self, line: str) -> tuple[float | None, str]:
        """(when a line was written, what it says)."""
        if line.startswith("{") and isinstance(record := decoded(line.encode()), dict):
            stamp = next((record[key] for key in TIMES if key in record), None)
            line = str(next((record[key] for key in MESSAGES if key in record), ""))
            if not isinstance(stamp, str):
                return number(stamp), line
            line = f"INFO {stamp} [json:0] {line}" if NO_YEAR.match(stamp) else f"{stamp} {line}"
        when, rest = stamped(line)
        prefix = PREFIX.search(rest, 0, 200)
        message = rest[prefix.end() :] if prefix else rest
        if when is not None:
            if self.year.first is None:
                # Lines of one log may have stamps with and without a year.
                self.year = YearlessClock(when.year, self.local.place)
            return self.local.unix_s(when), message
        if prefix is None:
            return None, message
        day, time = (int(prefix["month"]), int(prefix["day"])), (int(prefix["hour"]), int(prefix["minute"]))
        return self.year.seconds(*day, *time, float(prefix["second"].replace(",", "."))), message

    def take_added(self, name: str, row: int, instant: float | None) -> None:
        """The engine has a request: its own id for it becomes known."""
        self.adds = self.seen = True
        outer = RANDOM_END.sub("", name)
        for candidate in (name, outer):
            request = next((r for r in self.by_id.get(candidate, ()) if r.inner is None), None)
            if request is not None:
                request.inner = name
                if name != candidate:
                    self.by_id.setdefault(name, []).append(request)
                return
        request = Request(row, outer, instant, {"max_tokens": None, "model": self.model}, inner=name)
        self.open.append(request)
        self.running.append(request)
        for key in {name, outer}:
            self.by_id.setdefault(key, []).append(request)

    def take_end(
        self, name: str, state: int, instant: float | None, row: int, dropped: Dropped,
        outer: bool = False,
    ) -> Request | None:  # fmt: skip
        """A request has ended. An abort that is written under the outer id too is one abort."""
        known = self.by_id.get(name, [])
        if not known:
            outer_id = RANDOM_END.sub("", name)
            known = self.by_id.get(outer_id, []) if outer_id != name else []
        if not known and name not in self.gone:
            dropped.add("the end of a request that began before the log, or was not logged", row)
        if outer and state == ABORTED and any(r.inner not in (None, name) for r in known):
            return None
        request = next((r for r in known if r.state == RUNNING), None)
        if request is not None:
            request.state, request.ended_s = state, instant
        return request

    def take_load(self, message: str, instant: float | None) -> None:
        """A line about the load, or about the model."""
        if (named := MODEL.search(message)) is not None:
            self.model = named[1]
        load = LOAD.search(message)
        if load is None or instant is None:
            return
        idle = load["running"] == "0" and load["waiting"] == "0"
        self.loads[load["engine"] or ""] = instant if idle else None
        if not idle or any(since is None for since in self.loads.values()):
            return
        since = min(since for since in self.loads.values() if since is not None) - IDLE_S
        for request in self.running:
            was_there = request.inner is not None or not self.adds
            if was_there and request.received_s is not None and request.received_s <= since:
                request.state = FINISHED if request.state == RUNNING else request.state
        self.running = [request for request in self.running if request.state == RUNNING]

    def settled(self) -> list[Request]:
        """The requests at the log's beginning that have ended, if there are many; the others wait for their ends."""
        if len(self.open) <= FLUSHED:
            return []
        running = (place for place, request in enumerate(self.open) if request.state == RUNNING)
        count = next(running, len(self.open))
        done, self.open = self.open[:count], self.open[count:]
        keys = [{key for key in (request.outer, request.inner) if key is not None} for request in done]
        for request, known in zip(done, keys, strict=True):
            for key in known:
                self.by_id[key].remove(request)
                if not self.by_id[key]:
                    del self.by_id[key]
        self.gone = set().union(*keys) if keys else self.gone
        return done


class VllmLog(RecordLog):
    class Options(msgspec.Struct, frozen=True):
        """What the log does not say."""

        year: Annotated[int, Meta(ge=0, le=9999)] = 0
        """Of its first line; without it times count from the beginning of a year that is not known."""
        tz: str = UTC
        """Zone of its local times, such as Europe/Berlin."""
        aborts: Literal["cancelled", "timeout"] = "cancelled"
        """Why clients let go: their users left, or they had waited long enough and tried again."""

    name = "vllm_log"
    describes = "text or JSON log of a vLLM server with request logging on: arrivals, limits, aborts; few lengths"
    sees = "engine"
    lacks: ClassVar = LACKS
    needed = ("arrival_s",)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.zone = zone(options.tz)

    def notes(self, attempts: pa.Table) -> list[str]:
        """What the log cannot show, and what only the user can say."""
        return [*super().notes(attempts), *self.clock_notes(attempts)]

    def clock_notes(self, attempts: pa.Table) -> list[str]:
        if is_empty(attempts["arrival_unix_ns"]):
            return [NO_YEAR_KNOWN]
        return [LOCAL] if self.options.tz == UTC else []

    def sniff(self, head: bytes, path: str) -> float:
        start = head[:SNIFFED_BYTES].decode("utf-8", "replace")
        ours = any(PREFIX.search(line, 0, 200) for line in start.splitlines()[:2000])
        asked = "Received request " in start or "Added request " in start
        return 1.0 if asked and (ours or "SamplingParams(" in start) else 0.9 if ours else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        reading = Reading(YearlessClock(self.options.year or None, self.zone), LocalClock(self.zone))
        for first, found, dropped in lines(path):
            for row, line in enumerate(found, first):
                reading.take(line, row, dropped)
            yield self.batch_of(reading.settled(), dropped, path)
        if not reading.seen:
            raise BadInput.at(path, NO_REQUEST)
        yield self.batch_of(reading.open, Dropped(), path)

    def batch_of(self, requests: list[Request], dropped: Dropped, path: str) -> Batch:
        return self.batch(map(self.of, requests), [request.row for request in requests], dropped, path)

    def of(self, request: Request) -> Attempt:
        """A request as an attempt."""
        aborted = request.state == ABORTED
        ends = {RUNNING: "unknown", FINISHED: "ok", FAILED: "error", ABORTED: self.options.aborts}
        by_user = self.options.aborts == "cancelled"
        reason = ("client_disconnect" if by_user else "client_timeout") if aborted else None
        # A request that only its limit ends has been asked for all of it, whether or not it got there.
        output = request.attempt["max_tokens"] if request.ignores_end else None if aborted else request.output
        known = request.ended_s is not None and request.received_s is not None
        return request.attempt | {
            "arrival_s": request.received_s,
            "arrival_basis": "logged_start",
            "time_resolution_s": 1.0 if (request.received_s or 0.0) % 1.0 == 0.0 else 0.0,
            "source_request_id": request.outer,
            "engine_request_id": request.inner,
            "status": ends[request.state],
            "cancel_reason": reason,
            "finish_reason": request.finish,
            "output_tokens": output,
            "received_tokens": request.output,
            "e2e_s": max((request.ended_s or 0.0) - (request.received_s or 0.0), 0.0) if known else None,
        }


def asked(rest: str) -> tuple[Attempt, bool]:
    """What a "Received request" says, and whether only its limit ends it; of its prompt a hash and a length alone."""
    before, _, params = rest.rpartition(ASKED)
    prompt = PROMPT.match(before)
    shown = prompt["prompt"] if prompt and prompt["prompt"] not in ("None", "''", '""') else None
    limit = MAX_TOKENS.search(params)
    ids = tokens_in(params)
    attempt = {
        "prompt_tokens": ids,
        "prompt_token_source": "engine" if ids else None,
        "max_tokens": amount(limit[1]) if limit else None,
        "body_hash": None if shown is None else keyed_hash(shown + params.partition("), prompt_token_ids")[0]),
        "request_bytes": None if shown is None else len(shown.encode("utf-8", "surrogatepass")) - 2,
    }
    return attempt, IGNORES_END.search(params) is not None


def tokens_in(text: str) -> int | None:
    """How many token ids a line lists; None where it lists none."""
    found = TOKEN_IDS.findall(text)
    return found[-1].count(",") + 1 if found and found[-1].strip() else None


def lora(rest: str) -> str | None:
    """The adapter that a request asks for."""
    found = LORA.search(rest, max(len(rest) - 400, 0))
    return found[1] if found else None
