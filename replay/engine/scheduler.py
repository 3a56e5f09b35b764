"""One step of vLLM's V1 scheduler: running requests first, then the queue, then the blocks and the clock.

`schedule` decides a step and returns its duration; `end_step` reads its outputs. Neither knows of clients. Checked step
for step against schedules recorded from vLLM.
"""

from __future__ import annotations

from replay.engine.admission import admit, may_skip_admission
from replay.engine.batch import drain, evict, join_group, leave_group, remove_part, vacate
from replay.engine.blocks import credit_salvage, publish_read
from replay.engine.flights import give_up_unread, head, take_off, unread_tokens
from replay.engine.held import give_up_held, hold_slot
from replay.engine.kernel import cold, hot
from replay.engine.ledger import (
    post_decoding,
    post_step,
    settle,
    step_overhead_s,
)
from replay.engine.paging import next_residue, tick
from replay.engine.queue import dequeue
from replay.engine.readers import begins_to_answer
from replay.engine.running import (
    blocks_between,
    chunk_limit,
    decode_blocks,
    give_chunk,
    remaining,
    resume_paused,
    running_in_order,
    running_walk,
    runs_in_order,
)
from replay.engine.state import (
    ABORTED,
    BLOCKED_BY_SLOTS,
    DECODING,
    DRAINING,
    FINISHED,
    NONE,
    NOT_BLOCKED,
    NOTHING,
    ORACLE,
    PREFILLING,
    QUEUED,
    RUNNING,
    Replica,
    State,
)
from replay.engine.tracing import trace_step


@hot
def schedule(S: State, rep: Replica) -> float:
    """Decide the step that starts now; returns its duration in seconds, NOTHING when no request can run."""
    rep.passes += 1
    rep.chunks = 0
    rep.preempted = 0
    rep.finished = 0
    if only_decodes(S, rep):
        return decode_step(S, rep)
    rep.prefill_only = S.settings.prefill_first and (rep.prefilling > 0 or rep.waiting > 0)
    while True:
        if rep.prefill_only:
            budget = chunks_alone(S, rep.index)
        else:
            budget = running_in_order(S, rep) if runs_in_order(S, rep) else running_walk(S, rep.index)
        if rep.preempted > 0:
            rep.blocked = NOT_BLOCKED
        elif rep.prefill_only == S.settings.prefill_first and not may_skip_admission(S, rep):
            budget = admit(S, rep, budget)
        if not rep.prefill_only or budget < rep.max_tokens:
            break
        rep.prefill_only = 0
    duration = NOTHING
    if budget < rep.max_tokens or rep.held > 0:
        duration = enter_step(S, rep, rep.max_tokens - budget)
    resume_paused(S, rep, duration != NOTHING)
    if rep.prefill_only:
        rep.skipping = 1
    return duration


@hot
def only_decodes(S: State, rep: Replica) -> bool:
    """Whether the step is one token for each decoding request, and there is no more to it."""
    if rep.prefilling > 0 or rep.decoding == 0 or rep.decoding > rep.max_tokens or rep.held > 0 or rep.skipping > 0:
        return False
    if rep.waiting > 0 and (S.settings.prefill_first or not may_skip_admission(S, rep)):
        return False
    return S.residues[rep.index, rep.residue].count <= rep.free


@hot
def decode_step(S: State, rep: Replica) -> float:
    """The step that only decodes; returns its duration."""
    rows = rep.decoding
    rep.prefill_only = 0
    if rep.waiting == 0:
        rep.blocked = NOT_BLOCKED
    decode_blocks(S, rep, rep.clock, rep.residue)
    costs = S.decodes[rep.table, rows]
    duration = costs.overhead_s + rep.kv_token_s * (rep.context + rows) + S.settings.poll * rows
    tick(S, rep, 1, next_residue(S, rep.residue))
    rep.context += rows
    rep.steps += 1
    post_decoding(rep, 1, costs.row_fs, rep.context_rate, costs.marginal_fs)
    rep.busy_s += duration
    take_off(S, rep, duration, rows)
    if S.settings.trace:
        trace_step(S, rep.index, S.progress.now, duration, 0, rows)
    if S.settings.depth > 1:
        go_on_at_once(S, rep, NONE, 0)
    return duration


@cold
def chunks_alone(S: State, r: int) -> int:
    """Chunks of the requests in mid-prefill, as far as there is room; returns the budget left.

    If the step has any, or admits a request, decoding ones take no part in it.
    """
    rep = S.replicas[r]
    budget = rep.max_tokens
    limit = chunk_limit(S, rep)
    for k in range(rep.prefilling):
        slot = S.parts[r, k]
        n = min(remaining(S, slot), limit, budget)
        if n <= 0 or blocks_between(S, S.slots[slot].offset, n) > rep.free:
            break
        give_chunk(S, rep, slot, n)
        budget -= n
    return budget


@hot
def enter_step(S: State, rep: Replica, tokens: int) -> float:
    """Advance the clock by the step just decided: its sums, its duration, its charges."""
    group = 0 if rep.prefill_only else rep.decoding
    held = 0 if rep.prefill_only else rep.held
    decode = group
    kv = 0 if rep.prefill_only else rep.context + group
    attention = 0.0
    context = 0
    completed = 0
    place = 2 * rep.index + ((rep.steps + 1) & 1)
    for k in range(rep.chunks):
        slot = S.chunks[k]
        x = S.slots[slot].execution
        n = S.slots[slot].tokens
        after = S.slots[slot].offset
        if n == 1 and after - n >= S.executions[x].prompt:
            decode += 1
            kv += after
        else:
            attention += n * (after - n + 0.5 * n)
            context += after - n
            rep.computed_prompt += min(after, S.executions[x].prompt) - min(after - n, S.executions[x].prompt)
        if after == S.executions[x].prompt + S.executions[x].outputs:
            S.completed[place, completed, 0] = slot
            S.completed[place, completed, 1] = S.slots[slot].admission
            completed += 1
    mixed = tokens > decode
    kv_seconds = rep.kv_token_s * kv
    if mixed:
        kv_seconds *= rep.mixed_kv_factor
    rows = group + rep.chunks
    duration = step_overhead_s(S, rep, rows + held, tokens + held, decode + held) + kv_seconds
    duration += rep.attention_s * attention + rep.chunk_context_s * context + S.settings.poll * rows
    if not rep.prefill_only:
        tick(S, rep, 1, next_residue(S, rep.residue))
        rep.context += group
    rep.steps += 1
    post_step(S, rep, group, rep.chunks, held, tokens + held, mixed, duration)
    take_off(S, rep, duration, group)
    S.flights[rep.index, rep.steps & 1].completed = completed
    if S.settings.trace:
        trace_step(S, rep.index, S.progress.now, duration, tokens - decode, decode)
    if held > 0:
        give_up_held(S, rep)
    if S.settings.depth > 1:
        go_on_at_once(S, rep, place, completed)
    return duration


@hot
def go_on_at_once(S: State, rep: Replica, place: int, completed: int) -> None:
    """With two steps in flight, the next one is scheduled before this one's outputs are read.

    Requests whose prefill it completes decode in the next; those whose last token it computes take part in no more.
    """
    slot = NONE if rep.prefill_only else S.finishing[rep.index, rep.clock & S.settings.finish_mask]
    while slot != NONE:
        after = S.slots[slot].finish_next
        settle(S, rep, slot)
        drain(S, rep, slot, leave_group(S, rep, slot))
        slot = after
    for k in range(completed):
        slot = S.completed[place, k, 0]
        x = S.slots[slot].execution
        settle(S, rep, slot)
        remove_part(S, rep, slot)
        S.slots[slot].first_counted = rep.steps
        if S.executions[x].outputs + 1 >= S.executions[x].output:
            drain(S, rep, slot, S.slots[slot].offset)
        else:
            join_group(S, rep, slot, S.slots[slot].offset)


@hot
def runs_on(S: State, slot: int) -> bool:
    """Whether the abort of a request in mid-prefill waits until its prompt is computed."""
    if not S.settings.prefill_runs_on or S.settings.detection == ORACLE:
        return False
    return S.slots[slot].kind == PREFILLING and remaining(S, slot) > 0


@hot
def abort(S: State, rep: Replica, x: int) -> bool:
    """Abort execution `x` now, wherever it is; returns whether it was still alive.

    Tokens that steps in flight compute for it are not read any more.
    """
    status = S.executions[x].status
    if status == QUEUED:
        dequeue(S, rep, x)
        if rep.blocked != BLOCKED_BY_SLOTS:
            rep.blocked = NOT_BLOCKED
    elif status == RUNNING:
        slot = int(S.executions[x].slot)
        if runs_on(S, slot):
            S.executions[x].doomed = 1
            S.executions[x].gone = 1
            return False
        unread = give_up_unread(S, rep, slot)
        evict(S, rep, slot, 0, 0, S.settings.kv_delay > 0.0)
        S.executions[x].outputs -= unread
        if S.executions[x].doomed and S.settings.depth > 1:
            S.executions[x].outputs -= 1  # of the prefill that was computed to its end: nobody reads it
        if S.settings.holds_slots:
            hold_slot(S, rep, x, S.executions[x].output - S.executions[x].outputs)
    else:
        return False
    S.executions[x].status = ABORTED
    S.executions[x].end = S.progress.now
    return True


@hot
def end_step(S: State, rep: Replica) -> None:
    """Read the outputs of the step that ends now, the first of those in flight.

    Leaves in `finished[:rep.finished]` the slots that finish, in running order, still seated: the caller tells whose
    client waits before `finish` empties them. Executions that finish in the queue stand in the list `late`, those
    whose abort waited for the end of their prefill in `doomed`.
    """
    step = head(rep)
    flight = S.flights[rep.index, step & 1]
    place = 2 * rep.index + (step & 1)
    rep.finished = 0
    rep.computed_output += flight.decoded
    if S.settings.depth == 1 and flight.decodes:
        slot = S.finishing[rep.index, rep.clock & S.settings.finish_mask]
        while slot != NONE:
            add_finished(S, rep, slot)
            slot = S.slots[slot].finish_next
    for k in range(flight.drained):
        slot = S.draining[place, k, 0]
        stands = S.slots[slot].kind == DRAINING and S.slots[slot].admission == S.draining[place, k, 1]
        if stands and not S.executions[S.slots[slot].execution].doomed:
            add_finished(S, rep, slot)
    for k in range(flight.completed):
        slot = S.completed[place, k, 0]
        if S.slots[slot].execution != NONE and S.slots[slot].admission == S.completed[place, k, 1]:
            read_first(S, rep, slot)
    if rep.stale > 0:
        read_stale(S, rep.index)
    rep.in_flight -= 1
    rep.rounds += 1
    if S.settings.caching and S.settings.depth > 1 and (rep.skipping > 0 or rep.in_flight == 0):
        hash_what_was_read(S, rep.index)


@cold
def hash_what_was_read(S: State, r: int) -> None:
    """Blocks that decoding requests have filled can be hit when their last token is read.

    Where every step takes all of them along, the next one has hashed what this one filled: see `decode_blocks`.
    """
    rep = S.replicas[r]
    slot = S.residues[r, rep.residue].head
    while slot != NONE:
        publish_read(S, rep, slot, rep.clock + S.slots[slot].offset - unread_tokens(S, rep, slot))
        slot = S.slots[slot].residue_next


@hot
def read_first(S: State, rep: Replica, slot: int) -> None:
    """The output of a completed prefill is there."""
    x = S.slots[slot].execution
    if S.executions[x].doomed:
        S.executions[x].next = rep.doomed
        rep.doomed = x
        return
    rep.computed_output += 1
    read_output(S, rep, x)
    if S.settings.depth > 1:
        return
    S.executions[x].outputs += 1
    if S.executions[x].outputs >= S.executions[x].output:
        add_finished(S, rep, slot)
    else:
        settle(S, rep, slot)
        remove_part(S, rep, slot)
        S.slots[slot].first_counted = rep.steps + 1
        join_group(S, rep, slot, S.slots[slot].offset)


@hot
def read_output(S: State, rep: Replica, x: int) -> None:
    """The output of a completed prefill is there: the first one, or the first since a preemption."""
    if S.executions[x].outputs == 0:
        read_first_token(S, rep, x)
    begins_to_answer(S, rep, x)


@hot
def read_first_token(S: State, rep: Replica, x: int) -> None:
    S.executions[x].first_output = S.progress.now
    rep.counter_prompt += S.executions[x].prompt
    rep.unstarted -= S.executions[x].prompt


@cold
def read_stale(S: State, r: int) -> None:
    """Outputs of requests that were preempted while those were in flight: they count, and may be the last.

    One whose abort waited for the end of its prefill has not finished then: it is aborted.
    """
    rep = S.replicas[r]
    for k in range(rep.stale):
        x = S.stale[r, k]
        if S.executions[x].status != QUEUED:
            continue
        rep.computed_output += 1
        if S.executions[x].outputs == 0:
            read_first_token(S, rep, x)
        S.executions[x].outputs += 1
        if S.executions[x].outputs >= S.executions[x].output:
            dequeue(S, rep, x)
            S.executions[x].status = ABORTED if S.executions[x].doomed else FINISHED
            S.executions[x].end = S.progress.now
            S.executions[x].next = rep.late
            rep.late = x
    rep.stale = 0
    rep.blocked = NOT_BLOCKED


@hot
def add_finished(S: State, rep: Replica, slot: int) -> None:
    """Keep the finishing slots in admission order."""
    k = rep.finished
    while k > 0 and S.slots[S.finished[k - 1]].admission > S.slots[slot].admission:
        S.finished[k] = S.finished[k - 1]
        k -= 1
    S.finished[k] = slot
    rep.finished += 1


@hot
def finish(S: State, rep: Replica, slot: int) -> int:
    """A request has its whole output: empty its slot; returns its execution."""
    x = S.slots[slot].execution
    held = settle(S, rep, slot)
    if S.settings.caching and S.executions[x].attended > 0:
        credit_salvage(S, slot)
    computed = S.slots[slot].offset
    if S.slots[slot].kind == DECODING:
        computed = leave_group(S, rep, slot)
    elif S.slots[slot].kind == PREFILLING:
        remove_part(S, rep, slot)
    elif S.settings.caching:
        publish_read(S, rep, slot, computed)
    S.executions[x].outputs = S.executions[x].output
    vacate(S, rep, slot, computed, held, False)
    S.executions[x].status = FINISHED
    S.executions[x].end = S.progress.now
    return x
