"""uvicorn's access log, which vLLM, SGLang and other servers in Python write between their own lines.

https://www.uvicorn.org/settings/#logging. Traps: its default lines have no time, and such a log is no trace; a line is
written when the response begins, which for one that is not streamed is its end; a client that left before that has no
line at all, one that left later is a 200.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

import msgspec
import pyarrow as pa

from connectors.base import Batch
from connectors.clocks import LOCAL, UTC, LocalClock, zone
from connectors.files import head
from connectors.http_log import address, failure, other_request, outcome
from connectors.record_log import Attempt, RecordLog, code_of
from connectors.text_lines import lines, stamped
from trace_schema.errors import BadInput

ACCESS = re.compile(
    r".{0,120}?(?P<client>\S{1,80}:\d+|\bNone) -(?: \d+ -)? "
    r'"(?P<method>[A-Z]+) (?P<path>\S+) HTTP/[\d.]+" (?P<code>\d{3})\b'
)
NO_LINE = "not a line of uvicorn's access log"
NO_TIME = (
    "its lines have no time, so that they are no trace: ingest the log of the gateway or of the engine, or write lines "
    "with %(asctime)s before them (--log-config of uvicorn, --uvicorn-log-config of vLLM)"
)
LACKS = {
    "prompt_tokens": "uvicorn knows neither lengths nor bytes, and no ids by which another log could be joined to it: "
    "it tells how many requests were answered, when, and with which code",
}
SNIFFED = 400
"""Lines of a server's start that may stand before its first request."""


class Uvicorn(RecordLog):
    class Options(msgspec.Struct, frozen=True):
        """What the lines do not say."""

        tz: str = UTC
        """Zone of times that name none, such as Europe/Berlin."""

    name = "uvicorn"
    describes = "uvicorn's access log: status codes; times only where its format was given them"
    needed = ("arrival_s",)
    lacks: ClassVar = LACKS

    def __init__(self, options: Options) -> None:
        self.options = options
        self.zone = zone(options.tz)

    def notes(self, attempts: pa.Table) -> list[str]:
        """What the log cannot show, and what only the user can say."""
        return [*super().notes(attempts), *([LOCAL] if self.options.tz == UTC else [])]

    def sniff(self, head: bytes, path: str) -> float:
        found = head.split(b"\n", SNIFFED)[:SNIFFED]
        return 0.7 if any(ACCESS.match(line.decode("utf-8", "replace")) for line in found) else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        start = head(path).decode("utf-8", "backslashreplace").split("\n")
        access = [line for line in start if ACCESS.match(line)]
        if access and not any(stamped(line)[0] for line in access):
            raise BadInput.at(path, NO_TIME)
        clock = LocalClock(self.zone)
        for first, found, dropped in lines(path):
            numbers = [number for number, line in enumerate(found, first) if line.strip()]
            attempts = (self.of_line(found[number - first], clock) for number in numbers)
            yield self.batch(attempts, numbers, dropped, path)

    def of_line(self, line: str, clock: LocalClock) -> Attempt | str:
        when, rest = stamped(line)
        found = ACCESS.match(rest)
        if found is None:
            return NO_LINE
        if (other := other_request(found["method"], found["path"])) is not None:
            return other
        status, reason = outcome(found["code"])
        return {
            "arrival_s": None if when is None else clock.unix_s(when),
            "arrival_basis": "response_header",
            "status": status,
            "cancel_reason": reason,
            "http_status": code_of(found["code"]),
            "tenant": address(found["client"]),
            "error_class": failure(found["code"], status),
        }
