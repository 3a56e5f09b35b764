"""The arrays of one simulation. They are allocated once, and grown between slices of the run when they fill up.

Every replica has its own range of slots, blocks, ring and table rows, so that a slot or a block is one number however
many replicas there are. Times are seconds (float64); charges are integers in femtoseconds, and their running totals
may wrap around: only differences are read, and those fit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

# Status of an execution.
QUEUED, RUNNING, FINISHED, ABORTED = 0, 1, 2, 3
# What a slot of the batch holds.
EMPTY, PREFILLING, DECODING, PAUSED, DRAINING = 0, 1, 2, 3, 4
# Status of an attempt.
OPEN, OK, TIMEOUT, CANCELLED, REJECTED, SUPERSEDED = 0, 1, 2, 3, 4, 5
# Status of a call.
LIVE, DELIVERED, LEFT, RETRIES_EXHAUSTED, BUDGET_EXHAUSTED, TOO_LONG = 0, 1, 2, 3, 4, 5
DEADLINE_EXCEEDED, QUEUE_FULL, SHED, THROTTLED, STREAM_BROKEN = 6, 7, 8, 9, 10
# Whether a call waits for the turn before it, or did.
FOR_ITS_TURN, HAS_COME = 1, 2
# What a client's timeout is about.
TOTAL, FIRST_TOKEN, IDLE = 0, 1, 2
# Which streams are tried again.
ALWAYS, BEFORE_FIRST_TOKEN, NEVER_AGAIN = 0, 1, 2
# Where retries stand among fresh calls.
ALIKE, RETRIES_LAST, RETRIES_FIRST = 0, 1, 2
# In which order the gateway lets requests go.
FIFO, LIFO, ADAPTIVE_LIFO = 0, 1, 2
# Whose patience decides whether a request is worth sending.
SHED_NONE, SHED_ATTEMPT, SHED_CALL = 0, 1, 2
# How a call wants its response; of the unknown ones a timeout for the first token is taken at its word.
WHOLE, STREAMED, UNKNOWN = 0, 1, 2
# Why the head of the queue was not admitted: it could have been, no slot is free, not enough blocks are.
NOT_BLOCKED, BLOCKED_BY_SLOTS, BLOCKED_BY_BLOCKS = 0, 1, 2
# Rows of `charges`: tokens; femtoseconds in a slot, and nanoseconds when entered; nanoseconds, and blocks times those.
COMPUTED, COMPUTED_PROMPT, RECOMPUTED = 0, 1, 2
ATTENDED_PREFILL, ATTENDED_DECODE, MARGINAL, KV_BLOCK = 3, 4, 5, 6
ORPHAN_PREFILL, ORPHAN_DECODE, RECOMPUTE, POLL_COST, HELD_SLOT = 7, 8, 9, 10, 11
STRANDED_KV_BLOCK, STRANDED_KV, SALVAGED = 12, 13, 14
CHARGES = 15
"""How many rows. Those that few executions have stand together: memory that nobody writes to is not taken."""
# How an engine notices a cancel.
PUSH, POLL, ORACLE, NEVER, TIMER, NEXT_TOKEN = 0, 1, 2, 3, 4, 5
# How the gateway chooses a replica.
ROUND_ROBIN, LEAST_OUTSTANDING, RANDOM, POWER_OF_TWO, PREFIX_AFFINITY, SESSION = 0, 1, 2, 3, 4, 5
# How a run came back to Python.
DONE, SLICE_ENDED, OUT_OF_ROOM, STUCK = 0, 1, 2, 3

NONE = -1
NOTHING = -1.0
"""Duration of a step without a row."""
LINES = 6
"""Kinds of events that wait in line."""
EVENTS_AT_ONCE = 3
"""Events that the end of a step may post for each request in the batch."""
DISCLOSED = -2
"""In place of the execution that has had a content's blocks: others may hit them."""
NO_PRIVATE = 1 << 30
"""Place in a sequence from which on blocks are private: none is."""
BLANK = 1 << 30
"""State of a block that is not in use under its number."""
INFINITY = np.inf
CONTEXT_BITS = 10
"""What a token of context is charged is counted in 2^-10 femtoseconds, as it is small and multiplied by many tokens."""
NS, FS = 1e9, 1e15


def _record(**fields: str) -> np.dtype[Any]:
    """A structured type: `name="f8 i4 ..."` keywords are types, their values space-separated names."""
    return np.dtype([(name, kind) for kind, names in fields.items() for name in names.split()], align=True)


CALL = _record(
    f8="arrival end first_token",
    i4="prompt output attempts attempt delivered_by",
    i1="status stream waits",
)

CALL_EXTRA = _record(f8="think last_cost", i4="session reserve key bucket priority hedge following", i1="retrying")
"""What only some policies, engines and traces ask of a call: blank for all others.

`following` is the next turn of its session, which `waits` for its end, and for its user to think.
"""

ATTEMPT = _record(
    f8="start end first_token",
    i4="call execution number next previous",
    i1="status joined attached leaving",
)

EXECUTION = _record(
    f8="queued admitted first_output end",
    i8="arrived_in_round",
    i4="call replica prompt output outputs attempts attended connected waiters slot next previous cached preemptions",
    i1="status orphan abort_sent gone doomed held apart refused read look_is_due silent",
)
"""`held`: it waits at the gateway; `apart`: in the line of retries; `refused`: with which status.

`read`: a user may leave when so many of its tokens are read, and it is looked at when the step ends (`look_is_due`);
`silent`: it has put out nothing since it was preempted.
"""

EXECUTION_EXTRA = _record(
    f8="orphaned_at silent_since entered look_at",
    i8="held_until held_mark lingering_from priority",
    i4="peak child lingering started",
)
"""What only some policies and engines ask of an execution, and what a preemption leaves: written where it is not 0.

`entered`: since when it waits at the gateway; `look_at`: when an event looks at its outputs; `peak`: the most tokens of
it that have been computed.
"""

SLOT = _record(
    i8="admission pass_no row_mark context_mark group_mark marginal_mark crossed_mark kv_mark_ns stranded_from_ns "
    "offset first_round poll_mark first_counted last_scheduled skipped_even skipped_odd execution computed_from tokens "
    "hits blocks_mark residue run_previous run_next finish_previous finish_next residue_previous residue_next "
    "blocks filled private_from private_stranded promised peak "
    "attended_prefill attended_decode marginal kv_block orphan_prefill orphan_decode recompute poll stranded_kv "
    "recomputed",
    i1="kind",
)
"""`offset` is the computed tokens of a request; of a decoding one, those less the replica's `clock`.

Steps are numbered in the order in which they are scheduled. `first_counted` is the first step whose output is among the
computed tokens; `last_scheduled` is the step with the last token of a draining request, which waits for its outputs;
`skipped_even` and `skipped_odd` are the latest such steps that left a decoding request out.

Of a request's `blocks`, those before `filled` are hashed, and those from `private_from` on are only counted;
`private_stranded` sums the times (ns) since which these are stranded.

From `attended_prefill` on: what the request has been charged in this slot. When it leaves, `charges` has it.
"""

DECODE = _record(f8="overhead_s", i8="row_fs marginal_fs")
"""Of a step that only decodes: what does not depend on context of its duration, and of what a row is charged."""

FLIGHT = _record(
    f8="start end cost",
    i8="row context marginal traced",
    i4="completed drained decoded",
    i1="decodes",
)
"""A step in flight: its times, what it charges a decoding row (fs: `row + context * its context`), its outputs to come.

`completed`: prefills that it completes; `drained`: requests whose last token it computes; `decoded`: decoding rows
whose token is still wanted; `decodes`: whether the decoding requests take part.
"""

CHUNK = _record(i8="step charge again marginal turned_in", i1="decodes orphan_before")
"""A row in flight. Of a prefill chunk: its step, and what it was charged (fs).

Of any row: the step `turned_in` during which its clients came or went for the first time, and whether it was an orphan
before, which is what it is charged as.
"""

REPLICA = _record(
    f8="wake_at busy_s gpu_free decode_s kv_token_s mixed_kv_factor attention_s chunk_context_s overhead_s sequence_s",
    i8="context_rate mixed_context_rate clock residue steps passes admissions context row_total context_total "
    "group_total marginal_total held_total "
    "allocated released counter_prompt computed_prompt computed_output preemptions free ring_head ring_tail "
    "step_row step_context step_marginal lingering rounds max_num_seqs max_tokens chunk_limit watermark "
    "num_blocks table index running decoding prefilling waiting queue_head queue_tail run_head run_tail slots_free "
    "blocked chunks finished preempted in_flight empty_steps blank_count numbers private_left inbox_first "
    "inbox_last outstanding wake_kind wake_place held held_head dropped skipping stale late doomed prefill_only "
    "promised started unstarted waiting_tokens",
)
"""`context_rate`: what a token of context is charged by a step, and by one that prefills too (2^-CONTEXT_BITS fs).

`clock` counts steps that decode: a decoding request has computed `clock + offset` tokens, and is not touched in one;
`residue` is what it leaves when divided by the block size.

`steps` counts all that were scheduled, `rounds` those that have ended, `in_flight` those that have not. `unstarted`:
prompt tokens that were sent to it and have not begun to answer; `started` heads the executions whose readers are to be
looked at when the step ends. `private_left`: blocks still to be taken of the private ones in front of the free queue.
"""

RESIDUE = _record(i8="crossed count head tail")
"""Decoding requests that take a new block at the same steps. `crossed` sums the times (ns) at which they did."""

BLOCK = _record(i8="key", i4="state chain")
"""`state` > 0: holders (low 15 bits) and attended holders (above); <= 0: in the free queue, at ring place -state."""

PRIVATE = _record(i8="place", i4="execution count")
"""Private blocks of a content: `execution` has had them. In the free queue they are `count`, from ring `place` on, the
last of the sequence first; 0 while they are held."""

STORY = _record(i8="stranded_ns", i4="producer owner")
"""Of a block: who filled it, and since when and by whom it is stranded."""

EVENT = _record(f8="time", i8="order kind argument")
FRONT = _record(f8="time", i8="order head tail")
"""Of a line of events: the first one, infinity for none; and its place, and that behind the last."""
SAMPLE = _record(
    f8="time",
    i8="used_blocks busy_ns computed_prompt computed_output counter_prompt preemptions",
    i4="replica running waiting",
)
STEP = _record(
    f8="scheduled_at start duration",
    i8="step context free",
    i4="replica prefill decode running waiting preempted",
)
ROW = _record(i8="step", i4="replica execution tokens")

SETTINGS = _record(
    f8="poll kv_delay affinity_share balance_ratio timer timer_streaming reserve_share "
    "to_gateway to_engine cancel_delay orphan_ttl result_ttl backoff_base backoff_factor backoff_cap backoff_jitter "
    "backoff_floor backoff_total deadline hedge_after budget_deposit budget_success budget_cost budget_timeout_cost "
    "budget_failure budget_above budget_cap budget_ttl budget_share throttle throttle_window hold_steps codel_target "
    "codel_interval retry_after step_least until sample_interval",
    i8="seed calls max_attempts block_size block_reciprocal block_shift max_num_seqs ring_mask table_mask "
    "line_mask balance_gap finish_mask stride content_base replicas poll_fs poll_tokens due_mask linger_most "
    "retries_least most_queued most_queued_tokens lifo_above",
    i4="depth",
    i1="caching by_priority timeout_kind backoff_by_sum retries_rejections streams_retried coalesce routing retries "
    "has_budget refunds throttles holds order shed reaches_out trace detection poll_phase "
    "holds_slots prefill_first evicts_fewest prefill_runs_on chunk_admission blanks_to_back late_aborts "
    "chunks_alone fair_chunks pass_goes_on eviction_skips "
    "has_turns hedges",
)

PROGRESS = _record(
    f8="now outside next_sample lets_go_at answer_s answer_off_s first_token_s first_token_off_s codel_above "
    "codel_next",
    i8="posted steps sampled soon_head soon_tail linger_head linger_tail held_tokens",
    i4="first_line next_call attempts executions heap samples traced_steps traced_rows held fresh_head fresh_tail "
    "retry_head retry_tail codel_count codel_last",
    i1="codel_dropping",
)
"""`outside`: when the next thing happens that does not come from a replica.

`answer_s`, `first_token_s`: running means of the time from sending a request to its answer, and to its first token;
`answer_off_s`, `first_token_off_s`: of how far off they are.

Of the gateway's queue: how many it holds, their prompt tokens, and the ends of its two lines.
"""


Replica = Any
"""A record of `replicas`, by reference."""


class State(NamedTuple):
    """Everything a run reads and writes; `settings` and `progress` are single records."""

    settings: Any
    progress: Any
    step_seconds: Any  # f(T) in seconds, by kind of engine and tokens of the step
    decodes: Any  # of steps that only decode, by kind of engine and number of rows
    calls: Any
    attempts: Any
    executions: Any
    charges: Any  # what each execution was charged, by kind of charge
    call_extras: Any
    execution_extras: Any
    timeouts: Any  # seconds that each call's client waits for an attempt; see limits.py for this and the next two
    patiences: Any  # seconds from its arrival until its user leaves
    leaves_tokens: Any  # tokens read until then
    replicas: Any
    wakes: Any  # heap of replicas by the time at which they want attention
    slots: Any
    free_slots: Any
    chunks: Any  # slots that compute a prefill chunk in this step
    parts: Any  # slots in mid-prefill, in admission order
    flights: Any  # steps in flight, by replica and parity of their number
    chunk_costs: Any  # chunks in flight, by slot and parity of their step
    completed: Any  # slots whose prefill a step in flight completes, and their admission
    draining: Any  # slots whose last token a step in flight computes, and their admission
    stale: Any  # executions preempted while an output of theirs was in flight
    finished: Any  # slots, then executions, that finish with this step
    finishing: Any  # ring over steps: decoding slots by the step that finishes them
    residues: Any
    blocks: Any
    stories: Any
    buckets: Any  # hash table: first block of the chain
    ring: Any  # free blocks that keep what they hold, oldest first
    numbers: Any  # numbers that no block has: a stack
    privates: Any  # private blocks, by content
    table: Any  # blocks of each slot
    hits: Any  # scratch: blocks of the prefix found for the head of the queue
    contents: Any  # of each call: equal numbers where prompts are equal
    hashes: Any  # block keys of the calls that have block hashes
    hash_ends: Any  # where the block keys of a call end in `hashes`; those of the next one follow
    sent_prefix: Any  # replica that a prompt block was last sent to, by its key
    sent_content: Any  # the same by whole content
    key_execution: Any  # latest execution of a coalescing key
    budgets: Any  # retry buckets: tokens, counts, and what was counted of late (see budgets.py)
    heap: Any
    lines: Any  # events that wait in line, by line: rings
    fronts: Any  # the first event of each line
    soon: Any  # events caused without delay, in order
    inbox: Any  # aborts that wait for the end of a replica's step
    due: Any  # ring over steps: executions whose cancel is noticed at the end of one
    held: Any  # ring over steps: aborted executions whose slot is given back at the end of one
    lingering: Any  # ring: blocks that aborted executions keep for a while
    samples: Any
    steps: Any
    rows: Any
