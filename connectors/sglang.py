"""SGLang's requests: `--log-requests --log-requests-format json`, or `--export-metrics-to-file`.

https://docs.sglang.ai/references/production_metrics.html. Traps: the stamps of events are local times without a zone,
while `request_received_ts` counts from 1970, which shows the zone where both are there; `finish_reason` abort is a
client that left, unless its message says that the engine's own timeout or a full queue was why, for which clients may
get HTTP 200; a request that was received and never finished was running when the log ended, or left unnoticed.
"""

from __future__ import annotations

import datetime
import re
from collections import deque
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from connectors.base import Batch, Dropped
from connectors.clocks import LocalClock, moment, unix_s, zone
from connectors.json_values import decoded
from connectors.record_log import Attempt, Record, RecordLog, amount, first_record, number, positive, text, within

EVENT = re.compile(rb'\\?"event\\?": ?\\?"request\.(?:received|finished)\\?"')
SNIFFED_BYTES = 1 << 20
"""A server's start writes less than that before its first request."""
RECEIVED, FINISHED = "request.received", "request.finished"
EXPORTED = {"request_parameters", "finish_reason", "e2e_latency"}
HEALTH = "HEALTH_CHECK"
TIMEOUT = re.compile(r"time-?d? ?out", re.IGNORECASE)
FULL = re.compile(r"queue.{0,20}full|too (?:long|large)|exceeds|longer than", re.IGNORECASE)
CUT = "..."
"""Stands in the middle of a list of which not all was logged."""
QUARTER_S = 900.0
"""Time zones differ by quarters of an hour."""
NO_EVENT = "not a line of SGLang's request log"
Waiting = dict[str, deque[tuple[int, Record]]]


LACKS = {
    "max_tokens": "no line says how long a response may get: --log-requests-level 1 does",
    "ttft_s": "no line says when a response began: it has no prefill_finished_ts",
}


class Sglang(RecordLog):
    class Options(msgspec.Struct, frozen=True):
        """What the log does not say."""

        tz: str = ""
        """Zone of its local times, such as Europe/Berlin; without it as the log itself shows it, else UTC."""

    name = "sglang"
    describes = "SGLang's request log (--log-requests-format json) or metrics export: times, lengths, aborts"
    sees = "engine"
    needed = ("arrival_s",)
    lacks: ClassVar = LACKS

    def __init__(self, options: Options) -> None:
        self.options = options
        self.zone = zone(options.tz) if options.tz else None

    def sniff(self, head: bytes, path: str) -> float:
        if EVENT.search(head, 0, SNIFFED_BYTES):
            return 1.0
        return 1.0 if (first_record(head) or {}).keys() >= EXPORTED else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        waiting: Waiting = {}
        place = self.zone
        for found, rows, dropped in self.records(path):
            attempts, kept = [], []
            for record, row in zip(found, rows, strict=True):
                if record.get("event") == RECEIVED:
                    waiting.setdefault(str(record.get("rid")), deque()).append((row, record))
                    continue
                received = None
                if record.get("event") == FINISHED and (queue := waiting.get(str(record.get("rid")))):
                    row, received = queue.popleft()
                place = place or zone_of(record, received)
                attempts.append(self.finished(record, received, place))
                kept.append(row)
            yield self.batch(attempts, kept, dropped, path)
        left = sorted((entry for queue in waiting.values() for entry in queue), key=lambda entry: entry[0])
        unfinished = [self.finished({}, record, place) for _, record in left]
        yield self.batch(unfinished, [row for row, _ in left], Dropped(), path)

    def finished(self, record: Record, received: Record | None, place: datetime.tzinfo | None) -> Attempt | str:
        """What the lines of a request say: that of its end, empty if there is none, and that of its beginning."""
        exported = record.keys() >= EXPORTED
        if not exported and record.get("event") != FINISHED and received is None:
            return NO_EVENT
        told = record if exported else within(record, "out", "meta_info")
        meta = told if isinstance(told, dict) else {}
        rid = text(within(meta, "id")) or text(record.get("rid")) or text(within(received, "rid"))
        if HEALTH in (rid or ""):
            return "a health check"
        asked = decoded_object(record.get("request_parameters")) if exported else within(received or record, "obj")
        status, reason, finish = ending(within(meta, "finish_reason"))
        output = within(meta, "completion_tokens")
        start, basis = self.start(record, received, meta, place)
        ids = within(asked, "input_ids")
        prompt = positive(within(meta, "prompt_tokens"))
        if prompt is None and isinstance(ids, list) and CUT not in ids:
            prompt = len(ids) or None
        return {
            "arrival_s": start,
            "arrival_basis": basis,
            "source_request_id": rid,
            "status": status,
            "cancel_reason": reason,
            "finish_reason": finish,
            "prompt_tokens": prompt,
            "prompt_token_source": None if prompt is None else "engine",
            "cached_prompt_tokens": within(meta, "cached_tokens"),
            "output_tokens": positive(output) if status == "ok" else None,
            "received_tokens": output,
            "max_tokens": amount(within(asked, "sampling_params", "max_new_tokens")),
            "priority": within(asked, "priority"),
            "session_id": text(within(asked, "session_params", "id")),
            "stream": within(asked, "stream") if isinstance(within(asked, "stream"), bool) else None,
            "ttft_s": first_token(meta),
            "e2e_s": amount(within(meta, "e2e_latency")),
        }

    def start(
        self, record: Record, received: Record | None, meta: Record, place: datetime.tzinfo | None
    ) -> tuple[Any, str]:
        """(when a request came, how that is known)."""
        if (known := number(within(meta, "request_received_ts"))) is not None:
            return known, "logged_start"
        clock = LocalClock(place or datetime.UTC)
        if received is not None:
            stamp = moment(received.get("timestamp"))
            return (None if stamp is None else clock.unix_s(stamp)), "logged_start"
        ended, length = moment(record.get("timestamp")), amount(within(meta, "e2e_latency"))
        instant = None if ended is None else clock.unix_s(ended)
        return (None if instant is None or length is None else instant - length), "end_minus_duration"


def decoded_object(value: Any) -> Any:
    """The request that the export writes as JSON in a text."""
    return decoded(value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else value


def zone_of(record: Record, received: Record | None) -> datetime.tzinfo | None:
    """The zone of a log's local times, where one request's beginning is stamped by both clocks."""
    stamp = moment((received or {}).get("timestamp"))
    known = number(within(record, "out", "meta_info", "request_received_ts"))
    if stamp is None or known is None:
        return None
    local = unix_s(stamp.replace(tzinfo=stamp.tzinfo or datetime.UTC))
    offset = None if local is None else round((local - known) / QUARTER_S) * QUARTER_S
    if offset is None or abs(offset) >= 86400:
        return None
    return datetime.timezone(datetime.timedelta(seconds=offset))


def ending(finish: Any) -> tuple[str, str | None, str | None]:
    """(status, cancel_reason, finish_reason) of what SGLang says of an end."""
    kind = text(within(finish, "type")) or text(finish)
    if kind != "abort":
        return ("unknown" if kind is None else "ok"), None, kind
    message, code = text(within(finish, "message")) or "", within(finish, "status_code")
    if TIMEOUT.search(message) or code in (408, 504):
        return "timeout", "engine_timeout", kind
    if FULL.search(message) or code in (400, 429):
        return "rejected", None, kind
    if code == 500:
        return "error", None, kind
    return "cancelled", "client_disconnect", kind


def first_token(meta: Record) -> float | None:
    """Seconds to the first token, which the end of the prefill gives."""
    began = number(within(meta, "request_received_ts"))
    ended = next((n for key in ("prefill_finished_ts", "prefill_finished_time") if (n := number(meta.get(key)))), None)
    if began is None or ended is None or ended < began:
        return None
    return ended - began
