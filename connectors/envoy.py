"""Envoy's access log, as JSON or in the default text format of Envoy or Istio.

https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage. The keys of the JSON format
are the operator's own: they are known by the names that Envoy Gateway, Istio and the documentation use, however they
are spelled. Traps: durations are milliseconds; response code 0 is a client that went before a response was begun; one
that went later has the code of the response (200) and the flag DC; a retry by Envoy itself has no line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from connectors.base import Batch
from connectors.files import SNIFFED_LINES, head
from connectors.http_log import GATEWAY_TIMEOUT, LEFT, address, failure, other_request, outcome, trace_of
from connectors.record_log import (
    NOTHING,
    Attempt,
    Record,
    RecordLog,
    Vocabulary,
    amount,
    bytes_of,
    code_of,
    extras,
    first_record,
    plain,
    scaled,
    text,
)
from connectors.text_lines import lines
from connectors.text_lines import plain as plain_line

NAMES = {
    "start": ("starttime", "timestamp", "time"),
    "code": ("responsecode", "statuscode", "status"),
    "flags": ("responseflags", "responseflagslong", "responseflag"),
    "duration": ("duration", "durationms", "requestduration"),
    "method": ("method", "requestmethod"),
    "path": ("xenvoyoriginpath", "xenvoyoriginalpath", "path", "requestpath", "uri"),
    "received": ("bytesreceived", "requestbytes"),
    "sent": ("bytessent", "responsebytes"),
    "id": ("xrequestid", "requestid"),
    "trace": ("traceid", "traceparent"),
    "service": ("xenvoyupstreamservicetime", "upstreamservicetime"),
    "attempts": ("upstreamrequestattemptcount", "upstreamattempts", "attemptcount", "xenvoyattemptcount"),
    "cluster": ("upstreamcluster", "upstreamclusterraw"),
    "address": ("xforwardedfor", "downstreamremoteaddress", "downstreamdirectremoteaddress"),
    "agent": ("useragent",),
    "user": ("user", "xuser", "xuserid"),
    "session": ("sessionid", "xsessionid"),
    "retry": ("retrycount", "xstainlessretrycount"),
    "timeout": ("readtimeout", "xstainlessreadtimeout"),
    "idempotency": ("idempotencykey",),
    "model": ("model", "requestmodel"),
}
"""Keys in a log, without case and separators, by what they say; the first that says something counts."""
FLAGS = {
    **dict.fromkeys(("DC", "DR", "DownstreamConnectionTermination", "DownstreamRemoteReset"), LEFT),
    **dict.fromkeys(("UT", "UpstreamRequestTimeout", "SI", "StreamIdleTimeout", "DT", "DurationTimeout",
                     "UMSDR", "UpstreamMaxStreamDurationReached"), GATEWAY_TIMEOUT),
    **dict.fromkeys(("UO", "UpstreamOverflow", "RL", "RateLimited", "OM", "OverloadManager", "DO", "DropOverload",
                     "UAEX", "UnauthorizedExternalService"), ("rejected", None)),
    **dict.fromkeys(("UF", "UpstreamConnectionFailure", "UH", "NoHealthyUpstream", "UC",
                     "UpstreamConnectionTermination", "UR", "UpstreamRemoteReset", "LR", "LocalReset", "LH",
                     "FailedLocalHealthCheck", "URX", "UpstreamRetryLimitExceeded", "NR", "NoRouteFound", "NC",
                     "NoClusterFound", "UPE", "UpstreamProtocolError", "DPE", "DownstreamProtocolError", "DF",
                     "DnsResolutionFailed", "IH", "InvalidEnvoyRequestHeaders"), ("error", None)),
}  # fmt: skip
"""(status, cancel_reason) by response flag, in the order in which one of several is believed."""
LINE = re.compile(
    r'\[(?P<start>[^\]]+)\] "(?P<method>\S+) (?P<path>\S+)(?: [^"]*)?" (?P<code>\d+|-) (?P<flags>[\w,-]+) '
    r".{0,500}?(?P<received>\d+) (?P<sent>\d+) (?P<duration>\d+|-) (?P<service>\d+|-) "
    r'"(?P<address>[^"]*)" "(?P<agent>.*?)" "(?P<id>[^"\s]*)" "[^"]*" "[^"]*"(?: (?P<cluster>\S+))?'
)
"""The text formats of Envoy and of Istio, which differ between the flags and the bytes, and at the end."""
LINE_MOST = 8192
NO_LINE = "not a line of Envoy's access log"
AI = ("genai", "mcp", "llminputtoken")
"""How keys begin, without separators, that an AI gateway adds."""


def envoy_keys(record: Record | None) -> tuple[float, bool]:
    """(how sure it is that a record is a line of an Envoy, whether an AI gateway has added to it)."""
    keys = {plain(key) for key in record or ()}
    needed = "starttime" in keys and "responsecode" in keys and bool(keys & {"duration", "durationms"})
    told = keys & {"responseflags", "responsecodedetails", "upstreamcluster", "upstreamhost", "bytesreceived"}
    sure = (1.0 if len(told) > 1 else 0.8 if told else 0.4) if needed else 0.0
    return sure, any(key.startswith(AI) for key in keys)


LACKS = {
    "prompt_tokens": "Envoy knows no tokens: read it with a log of the engine (--with "
    "vllm.steps.jsonl), or give --bytes-per-token",
    "source_request_id": "no line has an id by which an engine's log could be joined to it: add %REQ(X-REQUEST-ID)%",
    "retry_index": "no line says whether it is a retry: add %REQ(X-STAINLESS-RETRY-COUNT)%",
    "client_timeout_s": "no line says how long its client waits: add %REQ(X-STAINLESS-READ-TIMEOUT)%",
    "request_bytes": "no line says how long its request was: add %BYTES_RECEIVED%",
    "finish_reason": "no line says how it ended: add %RESPONSE_CODE% and %RESPONSE_FLAGS%",
}
"""By field of ATTEMPTS: what cannot be known without it, and what to add to the access log's format."""


def is_text(head: bytes) -> bool:
    """Whether one of a file's first lines is of the text formats."""
    found = head.split(b"\n", SNIFFED_LINES)[:SNIFFED_LINES]
    return any(LINE.search(plain_line(line[:LINE_MOST].decode("utf-8", "backslashreplace"))) for line in found)


class Envoy(RecordLog):
    name = "envoy"
    describes = "access log of Envoy, Istio, Envoy Gateway, JSON or the default text: times, outcomes, bytes"
    needed = ("arrival_s",)
    vocabulary = Vocabulary(NAMES)
    lacks: ClassVar = LACKS

    def sniff(self, head: bytes, path: str) -> float:
        if is_text(head):
            return 0.9
        sure, ai = envoy_keys(first_record(head))
        return 0.0 if ai else sure

    def read(self, path: str) -> Iterator[Batch]:
        if not is_text(head(path)):
            yield from super().read(path)
            return
        for first, found, dropped in lines(path):
            numbers = [number for number, line in enumerate(found, first) if line.strip()]
            attempts = (self.of_line(found[number - first]) for number in numbers)
            yield self.batch(attempts, numbers, dropped, path)

    def of_line(self, line: str) -> Attempt | str:
        found = LINE.search(line)
        return NO_LINE if found is None else self.of_names(self.vocabulary.nothing | present(found.groupdict()))

    def attempt(self, record: Record) -> Attempt | str:
        return self.of_names(self.vocabulary.said(record))

    def of_names(self, said: dict[str, Any]) -> Attempt | str:
        """The attempt that a line says, by the names of `NAMES`."""
        if (other := other_request(said["method"], said["path"])) is not None:
            return other
        status, reason = ending(said["code"], said["flags"])
        return {
            "arrival_s": said["start"],
            "arrival_basis": "logged_start",
            "source_request_id": text(said["id"]),
            "trace_id": trace_of(said["trace"]),
            "status": status,
            "cancel_reason": reason,
            "http_status": code_of(said["code"]),
            "e2e_s": scaled(said["duration"], 0.001),
            "tenant": text(said["user"]) or address(said["address"]),
            "client": text(said["agent"]),
            "session_id": text(said["session"]),
            "model": text(said["model"]),
            "deployment": text(said["cluster"]),
            "retry_index": amount(said["retry"]),
            "client_timeout_s": amount(said["timeout"]),
            "idempotency_key": text(said["idempotency"]),
            "request_bytes": bytes_of(said["received"]),
            "response_bytes": bytes_of(said["sent"]),
            "error_class": text(said["flags"]) or failure(said["code"], status),
            "finish_reason": "incomplete" if status == "cancelled" else "complete" if status == "ok" else None,
            "extra": extras(upstream_attempts=said["attempts"], headers_s=scaled(said["service"], 0.001)),
        }


def present(said: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value not in NOTHING}


def ending(code: Any, flags: Any) -> tuple[str, str | None]:
    """(status, cancel_reason) by response code and flags, which may be several with commas between them."""
    if (said := text(flags)) is None:
        return outcome(code)
    found = [FLAGS[flag] for flag in said.split(",") if flag in FLAGS]
    for status in ("cancelled", "timeout", "rejected", "error"):
        if (match := next((pair for pair in found if pair[0] == status), None)) is not None:
            return match
    return outcome(code)
