"""An attempt: one row per try found in a log. Raw: nothing is guessed here; null means unknown, never 0."""

from __future__ import annotations

import pyarrow as pa

from trace_schema.fields import BOOL, F64, I32, I64, TEXT, TableSchema, optional, required

STATUSES = ("ok", "cancelled", "timeout", "rejected", "error", "unknown")
TIMEOUT_KINDS = ("total", "first_token", "idle")
CERTAINTIES = ("certain", "inferred", "ambiguous")

ATTEMPTS = TableSchema(
    "attempts",
    "one try found in a log",
    (
        required("source_format", TEXT, "name", "connector that read the row"),
        required("source_file", TEXT, "name", "file that it came from"),
        required("source_row", I64, "count", "1-based row or line in that file"),
        optional("source_request_id", TEXT, "id", "the request's id in the log"),
        optional("trace_id", TEXT, "id", "distributed-tracing id"),
        optional("engine_request_id", TEXT, "id", "the request's id in the engine's log"),
        optional("retry_group", TEXT, "id", "equal for the attempts of one call, where the log says so"),
        optional("retry_index", I32, "count", "0 for the first try, where the log says so"),
        optional(
            "retry_source", TEXT, "name", "how it is known which call it belongs to: the log's own mark, or a rule"
        ),
        optional("retry_certainty", TEXT, "name", "certain, inferred, or ambiguous: others would have fitted too"),
        optional("idempotency_key", TEXT, "id", "key sent with the request"),
        optional("body_hash", TEXT, "id", "keyed hash of the request body"),
        optional("tenant", TEXT, "name", "who is billed"),
        optional("client", TEXT, "name", "which client sent it"),
        optional("session_id", TEXT, "id", "conversation that it belongs to"),
        optional("model", TEXT, "name", "model asked for"),
        optional("deployment", TEXT, "name", "deployment that served it"),
        optional("priority", I32, "", "lower runs first"),
        required("arrival_s", F64, "s", "when it was sent, from the start of the log"),
        optional("arrival_unix_ns", I64, "ns", "when it was sent, since 1970 UTC, where the log has absolute times"),
        required("time_resolution_s", F64, "s", "smallest difference that the log's times can show; 0: continuous"),
        optional(
            "arrival_basis", TEXT, "name", "where the time is from: logged_start, end_minus_duration, logged_end, ..."
        ),
        optional("prompt_tokens", I32, "tokens", "prompt length"),
        optional("prompt_token_source", TEXT, "name", "server_usage, client_tokenizer, engine or estimate"),
        optional("output_tokens", I32, "tokens", "output length of the whole response, or asked for"),
        optional("received_tokens", I32, "tokens", "output tokens that the client had when the attempt ended"),
        optional("max_tokens", I32, "tokens", "output limit that the client set"),
        optional("request_bytes", I64, "bytes", "length of the request, as its log measures it"),
        optional("response_bytes", I64, "bytes", "length of the response's body"),
        optional("cached_prompt_tokens", I32, "tokens", "prompt tokens that the engine found in its cache"),
        optional("block_hashes", pa.list_(pa.uint64()), "id", "identity of each full prompt block, chained"),
        optional("hash_block_tokens", I32, "tokens", "tokens in a block of block_hashes"),
        optional("stream", BOOL, "", "the response was streamed"),
        optional("client_timeout_s", F64, "s", "timeout that the client announced"),
        optional("gateway_timeout_s", F64, "s", "how long the gateway waits for one try of its own"),
        optional("timeout_kind", TEXT, "name", "total, first_token or idle"),
        required("status", TEXT, "name", "ok, cancelled, timeout, rejected, error or unknown"),
        optional("http_status", I32, "", "status code"),
        optional("finish_reason", TEXT, "name", "how its response ended: stop, length, ...; complete or incomplete"),
        optional("error_class", TEXT, "name", "what the log calls its failure"),
        optional(
            "cancel_reason", TEXT, "name", "client_disconnect, client_timeout, gateway_timeout, engine_abort, ..."
        ),
        optional("ttft_s", F64, "s", "from its send to its first token"),
        optional("e2e_s", F64, "s", "from its send to its end"),
        optional("extra", pa.map_(pa.string(), pa.string()), "", "what else the row said"),
    ),
)
