"""Access logs of nginx: a JSON log_format, or the combined and common formats with what people append to them.

nginx writes a line when a request ends, so that it began `$request_time` before. It writes 499 when the client left
before the response's headers; afterwards the status has been sent, and only an empty `$request_completion` tells.
Such a response was a stream. A list in `$upstream_status` (502, 200) is nginx's own retries, a try of each upstream.
`$upstream_header_time` is no time to first token: vLLM sends the headers of a stream before the request waits in its
queue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connectors.advice import lacking
from connectors.base import Batch, Dropped
from connectors.bodies import name_of_secret
from connectors.clf import entries_of, is_clf
from connectors.files import (
    CUT_SHORT,
    UNDECODABLE,
    blocks,
    counted,
    first_object,
    head,
    json_blocks,
    objects_in,
    reason_of,
)
from connectors.instants import unix_time
from connectors.rows import as_array, attempts_of
from connectors.typed_lines import texts_of

Row = dict[str, Any]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

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
KNOWN = set(chain.from_iterable(NAMES.values()))
OWN = {"remote_addr", "remote_user", "time_local", "time_iso8601", "msec", "request", "request_method", "request_uri",
       "status", "body_bytes_sent", "bytes_sent", "request_length", "request_time", "request_completion", "request_id",
       "http_referer", "http_user_agent", "upstream_addr", "upstream_status", "upstream_response_time",
       "upstream_header_time", "upstream_connect_time", "upstream_cache_status"}  # fmt: skip
"""Variables of nginx: a JSON object that has four of them, the status among them, is of its log."""
OWN_LEAST = 4
LINE_MOST = 1 << 16
"""Bytes of a longest line that is mended to see what it is."""
OTHER_PATHS = (
    r"/(health|healthz|ping|ready|live|livez|readyz|metrics|version|tokenize|detokenize|models|load|stats|favicon\.ico"
    r"|embeddings|rerank|score|pooling|classify)/?(\?.*)?$"
)
"""POST or not, these run no generation."""
NOTHING = pa.array(["", "-"])
LIST = re.compile(r"\s*[,:]\s+|\s*,\s*")
LISTED, FIRST, LAST = r",|\s:\s", r"^(?P<first>[^,]*)", r"(?P<last>[^,\s]+)\s*$"
REQUEST = r"^(?P<method>[A-Za-z]+)\s+(?P<path>\S+)"
NUMBER = r"(?:^|[\s,:])(?P<number>\d+(?:\.\d*)?|\.\d+)\s*$"
WHOLE_NUMBER = r"^\s*(?P<number>\d+(?:\.\d*)?)\s*$"
TRACEPARENT = r"^[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$"
HEX_ESCAPE = re.compile(rb"\\x([0-9A-Fa-f]{2})")
BARE = re.compile(rb'":\s*-?\s*(?=[,}])')
BARE_LIST = re.compile(rb'":\s*((?:-|[\d.]+)(?:\s*[,:]\s*(?:-|[\d.]+))+)\s*(?=[,}])')
SIZES = ("request_bytes", "response_bytes", "prompt_tokens", "output_tokens", "max_tokens")
OF_A_TRY = ("arrival_s", "arrival_unix_ns", "e2e_s", "status", "http_status", "cancel_reason", "error_class",
            "retry_group", "retry_source", "retry_certainty")  # fmt: skip
"""Fields of ATTEMPTS in which the tries of a line differ from it."""
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
        for said, places, dropped in lines_of_json(path) if is_json else lines_of_text(path):
            yield self.attempts(said, places, path, dropped)

    def attempts(self, said: Said, places: Ints, path: str, dropped: Dropped) -> Batch:
        wanted = requests(said, places, dropped)
        lines = said.where(wanted)
        batch = attempts_of(
            columns_of(lines), places[wanted], source_format=self.name, source_file=path, dropped=dropped,
            needed=("arrival_s",),
        )  # fmt: skip
        tries = with_tries(batch.attempts, lines, places[wanted])
        return Batch(tries, batch.dropped, tries.num_rows - batch.attempts.num_rows)

    def notes(self, attempts: pa.Table) -> list[str]:
        """What the log cannot show, and what to add to log_format."""
        return lacking(attempts, WITHOUT)


def lines_of_json(path: str) -> Iterator[tuple[Said, Ints, Dropped]]:
    """(what lines say, their numbers, lines that say nothing) of a JSON log_format."""
    decoder = cast(Any, Mended())
    for block, lines in counted(json_blocks(path)):
        dropped = Dropped()
        if block is None:
            dropped.add(CUT_SHORT, lines.start)
            yield Said(0, {}), np.empty(0, np.int64), dropped
        elif (said := said_at_once(block, len(lines))) is not None:
            yield said, np.arange(lines.start, lines.stop), dropped
        else:
            rows, numbers = objects_in(block, lines, decoder, reason_of, dropped)
            yield said_by(rows), np.asarray(numbers, np.int64), dropped


def lines_of_text(path: str) -> Iterator[tuple[Said, Ints, Dropped]]:
    """(what lines say, their numbers, lines that say nothing) of the combined or the common format."""
    for block, lines in counted(blocks(path)):
        dropped = Dropped()
        if block is None:
            dropped.add(CUT_SHORT, lines.start)
            yield Said(0, {}), np.empty(0, np.int64), dropped
            return
        numbers = np.arange(lines.start, lines.stop)
        texts = pa.array(block.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n"), pa.string())
        texts = pc.utf8_trim_whitespace(texts)
        columns, found = entries_of(texts)
        dropped.add_all("not a line of an access log", numbers[~found & np.asarray(pc.not_equal(texts, ""))])
        yield Said(int(found.sum()), columns), numbers[found], dropped


def said_at_once(block: bytes, count: int) -> Said | None:
    """What `count` lines say, if all their values are texts; each key must have a plain name of its own."""
    table = texts_of(block)
    if table is None or table.num_rows != count:
        return None
    columns = {plain(key): table[key].combine_chunks() for key in table.column_names}
    return Said(count, columns) if len(columns) == table.num_columns else None


def said_by(rows: list[Row]) -> Said:
    """What objects say, by the plain names of their keys; of two that have one name, the later counts."""
    shapes = set(map(tuple, rows))
    names = {key: plain(key) for key in dict.fromkeys(chain.from_iterable(shapes))}
    if len(set(names.values())) < len(names):
        return said_by([{names[key]: value for key, value in row.items()} for row in rows])
    everywhere = set.intersection(*map(set, shapes)) if shapes else set()
    columns = {}
    for key, name in names.items():
        if name in KNOWN:
            columns[name] = list(map(itemgetter(key), rows)) if key in everywhere else [row.get(key) for row in rows]
    return Said(len(rows), columns)


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


class Said:
    """What `count` lines say: a column for each variable, by its plain name."""

    def __init__(self, count: int, columns: Mapping[str, pa.Array | list[Any]]) -> None:
        self.count, self.columns = count, columns
        self.texts: dict[str, pa.Array] = {}

    def where(self, wanted: Mask) -> Said:
        """What some of the lines say."""
        if wanted.all():
            return self
        mask = pa.array(wanted)
        return Said(int(wanted.sum()), {name: self.raw(name).filter(mask) for name in self.columns})

    def raw(self, name: str) -> pa.Array:
        """A variable as texts; null where a line does not have it."""
        if name not in self.texts:
            values = as_array(self.columns[name])
            self.texts[name] = values if pa.types.is_string(values.type) else cast_texts(values)
        return self.texts[name]

    def get(self, what: str) -> pa.Array:
        """What the first of a key's names in `NAMES` says that says something."""
        found = pa.nulls(self.count, pa.string())
        for name in NAMES[what]:
            if name in self.columns:
                values = self.raw(name)
                found = pc.coalesce(found, pc.if_else(pc.is_in(values, value_set=NOTHING), None, values))
        return found

    def complete(self) -> pa.Array:
        """Whether nginx finished its response; null where it does not say."""
        name = next((name for name in NAMES["completion"] if name in self.columns), None)
        return pa.nulls(self.count, pa.bool_()) if name is None else pc.equal(self.raw(name), "OK")


def cast_texts(values: pa.Array) -> pa.Array:
    """Numbers as texts."""
    return pa.array([None if v is None else str(v) for v in values.to_pylist()], pa.string())


def requests(said: Said, places: Ints, dropped: Dropped) -> Mask:
    """Which lines are requests to a model; the others are dropped."""
    parts = pc.extract_regex(said.get("request"), REQUEST)
    method = pc.utf8_upper(pc.coalesce(pc.struct_field(parts, "method"), said.get("method")))
    path = pc.coalesce(pc.struct_field(parts, "path"), said.get("path"))
    method = pc.if_else(pc.and_(method.is_null(), said.get("request").is_valid()), "?", method)
    posted = np.asarray(pc.fill_null(pc.equal(method, "POST"), True))
    for name in pc.unique(method.filter(pa.array(~posted))).to_pylist():
        what = name if name.isalpha() else "what is not HTTP"
        dropped.add_all(
            f"{what} is no request to a model", places[np.asarray(pc.fill_null(pc.equal(method, name), False))]
        )
    other = np.asarray(pc.fill_null(pc.match_substring_regex(path, OTHER_PATHS), False)) & posted
    for name in pc.unique(path.filter(pa.array(other))).to_pylist():
        found = np.asarray(pc.fill_null(pc.equal(path, name), False)) & other
        dropped.add_all(f"POST {name.partition('?')[0]} is no request to a model", places[found])
    return np.asarray(posted & ~other)


def columns_of(lines: Said) -> dict[str, pa.Array]:
    """The fields of ATTEMPTS that a line has once, and its outcome for the client."""
    get = lines.get
    e2e, ended, trace, complete = last_number(get("duration")), seconds(get("ended")), get("trace"), lines.complete()
    address = pc.utf8_trim_whitespace(pc.struct_field(pc.extract_regex(get("address"), FIRST), "first"))
    return {
        "arrival_s": pc.coalesce(pc.subtract(ended, e2e), ended),
        "arrival_basis": pc.if_else(e2e.is_null(), "logged_end", "end_minus_duration"),
        "e2e_s": e2e,
        **outcomes(last_number(get("status")), complete),
        "finish_reason": pc.if_else(complete, "complete", "incomplete"),
        "retry_index": get("retry"),
        "client_timeout_s": last_number(get("timeout")),
        "idempotency_key": get("key"),
        "source_request_id": pc.coalesce(get("id"), get("outer_id")),
        "engine_request_id": pc.if_else(get("id").is_valid(), get("outer_id"), None),
        "trace_id": pc.coalesce(pc.struct_field(pc.extract_regex(trace, TRACEPARENT), "trace"), trace),
        "tenant": pc.coalesce(get("user"), owners(get("secret")), address),
        "client": get("agent"),
        "session_id": get("session"),
        "model": get("model"),
        "deployment": pc.struct_field(pc.extract_regex(get("upstream"), LAST), "last"),
        "stream": pc.coalesce(pc.match_substring(get("content_type"), "event-stream"), cut_after_headers(lines)),
        **{name: get(name) for name in SIZES},
    }


def cut_after_headers(lines: Said) -> pa.Array:
    """True for responses that broke off after their status had been sent, which were streams then; else null."""
    sent = pc.equal(last_number(lines.get("status")), 200.0)
    cut = pc.fill_null(pc.and_kleene(pc.invert(lines.complete()), sent), False)
    return pc.if_else(cut, True, pa.scalar(None, pa.bool_()))


def with_tries(attempts: pa.Table, lines: Said, numbers: Ints) -> pa.Table:
    """`attempts` of `lines` as far as they were kept, with a row for each try of those with several upstreams."""
    codes, spans = lines.get("upstream_status"), lines.get("upstream_time")
    line = np.searchsorted(numbers, np.asarray(attempts["source_row"]))
    several = np.asarray(pc.fill_null(pc.match_substring_regex(codes, LISTED), False))[line]
    tries: dict[int, list[Row]] = {}
    for row in np.flatnonzero(several).tolist():
        found = tries_of(
            attempts.slice(row, 1).to_pylist()[0], codes[line[row]].as_py(), spans[line[row]].as_py() or ""
        )
        if found:
            tries[row] = found
    if not tries:
        return attempts
    counts = np.ones(attempts.num_rows, np.int64)
    counts[list(tries)] = [len(found) for found in tries.values()]
    first = np.cumsum(counts) - counts
    table = attempts.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    for name in OF_A_TRY:
        place = table.column_names.index(name)
        values = table[name].to_pylist()
        for row, found in tries.items():
            values[first[row] : first[row] + counts[row]] = [one[name] for one in found]
        table = table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))
    return table


def tries_of(attempt: Row, codes: str, spans: str) -> list[Row]:
    """The tries of an attempt whose upstreams are a list; none, if their times are no list of equal length.

    The last try ends when the request does; those before lie one after the other from its beginning.
    """
    ended = last_number(pa.array(LIST.split(codes)))
    lasted = last_number(pa.array(LIST.split(spans))).to_pylist()
    if len(lasted) != len(ended) or attempt["e2e_s"] is None:
        return []
    group = f"{attempt['source_file']}:{attempt['source_row']}"
    mark = {"retry_group": group, "retry_source": "upstream list", "retry_certainty": "certain"}
    outcome = {name: values.to_pylist() for name, values in outcomes(ended, pa.nulls(len(ended), pa.bool_())).items()}
    found: list[Row] = []
    began = 0.0
    for place, span in enumerate(lasted):
        last, left = place == len(lasted) - 1, max(attempt["e2e_s"] - began, 0.0)
        span = left if last else min(span or 0.0, left)
        unix_ns = attempt["arrival_unix_ns"]
        found.append({
            **attempt,
            **({} if last else {name: values[place] for name, values in outcome.items()}),
            **mark,
            "arrival_s": attempt["arrival_s"] + began,
            "arrival_unix_ns": None if unix_ns is None else unix_ns + round(1e9 * began),
            "e2e_s": span,
        })  # fmt: skip
        began += span
    return found


def outcomes(code: pa.Array, complete: pa.Array) -> dict[str, pa.Array]:
    """status, http_status, cancel_reason and error_class of tries that ended with an HTTP status."""
    known = pc.fill_null(pc.and_(pc.greater_equal(code, 100), pc.less(code, 1000)), False)
    cut = pc.or_(pc.equal(code, 499), pc.and_(pc.less(code, 400), pc.invert(pc.fill_null(complete, True))))
    refused = pc.or_(pc.and_(pc.greater_equal(code, 400), pc.less(code, 500)), pc.equal(code, 503))
    cases = (pc.invert(known), cut, pc.less(code, 400), pc.equal(code, 504), refused)
    conditions = pa.StructArray.from_arrays([pc.fill_null(case, False) for case in cases], list("abcde"))
    status = pc.case_when(conditions, "unknown", "cancelled", "ok", "timeout", "rejected", "error")
    reason = pc.if_else(pc.equal(status, "cancelled"), "client_disconnect", None)
    failed = pc.is_in(status, value_set=pa.array(["timeout", "rejected", "error"]))
    number = pc.if_else(known, code, None)
    words = pc.binary_join_element_wise(
        "HTTP", pc.cast(pc.floor(number), pa.int64(), safe=False).cast(pa.string()), " "
    )
    return {
        "status": status,
        "http_status": number,
        "cancel_reason": pc.if_else(pc.equal(status, "timeout"), "gateway_timeout", reason),
        "error_class": pc.if_else(failed, words, None),
    }


def last_number(texts: pa.Array) -> pa.Array:
    """The number that a text ends with: of a list, the last."""
    found = pc.struct_field(pc.extract_regex(texts, NUMBER), "number")
    return pc.cast(found, pa.float64())


def seconds(texts: pa.Array) -> pa.Array:
    """Times in seconds since 1970, $msec or of another kind; NaN for what is none."""
    number = pc.struct_field(pc.extract_regex(texts, WHOLE_NUMBER), "number").cast(pa.float64())
    other = texts.filter(number.is_null()).dictionary_encode()
    if not len(other.dictionary):
        return number
    times = [unix_time(text) for text in other.dictionary.to_pylist()]
    known = pa.array([time if isinstance(time, float) else float("nan") for time in times], pa.float64())
    return pc.replace_with_mask(number, number.is_null(), known.take(other.indices))


def owners(secrets: pa.Array) -> pa.Array:
    """A name for whoever has each secret."""
    coded = secrets.dictionary_encode()
    names = pa.array([name_of_secret(secret) for secret in coded.dictionary.to_pylist()], pa.string())
    return names.take(coded.indices)
