"""Access logs of nginx: a JSON log_format, or the combined and common formats with what people append to them.

nginx writes a line when a request ends, so that it began `$request_time` before. It writes 499 when the client left
before the response's headers; afterwards the status has been sent, and only an empty `$request_completion` tells. A
list in `$upstream_status` (502, 200) is nginx's own retries, a try of each upstream. `$upstream_header_time` is no time
to first token: vLLM sends the headers of a stream before the request waits in its queue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa

from connectors.advice import lacking
from connectors.base import Batch, Dropped
from connectors.bodies import name_of_secret
from connectors.clf import entry_of, is_clf
from connectors.files import CUT_SHORT, UNDECODABLE, blocks, first_object, head, objects, reason_of
from connectors.instants import unix_time
from connectors.rows import attempts_of

Row = dict[str, Any]

NAMES: dict[str, tuple[str, ...]] = {
    "ended": ("msec", "time_iso8601", "time_local", "timestamp", "@timestamp", "ts", "time", "date", "datetime"),
    "duration": ("request_time", "rt", "duration", "request_duration", "response_time", "latency"),
    "status": ("status", "code", "status_code", "response_code", "http_status"),
    "completion": ("request_completion", "completion", "rc"),
    "request": ("request", "req"),
    "method": ("request_method", "method", "verb"),
    "path": ("request_uri", "uri", "path", "url"),
    "upstream_status": ("upstream_status", "us"),
    "upstream_time": ("upstream_response_time", "urt"),
    "request_bytes": ("content_length", "http_content_length", "request_length", "rl", "bytes_in"),
    "response_bytes": ("body_bytes_sent", "bytes_sent", "bytes_out", "size"),
    "content_type": ("sent_http_content_type", "upstream_http_content_type", "content_type"),
    "id": ("request_id", "req_id", "rid", "id"),
    "outer_id": ("http_x_request_id", "x_request_id", "upstream_http_x_request_id", "sent_http_x_request_id"),
    "trace": ("traceparent", "http_traceparent", "trace_id", "otel_trace_id", "opentracing_context_traceparent"),
    "retry": ("retry_count", "http_x_stainless_retry_count", "x_stainless_retry_count", "stainless_retry_count"),
    "timeout": ("read_timeout", "http_x_stainless_read_timeout", "x_stainless_read_timeout", "stainless_read_timeout"),
    "key": ("idempotency_key", "http_idempotency_key"),
    "user": ("user", "http_x_user", "x_user", "user_id", "http_x_user_id", "x_user_id", "tenant", "remote_user",
             "consumer"),
    "secret": ("api_key", "apikey", "http_x_api_key", "http_api_key", "authorization", "http_authorization"),
    "address": ("http_x_forwarded_for", "x_forwarded_for", "remote_addr", "client_ip", "remote_ip", "client", "ip"),
    "agent": ("http_user_agent", "user_agent", "agent"),
    "session": ("session_id", "http_x_session_id", "x_session_id", "conversation_id"),
    "model": ("model", "http_x_model", "llm_model"),
    "upstream": ("upstream_addr", "upstream"),
    "prompt_tokens": ("prompt_tokens", "input_tokens"),
    "output_tokens": ("completion_tokens", "output_tokens"),
    "max_tokens": ("max_tokens",),
}  # fmt: skip
"""What people call a variable in their log_format, the best of them first; nginx's own name for it among them."""
OWN = {"remote_addr", "remote_user", "time_local", "time_iso8601", "msec", "request", "request_method", "request_uri",
       "status", "body_bytes_sent", "bytes_sent", "request_length", "request_time", "request_completion", "request_id",
       "http_referer", "http_user_agent", "upstream_addr", "upstream_status", "upstream_response_time",
       "upstream_header_time", "upstream_connect_time", "upstream_cache_status"}  # fmt: skip
"""Variables of nginx: a JSON object that has four of them, the status among them, is of its log."""
OWN_LEAST = 4
LINE_MOST = 1 << 16
"""Bytes of a longest line that is mended to see what it is."""
OTHER_PATHS = re.compile(
    r"/(health|healthz|ping|ready|live|livez|readyz|metrics|version|tokenize|detokenize|models|load|stats|favicon\.ico"
    r"|embeddings|rerank|score|pooling|classify)/?$"
)
"""POST or not, these run no generation."""
NONE = ("", "-", None)
LIST = re.compile(r"\s*[,:]\s+|\s*,\s*")
HEX_ESCAPE = re.compile(rb"\\x([0-9A-Fa-f]{2})")
BARE = re.compile(rb'":\s*-?\s*(?=[,}])')
BARE_LIST = re.compile(rb'":\s*((?:-|[\d.]+)(?:\s*[,:]\s*(?:-|[\d.]+))+)\s*(?=[,}])')
SIZES = ("request_bytes", "response_bytes", "prompt_tokens", "output_tokens", "max_tokens")
FIELDS = ("arrival_s", "arrival_basis", "e2e_s", "status", "http_status", "cancel_reason", "error_class", "retry_group",
          "retry_source", "retry_certainty", "retry_index", "client_timeout_s", "idempotency_key", "source_request_id",
          "engine_request_id", "trace_id", "tenant", "client", "session_id", "model", "deployment", "stream",
          "finish_reason", *SIZES)  # fmt: skip
"""Fields of ATTEMPTS that a line may fill."""
WITHOUT = {
    "prompt_tokens": "nginx knows no tokens: read its log with one of the engine (--with vllm.steps.jsonl), or give "
    "--bytes-per-token",
    "e2e_s": "no line says how long its request took, and so neither when it began nor who gave up when; times are "
    "those of the ends: add $msec and $request_time to log_format",
    "source_request_id": "no line has an id by which an engine's log could be joined: add $request_id to log_format, "
    "and proxy_set_header X-Request-Id $request_id (vLLM takes it with --enable-request-id-headers)",
    "retry_index": "no line says whether it is a retry: add $http_x_stainless_retry_count to log_format",
    "client_timeout_s": "no line says how long its client waits: add $http_x_stainless_read_timeout to log_format",
    "finish_reason": "no line says whether its response was complete (nginx writes 200, not 499, for a stream whose "
    "client left after the headers): add $request_completion to log_format",
    "request_bytes": "no line says how long its request was, by which a retry is known: add "
    "$request_length to log_format",
}
"""By field of ATTEMPTS: what cannot be known without it, and what to add."""


class Nginx:
    name = "nginx"
    describes = "access log of nginx: a JSON log_format, combined or common; outcomes and retries, but no tokens"

    def sniff(self, head: bytes, path: str) -> float:
        first = first_object(head) or first_mended(head)
        if first is not None:
            known = len(OWN & {plain(key) for key in first})
            named = any(plain(key) in NAMES["status"] for key in first)
            return min(known / OWN_LEAST, 1.0) if named and known > 1 else 0.0
        return 0.8 if is_clf(head) else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        is_json = head(path).lstrip().startswith((b"{", b"["))
        for rows, numbers, dropped in lines_of_json(path) if is_json else lines_of_text(path):
            yield self.attempts(rows, numbers, path, dropped)

    def attempts(self, rows: list[Row], numbers: list[int], path: str, dropped: Dropped) -> Batch:
        tries: list[Row] = []
        for row, number in zip(rows, numbers, strict=True):
            entry = known(row)
            other = other_business(entry)
            if other:
                dropped.add(other, number)
            else:
                tries += tries_of(entry, number, path)
        columns = {field: [t.get(field) for t in tries] for field in FIELDS}
        places = np.asarray([t["row"] for t in tries], np.int64)
        others = dropped.total
        batch = attempts_of(
            columns, places, source_format=self.name, source_file=path, dropped=dropped, needed=("arrival_s",)
        )
        shared = batch.attempts.num_rows + batch.dropped.total - others - len(np.unique(places))
        return Batch(batch.attempts, batch.dropped, shared)

    def notes(self, attempts: pa.Table) -> list[str]:
        """What the log cannot show, and what to add to log_format."""
        return lacking(attempts, WITHOUT)


def lines_of_json(path: str) -> Iterator[tuple[list[Row], list[int], Dropped]]:
    """(rows, line numbers, lines that hold none) of a JSON log_format."""
    for found, numbers, dropped in objects(path, cast(Any, Mended()), reason_of):
        yield [{plain(key): value for key, value in row.items()} for row in found], numbers, dropped


def lines_of_text(path: str) -> Iterator[tuple[list[Row], list[int], Dropped]]:
    """(rows, line numbers, lines that hold none) of the combined or the common format."""
    first = 1
    for block in blocks(path):
        dropped = Dropped()
        if block is None:
            dropped.add(CUT_SHORT, first)
            yield [], [], dropped
            return
        rows, numbers = [], []
        lines = block.decode("utf-8", "backslashreplace").split("\n")
        lines = lines[:-1] if lines[-1] == "" else lines
        for number, line in enumerate(lines, first):
            row = entry_of(line)
            if row is not None:
                rows.append(row)
                numbers.append(number)
            elif line.strip():
                dropped.add("not a line of an access log", number)
        yield rows, numbers, dropped
        first += len(lines)


class Mended:
    """A decoder of JSON lines as nginx writes them: without `escape=json`, or with a variable outside of quotes."""

    def __init__(self) -> None:
        self.decoder = msgspec.json.Decoder(Row)

    def decode_lines(self, block: bytes) -> list[Row]:
        return self.decoder.decode_lines(block)

    def decode(self, line: bytes) -> Row:
        try:
            return self.decoder.decode(line)
        except msgspec.DecodeError:
            line = BARE_LIST.sub(rb'":"\1"', BARE.sub(b'":null', HEX_ESCAPE.sub(rb"\\u00\1", line)))
            return self.decoder.decode(line)


def first_mended(head: bytes) -> Row | None:
    """The first line, if it is a JSON object but for how nginx writes some of its values."""
    line = head.lstrip().split(b"\n", 1)[0]
    try:
        return Mended().decode(line) if line.startswith(b"{") and len(line) < LINE_MOST else None
    except UNDECODABLE:
        return None


def plain(key: str) -> str:
    """A variable's name as `NAMES` has it."""
    return key.strip().lstrip("$").lower().replace("-", "_").replace(".", "_")


def known(row: Row) -> Row:
    """What a line says, by the keys of `NAMES`; the first of their names that says something."""
    entry = {}
    for what, names in NAMES.items():
        for name in names:
            value = row.get(name)
            if value not in NONE:
                entry[what] = value
                break
    entry["tells_completion"] = any(name in row for name in NAMES["completion"])
    method, _, rest = str(entry.get("request", "")).partition(" ")
    entry.setdefault("method", method)
    entry.setdefault("path", rest.rpartition(" ")[0] or rest)
    return entry


def other_business(entry: Row) -> str | None:
    """Why a line is no request to a model; None where it is one."""
    method = str(entry["method"]).upper()
    if method not in ("POST", ""):
        return f"{method if method.isalpha() else 'what is not HTTP'} is no request to a model"
    found = OTHER_PATHS.search(str(entry["path"]).partition("?")[0])
    return f"POST {found[0]} is no request to a model" if found else None


def tries_of(entry: Row, number: int, path: str) -> list[Row]:
    """The tries that a line tells of: one, or as many as nginx made of upstreams."""
    base = common(entry, number)
    codes = (
        [number_of(code) for code in LIST.split(str(entry["upstream_status"]))] if "upstream_status" in entry else []
    )
    spans = [number_of(span) for span in LIST.split(str(entry.get("upstream_time", "")))]
    start, e2e = base["arrival_s"], base["e2e_s"]
    if len(codes) < 2 or len(spans) != len(codes) or not isinstance(start, float) or e2e is None:
        return [base]
    # The last try ends when the request does; those before lie one after the other from its beginning.
    mark = {"retry_group": f"{path}:{number}", "retry_source": "upstream list", "retry_certainty": "certain"}
    tries: list[Row] = []
    began = 0.0
    for code, span in zip(codes[:-1], spans[:-1], strict=True):
        tries.append({**base, **outcome_of(code, True), **mark, "arrival_s": start + began, "e2e_s": span or 0.0})
        began += span or 0.0
    return [*tries, {**base, **mark, "arrival_s": start + began, "e2e_s": max(e2e - began, 0.0)}]


def common(entry: Row, number: int) -> Row:
    """The fields of ATTEMPTS that a line has once, and its outcome for the client."""
    ended, e2e = unix_time(entry.get("ended")), number_of(entry.get("duration"))
    completion = entry.get("completion") == "OK" if entry["tells_completion"] else None
    secret, trace, content_type = entry.get("secret"), entry.get("trace"), entry.get("content_type")
    address = str(entry.get("address", "")).partition(",")[0].strip()
    return {
        "row": number,
        "arrival_s": ended - e2e if isinstance(ended, float) and e2e is not None else ended,
        "arrival_basis": "logged_end" if e2e is None else "end_minus_duration",
        "e2e_s": e2e,
        **outcome_of(number_of(entry.get("status")), completion),
        "finish_reason": None if completion is None else "complete" if completion else "incomplete",
        "retry_index": entry.get("retry"),
        "client_timeout_s": number_of(entry.get("timeout")),
        "idempotency_key": entry.get("key"),
        "source_request_id": entry.get("id", entry.get("outer_id")),
        "engine_request_id": entry.get("outer_id") if "id" in entry else None,
        "trace_id": trace.split("-")[1] if isinstance(trace, str) and trace.count("-") == 3 else trace,
        "tenant": entry.get("user") or (name_of_secret(str(secret)) if secret else None) or address or None,
        "client": entry.get("agent"),
        "session_id": entry.get("session"),
        "model": entry.get("model"),
        "deployment": LIST.split(entry["upstream"])[-1] if isinstance(entry.get("upstream"), str) else None,
        "stream": "event-stream" in content_type if isinstance(content_type, str) else None,
        **{name: entry.get(name) for name in SIZES},
    }


def outcome_of(code: float | None, complete: bool | None) -> Row:
    """status, http_status, cancel_reason and error_class of a try that ended with an HTTP status."""
    if code is None or code < 100:
        return {"status": "unknown", "http_status": None, "cancel_reason": None, "error_class": None}
    status, reason = "error", None
    if code == 499 or (code < 400 and complete is False):
        status, reason = "cancelled", "client_disconnect"
    elif code < 400:
        status = "ok"
    elif code == 504:
        status, reason = "timeout", "gateway_timeout"
    elif code < 500 or code == 503:
        status = "rejected"
    failed = None if status in ("ok", "cancelled") else f"HTTP {code:.0f}"
    return {"status": status, "http_status": code, "cancel_reason": reason, "error_class": failed}


def number_of(value: Any) -> float | None:
    """A number, or a text of one; of a list, the last."""
    if isinstance(value, int | float):
        return float(value)
    try:
        return float(LIST.split(value)[-1]) if isinstance(value, str) else None
    except ValueError:
        return None
