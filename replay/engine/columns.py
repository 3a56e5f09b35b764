"""The rows of the result tables, column by column, from the records of a run: one pass over the records of each table.

Columns are all zeros to begin with. They lie as Arrow has them: values side by side, truth as bits, words as their
codes. An instant that never came is infinite, a number that there is not is below 0: see `tables.Sheet`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from replay.engine.kernel import entry, hot
from replay.engine.state import (
    ABORTED,
    ATTENDED_PREFILL,
    CANCELLED,
    COMPUTED_PROMPT,
    DELIVERED,
    FINISHED,
    INFINITY,
    LEFT,
    OK,
    ORPHAN_PREFILL,
    RUNNING,
    SALVAGED,
    STREAMED,
    TOO_LONG,
)

CALL_OUTCOME = ("unresolved", "delivered", "cancelled", "failed")
CALL_REASON = (
    None, "retries_exhausted", "budget_exhausted", "rejected:too_long", "deadline_exceeded", "rejected:queue_full",
    "rejected:shed", "rejected:throttled", "stream_not_retried",
)  # fmt: skip
ATTEMPT_OUTCOME = ("unresolved", "ok", "timeout", "cancelled", "rejected", "superseded")
ENDED = ("running_at_end", "finished", "aborted", "never_admitted")
FATE = ("lost", "delivered", "user_cancelled_stream", "duplicate", "running_at_end")
FAILED = CALL_OUTCOME.index("failed")
RUNNING_AT_END, ENDED_FINISHED, ENDED_ABORTED, NEVER_ADMITTED = 0, 1, 2, 3
LOST, FATE_DELIVERED, USER_CANCELLED_STREAM, DUPLICATE, FATE_RUNNING = 0, 1, 2, 3, 4


class CallColumns(NamedTuple):
    """Columns of CALL_OUTCOMES, but for those that are there already."""

    arrival_s: Any
    prompt_tokens: Any
    output_tokens: Any
    eligible: Any
    outcome: Any
    reason: Any
    first_token_s: Any
    end_s: Any
    attempts: Any
    delivered_execution_id: Any


class AttemptColumns(NamedTuple):
    """Columns of ATTEMPT_OUTCOMES, but for those that are there already."""

    call_id: Any
    attempt: Any
    execution_id: Any
    joined: Any
    start_s: Any
    first_token_s: Any
    end_s: Any
    outcome: Any


class ExecutionColumns(NamedTuple):
    """Columns of EXECUTIONS, but for those that are there already."""

    call_id: Any
    replica: Any
    attempts: Any
    queued_s: Any
    admitted_s: Any
    first_output_s: Any
    end_s: Any
    ended: Any
    fate: Any
    prompt_tokens: Any
    cached_prompt_tokens: Any
    computed_output_tokens: Any
    preemptions: Any


@hot
def mark(bits: Any, i: int, holds: bool) -> None:
    """Set bit `i`, which is 0, where it holds."""
    bits[i >> 3] |= holds << (i & 7)


@hot
def put_seldom(column: Any, i: int, number: int) -> None:
    """A number that is 0 in most rows: those are left as they are, and their memory untouched."""
    if number != 0:
        column[i] = number


@entry
def write_calls(
    calls: Any, patiences: Any, leaves_tokens: Any, idle_s: Any, travel_s: float, first: int, end: int, to: CallColumns
) -> None:
    """Rows `first` to `end` of CALL_OUTCOMES.

    `idle_s` is the time of each call on an idle replica, and becomes `idle_e2e_s`: `travel_s` more, or infinity. For
    `patiences` and `leaves_tokens` see `limits.py`.
    """
    for c in range(first, end):
        call = calls[c]
        tokens = leaves_tokens[c] if len(leaves_tokens) > 0 else 0
        too_long = call.status == TOO_LONG
        idle = idle_s[c] + travel_s
        idle_s[c] = INFINITY if too_long else idle
        to.arrival_s[c] = call.arrival
        to.prompt_tokens[c] = call.prompt
        to.output_tokens[c] = call.output
        stays = len(patiences) == 0 or patiences[c] > idle
        reads_all = tokens <= 0 or tokens >= call.output or call.stream != STREAMED
        mark(to.eligible, c, stays and reads_all and not too_long)
        to.outcome[c] = min(call.status, FAILED)
        put_seldom(to.reason, c, max(call.status - LEFT, 0))
        to.first_token_s[c] = call.first_token
        to.end_s[c] = call.end
        to.attempts[c] = call.attempts
        to.delivered_execution_id[c] = call.delivered_by


@entry
def write_attempts(attempts: Any, calls: Any, ids: Any, fates: Any, first: int, end: int, to: AttemptColumns) -> None:
    """Rows `first` to `end` of ATTEMPT_OUTCOMES. Enters into `fates` what attempts decide of their executions."""
    for a in range(first, end):
        attempt = attempts[a]
        x = attempt.execution
        to.call_id[a] = ids[attempt.call]
        to.attempt[a] = attempt.number
        to.execution_id[a] = x
        mark(to.joined, a, attempt.joined != 0)
        to.start_s[a] = attempt.start
        to.first_token_s[a] = attempt.first_token
        to.end_s[a] = attempt.end
        to.outcome[a] = attempt.status
        if attempt.status == OK:
            fates[x] = FATE_DELIVERED
        elif (
            attempt.status == CANCELLED
            and attempt.first_token < INFINITY
            and calls[attempt.call].stream == STREAMED
            and fates[x] != FATE_DELIVERED
        ):
            fates[x] = USER_CANCELLED_STREAM


@hot
def fate_of(execution: Any, call: Any, from_attempts: int) -> int:
    """Code into FATE; `from_attempts` is what its attempts have decided, if anything."""
    if from_attempts != LOST:
        return from_attempts
    if call.status == DELIVERED and execution.status == FINISHED:
        return DUPLICATE
    if execution.status <= RUNNING:
        return FATE_RUNNING
    return LOST


@hot
def ended_of(execution: Any) -> int:
    """Code into ENDED."""
    if execution.status == FINISHED:
        return ENDED_FINISHED
    if execution.status != ABORTED:
        return RUNNING_AT_END
    return ENDED_ABORTED if execution.admitted < INFINITY else NEVER_ADMITTED


@entry
def write_executions(executions: Any, calls: Any, ids: Any, fates: Any, first: int, end: int, to: Any) -> None:
    """Rows `first` to `end` of EXECUTIONS, but for the charges. `fates`: what `write_attempts` has decided."""
    for x in range(first, end):
        execution = executions[x]
        to.call_id[x] = ids[execution.call]
        to.replica[x] = execution.replica
        to.attempts[x] = execution.attempts
        to.queued_s[x] = execution.queued
        to.admitted_s[x] = execution.admitted
        to.first_output_s[x] = execution.first_output
        to.end_s[x] = execution.end
        to.ended[x] = ended_of(execution)
        to.fate[x] = fate_of(execution, calls[execution.call], fates[x])
        to.prompt_tokens[x] = execution.prompt
        put_seldom(to.cached_prompt_tokens, x, execution.cached)
        to.computed_output_tokens[x] = execution.outputs
        put_seldom(to.preemptions, x, execution.preemptions)


@entry
def price_salvage(charges: Any, rows: int) -> None:
    """Salvaged tokens become the share that they are of an execution's prefill time (ns), for the first `rows`."""
    for x in range(rows):
        tokens = charges[SALVAGED, x]
        if tokens > 0:
            computed = max(charges[COMPUTED_PROMPT, x], 1)
            share = min(tokens, computed) / computed
            charges[SALVAGED, x] = int((charges[ATTENDED_PREFILL, x] + charges[ORPHAN_PREFILL, x]) * share)
