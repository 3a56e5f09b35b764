"""What a run writes. Times are seconds from the start of the trace; charges are integers, so that sums are exact."""

from __future__ import annotations

from trace_schema.fields import BOOL, F64, I32, I64, NAME, TEXT, TableSchema, optional, required

CALL_OUTCOMES = TableSchema(
    "calls",
    "one call and what became of it",
    (
        required("call_id", I64, "id", "the call's row in the trace"),
        required("arrival_s", F64, "s", "when the user asked"),
        required("prompt_tokens", I32, "tokens", "prompt length"),
        required("output_tokens", I32, "tokens", "output that the model would write in full"),
        optional("client_timeout_s", F64, "s", "how long the client waits for one attempt; null: for ever"),
        optional("user_cancel_s", F64, "s", "when the user leaves for good, from arrival, by the trace; null: never"),
        optional("user_cancel_tokens", I32, "tokens", "the user leaves when so many are read of a stream; null: never"),
        optional("idle_e2e_s", F64, "s", "time from arrival to the whole response on an idle replica; null: too long"),
        required("eligible", BOOL, "", "the user does not leave before an idle replica would have answered"),
        required("outcome", NAME, "name", "delivered, cancelled (the user left), failed or unresolved (the run ended)"),
        optional(
            "reason",
            TEXT,
            "name",
            "why it failed: retries_exhausted, budget_exhausted, deadline_exceeded, "
            "stream_not_retried, or rejected: and too_long, queue_full, shed or throttled",
        ),
        optional("first_token_s", F64, "s", "when the client had the first token of the attempt that delivered"),
        optional("end_s", F64, "s", "when the call ended; null while unresolved"),
        required("attempts", I32, "count", "attempts that the client sent"),
        optional("delivered_execution_id", I64, "id", "the execution that delivered it"),
    ),
)

ATTEMPT_OUTCOMES = TableSchema(
    "attempts",
    "one try of a call by its client",
    (
        required("attempt_id", I64, "id", "in the order in which clients sent them"),
        required("call_id", I64, "id", "its call"),
        required("attempt", I32, "count", "0 for the first try"),
        optional("execution_id", I64, "id", "the execution that it waited for; null: it never had one"),
        required("joined", BOOL, "", "it was coalesced onto an execution that another attempt had started"),
        required("start_s", F64, "s", "when the client sent it"),
        optional("first_token_s", F64, "s", "when the client had its first token"),
        optional("end_s", F64, "s", "when it ended for the client; null while unresolved"),
        required(
            "outcome", NAME, "name", "ok, timeout, cancelled, rejected, superseded (by one beside it) or unresolved"
        ),
    ),
)

EXECUTIONS = TableSchema(
    "executions",
    "one request as an engine ran it, with its part of the ledger",
    (
        required("execution_id", I64, "id", "in the order in which the gateway made them"),
        required("call_id", I64, "id", "the call that created it, and is charged for it"),
        optional("replica", I32, "id", "the replica that it was sent to; null: it did not leave the gateway"),
        required("attempts", I32, "count", "attempts that waited for it, the first one included"),
        optional("queued_s", F64, "s", "when the engine received it; null: it did not"),
        optional("admitted_s", F64, "s", "start of the first step that ran it"),
        optional("first_output_s", F64, "s", "end of the step that gave its first token"),
        optional("end_s", F64, "s", "when it finished, or when its abort took effect"),
        required("ended", NAME, "name", "finished, aborted, never_admitted (aborted in the queue) or running_at_end"),
        required("fate", NAME, "name", "delivered, user_cancelled_stream, duplicate, running_at_end or lost"),
        required("prompt_tokens", I32, "tokens", "prompt length"),
        required("cached_prompt_tokens", I32, "tokens", "prompt tokens found in the prefix cache at first admission"),
        required("computed_prompt_tokens", I64, "tokens", "prompt tokens computed, recomputation included"),
        required("computed_output_tokens", I64, "tokens", "output tokens that left the engine"),
        required("recomputed_tokens", I64, "tokens", "tokens computed again after a preemption"),
        required("preemptions", I32, "count", "times it was preempted"),
        required("attended_prefill_ns", I64, "ns", "GPU time of its prefill while a client was waiting"),
        required("attended_decode_ns", I64, "ns", "GPU time of its decoding while a client was waiting"),
        required("orphan_prefill_ns", I64, "ns", "GPU time of its prefill while no client was waiting"),
        required("orphan_decode_ns", I64, "ns", "GPU time of its decoding while no client was waiting"),
        required("recompute_ns", I64, "ns", "GPU time of tokens computed again after a preemption"),
        required("poll_ns", I64, "ns", "GPU time of checking whether its client is still there"),
        required("held_slot_ns", I64, "ns", "GPU time of a batch slot kept after its abort"),
        required("marginal_ns", I64, "ns", "by how much its steps would have been shorter without it"),
        required("kv_block_ns", I64, "ns", "KV blocks that it held, times how long"),
        required("stranded_kv_block_ns", I64, "ns", "the same, while no holder of the block had a waiting client"),
        required("stranded_kv_ns", I64, "ns", "how long it held KV blocks while no client waited for it"),
        required(
            "salvaged_ns", I64, "ns", "its prefill time that a delivered execution reused through the prefix cache"
        ),
    ),
)

TIMELINE = TableSchema(
    "timeline",
    "one replica as a scraper of its metrics would see it at one instant",
    (
        required("sample_s", F64, "s", "instant of the look"),
        required("replica", I32, "id", "replica that it is about"),
        required("running", I32, "count", "requests in the batch"),
        required("waiting", I32, "count", "requests in the queue"),
        required("used_blocks", I64, "blocks", "KV blocks held by running requests"),
        required("busy_ns", I64, "ns", "GPU time so far"),
        required("computed_prompt_tokens", I64, "tokens", "prompt tokens computed so far"),
        required("computed_output_tokens", I64, "tokens", "output tokens so far"),
        required("counter_prompt_tokens", I64, "tokens", "what the engine's prompt_tokens_total shows so far"),
        required("preemptions", I64, "count", "preemptions so far"),
    ),
)

REPLICAS = TableSchema(
    "replicas",
    "one replica at the end of the run",
    (
        required("replica", I32, "id", "replica that it is about"),
        required("end_s", F64, "s", "when the run ended"),
        required("steps", I64, "count", "steps that ran something"),
        required("busy_ns", I64, "ns", "sum of the steps' durations"),
        required("allocated_blocks", I64, "blocks", "blocks given to requests over the run, prefix hits included"),
        required("released_blocks", I64, "blocks", "blocks given back over the run"),
        required(
            "counter_prompt_tokens",
            I64,
            "tokens",
            "what prompt_tokens_total shows: a whole prompt at each first output",
        ),
        required("computed_prompt_tokens", I64, "tokens", "prompt tokens computed"),
        required("unfinished", I32, "count", "requests in the batch or the queue when the run ended"),
    ),
)

STEPS = TableSchema(
    "steps",
    "one step of one replica that ran something",
    (
        required("replica", I32, "id", "replica that it is about"),
        required("step", I64, "count", "its place in the replica's schedule"),
        required("scheduled_at_s", F64, "s", "when the scheduler decided it"),
        required("start_s", F64, "s", "when it began to run"),
        required("duration_s", F64, "s", "how long it ran"),
        required("prefill_tokens", I32, "tokens", "tokens of prefill chunks"),
        required("decode_tokens", I32, "tokens", "tokens of decoding requests"),
        required("context_tokens", I64, "tokens", "sum of the computed tokens of its requests, after the step"),
        required("running", I32, "count", "requests in the batch after scheduling"),
        required("waiting", I32, "count", "requests in the queue after scheduling"),
        required("free_blocks", I64, "blocks", "free KV blocks after scheduling"),
        required("preempted", I32, "count", "requests preempted by this step"),
    ),
)

RESULTS = (CALL_OUTCOMES, ATTEMPT_OUTCOMES, EXECUTIONS, TIMELINE, REPLICAS, STEPS)
