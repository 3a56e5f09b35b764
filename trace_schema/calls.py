"""A call: one thing a user wanted. A trace is a table of calls; it is what the engine replays."""

from __future__ import annotations

import pyarrow as pa

from trace_schema.fields import BOOL, F64, I32, I64, TEXT, TableSchema, optional, required

CALLS = TableSchema(
    "calls",
    "one thing a user wanted: when, how long its prompt, how long the output, how long the client waits",
    (
        required("call_id", I64, "id", "0, 1, 2, ... in order of arrival"),
        required("content_id", I64, "id", "equal for calls with the same prompt and the same output"),
        optional("source_call", TEXT, "id", "the call's name in the log"),
        optional("idempotency_key", TEXT, "id", "key under which a gateway may coalesce this call with others"),
        required("arrival_s", F64, "s", "when the client sent its first attempt, from the start of the trace"),
        optional("model", TEXT, "name", "model asked for"),
        optional("deployment", TEXT, "name", "deployment that served it"),
        optional("tenant", TEXT, "name", "who is billed"),
        optional("client", TEXT, "name", "which client sent it"),
        optional("session_id", TEXT, "id", "conversation that it belongs to"),
        optional("turn", I32, "count", "its place in the conversation, from 0"),
        optional("previous_call_id", I64, "id", "call_id of the turn before, which lies above it"),
        optional("think_time_s", F64, "s", "from the end of the turn before to this arrival; null: it comes by itself"),
        required("priority", I32, "", "lower runs first, where the engine schedules by priority"),
        required("prompt_tokens", I32, "tokens", "prompt length"),
        required("output_tokens", I32, "tokens", "output that the model would write in full"),
        required("output_censored", BOOL, "", "output_tokens is a lower bound: every attempt was cut short"),
        optional("max_tokens", I32, "tokens", "output limit that the client set"),
        optional("block_hashes", pa.list_(pa.uint64()), "id", "identity of each full prompt block, chained"),
        optional("hash_block_tokens", I32, "tokens", "tokens in a block of block_hashes"),
        optional("stream", BOOL, "", "the response was streamed"),
        optional("user_cancel_s", F64, "s", "when the user left for good, from arrival"),
        optional("user_cancel_tokens", I64, "tokens", "the user leaves with so many tokens of a stream"),
        required("patience_censored", BOOL, "", "the user might have left later, had the call not ended first"),
        optional("client_timeout_s", F64, "s", "how long the client waits for one attempt"),
        optional("timeout_kind", TEXT, "name", "total, first_token or idle"),
        optional("prompt_token_source", TEXT, "name", "server_usage, client_tokenizer, engine or estimate"),
        optional("retry_source", TEXT, "name", "how its attempts were joined: by the log's own mark, or by a rule"),
        optional("retry_certainty", TEXT, "name", "of the least certain of them: certain, inferred or ambiguous"),
        required("observed_attempts", I32, "count", "attempts in the log"),
        optional("observed_status", TEXT, "name", "how its last attempt ended in the log"),
        optional("observed_ttft_s", F64, "s", "time to first token of the attempt that delivered it, from its send"),
        optional("observed_e2e_s", F64, "s", "from the call's arrival to its delivery, in the log"),
    ),
)
