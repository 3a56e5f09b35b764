"""One step of vLLM's V1 scheduler: running requests first, then the queue, then the blocks and the clock.

`schedule` decides a step and returns its duration; `end_step` reads its outputs. Neither knows of clients. `coast`
runs whole steps in which nothing happens but decoding. Checked step for step against schedules recorded from vLLM.
"""

from __future__ import annotations

from replay.engine.admission import admit, may_skip_admission
from replay.engine.batch import evict, join_group, leave_group, remove_part, vacate
from replay.engine.blocks import credit_salvage
from replay.engine.held import give_up_held, hold_slot
from replay.engine.kernel import cold, hot
from replay.engine.ledger import post_step, settle, step_overhead_s
from replay.engine.queue import dequeue
from replay.engine.running import decode_blocks, resume_paused, running_in_order, running_walk, runs_in_order
from replay.engine.state import (
    ABORTED,
    BLOCKED_BY_SLOTS,
    DECODING,
    FINISHED,
    NONE,
    NOT_BLOCKED,
    PREFILLING,
    QUEUED,
    RUNNING,
    Replica,
    State,
)

NOTHING = -1.0
"""Duration of a step without a row."""


@hot
def schedule(S: State, rep: Replica) -> float:
    """Decide the step that starts now; returns its duration in seconds, NOTHING when no request can run."""
    rep.passes += 1
    rep.chunks = 0
    rep.preempted = 0
    rep.finished = 0
    rep.walked = not runs_in_order(S, rep)
    if rep.walked:
        budget = running_walk(S, rep.index)
    else:
        budget = running_in_order(S, rep)
    if rep.preempted > 0:
        rep.blocked = NOT_BLOCKED
    elif not may_skip_admission(S, rep):
        budget = admit(S, rep, budget)
    duration = NOTHING
    if budget < S.settings.max_tokens or rep.held > 0:
        duration = enter_step(S, rep, S.settings.max_tokens - budget)
    resume_paused(S, rep)
    return duration


@hot
def enter_step(S: State, rep: Replica, tokens: int) -> float:
    """Advance the clock by the step just decided: its sums, its duration, its charges."""
    decode = rep.decoding
    kv = rep.context + decode
    attention = 0.0
    context = 0
    rep.completed = 0
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
            S.completed[rep.index, rep.completed] = slot
            rep.completed += 1
    mixed = tokens > decode
    kv_seconds = S.settings.kv_token * kv
    if mixed:
        kv_seconds *= S.settings.mixed_kv_factor
    rows = rep.decoding + rep.chunks
    duration = step_overhead_s(S, rows + rep.held, tokens + rep.held, decode + rep.held) + kv_seconds
    duration += S.settings.attention * attention + S.settings.context * context + S.settings.poll * rows
    rep.clock += 1
    rep.context += rep.decoding
    rep.steps += 1
    rep.decoded = rep.decoding
    rep.step_start = S.progress.now
    rep.step_cost = duration
    post_step(S, rep, rep.decoding, rep.chunks, tokens + rep.held, mixed, duration)
    if S.settings.trace:
        trace_step(S, rep.index, duration, tokens - decode, decode)
    return duration


@cold
def trace_step(S: State, r: int, duration: float, prefill: int, decode: int) -> None:
    """Record the step just entered, and its rows in running order."""
    rep = S.replicas[r]
    k = S.progress.traced_steps
    S.progress.traced_steps += 1
    rep.traced_step = k
    step = S.steps[k]
    step.replica = r
    step.step = rep.steps - 1
    step.scheduled_at = S.progress.now
    step.duration = duration
    step.prefill = prefill
    step.decode = decode
    step.running = rep.running
    step.waiting = rep.waiting
    step.free = rep.free
    step.preempted = rep.preempted
    context = rep.context
    slot = rep.run_head
    while slot != NONE:
        decoding = S.slots[slot].kind == DECODING
        in_chunk = S.slots[slot].kind == PREFILLING and S.slots[slot].pass_no == rep.passes
        if decoding or in_chunk:
            if in_chunk:
                context += S.slots[slot].offset
            row = S.rows[S.progress.traced_rows]
            S.progress.traced_rows += 1
            row.step = rep.steps - 1
            row.replica = r
            row.execution = S.slots[slot].execution
            row.tokens = 1 if decoding else S.slots[slot].tokens
        slot = S.slots[slot].run_next
    step.context = context


@hot
def coast(S: State, rep: Replica, horizon: float) -> None:
    """Run whole steps that only decode, finish nobody and end before `horizon`."""
    if rep.prefilling > 0 or rep.decoding == 0 or rep.decoding > S.settings.max_tokens:
        return
    if rep.waiting > 0 and not may_skip_admission(S, rep):
        return
    size = S.settings.block_size
    decode = rep.decoding
    rows = decode + rep.held
    rep.chunks = 0
    rep.preempted = 0
    overhead = step_overhead_s(S, rows, rows, rows) + S.settings.poll * decode
    while nothing_is_due(S, rep):
        need = S.residues[rep.index, rep.clock % size].count
        duration = overhead + S.settings.kv_token * (rep.context + decode)
        if need > rep.free or S.progress.now + duration >= horizon:
            break
        if S.settings.trace and not room_to_trace(S):
            break
        if need > 0 or S.settings.caching:
            decode_blocks(S, rep)
        rep.clock += 1
        rep.context += decode
        rep.steps += 1
        rep.computed_output += decode
        post_step(S, rep, decode, 0, rows, False, duration)
        if S.settings.trace:
            trace_step(S, rep.index, duration, 0, decode)
        S.progress.steps += 1
        S.progress.now += duration


@hot
def nothing_is_due(S: State, rep: Replica) -> bool:
    """Whether at the end of the next step nobody finishes, no cancel is noticed and no held slot is given up."""
    place = (rep.clock + 1) & S.settings.finish_mask
    return (
        S.finishing[rep.index, place] == NONE
        and S.due[rep.index, (rep.steps + 1) & S.settings.due_mask] == NONE
        and S.held[rep.index, place] == NONE
    )


@hot
def room_to_trace(S: State) -> bool:
    """Whether the trace can hold two more steps: one that is coasted, and the one scheduled after it."""
    rows = S.progress.traced_rows + 2 * S.settings.max_num_seqs
    return S.progress.traced_steps + 2 < len(S.steps) and rows < len(S.rows)


@hot
def unread_tokens(S: State, rep: Replica, slot: int) -> int:
    """1 for a decoding request that takes part in the step in flight, whose token has not been read yet; else 0."""
    if not rep.stepping or S.slots[slot].kind != DECODING:
        return 0
    return 1 if not rep.walked or S.slots[slot].pass_no == rep.passes else 0


@hot
def is_in_flight(S: State, rep: Replica, slot: int) -> bool:
    """Whether the slot is a row of the step that runs now."""
    if S.slots[slot].kind == DECODING:
        return unread_tokens(S, rep, slot) > 0
    return rep.stepping > 0 and S.slots[slot].pass_no == rep.passes


@hot
def abort(S: State, rep: Replica, x: int) -> bool:
    """Abort execution `x` now, wherever it is; returns whether it was still alive.

    At the end of a step, the token that the step computed for it is not read any more.
    """
    status = S.executions[x].status
    if status == QUEUED:
        dequeue(S, rep, x)
        if rep.blocked != BLOCKED_BY_SLOTS:
            rep.blocked = NOT_BLOCKED
    elif status == RUNNING:
        slot = S.executions[x].slot
        unread = unread_tokens(S, rep, slot)
        rep.decoded -= unread
        evict(S, rep, slot, 0, 0, S.settings.kv_delay > 0.0)
        S.executions[x].outputs -= unread
        if S.settings.holds_slots:
            hold_slot(S, rep, x, S.executions[x].output - S.executions[x].outputs)
    else:
        return False
    S.executions[x].status = ABORTED
    S.executions[x].end = S.progress.now
    return True


@hot
def end_step(S: State, rep: Replica) -> None:
    """Read the outputs of the step that ends now.

    Leaves in `finished[:rep.finished]` the slots that finish, in running order, still seated: the caller tells whose
    client waits before `finish` empties them.
    """
    rep.finished = 0
    slot = S.finishing[rep.index, rep.clock & S.settings.finish_mask]
    rep.computed_output += rep.decoded
    rep.decoded = 0
    if rep.held > 0:
        give_up_held(S, rep)
    while slot != NONE:
        add_finished(S, rep, slot)
        slot = S.slots[slot].finish_next
    for k in range(rep.completed):
        slot = S.completed[rep.index, k]
        x = S.slots[slot].execution
        if x == NONE or S.slots[slot].kind != PREFILLING or S.slots[slot].pass_no != rep.passes:
            continue
        if S.executions[x].outputs == 0:
            S.executions[x].first_output = S.progress.now
            rep.counter_prompt += S.executions[x].prompt
        S.executions[x].outputs += 1
        rep.computed_output += 1
        if S.executions[x].outputs >= S.executions[x].output:
            add_finished(S, rep, slot)
        else:
            settle(S, rep, slot)
            remove_part(S, rep, slot)
            join_group(S, rep, slot, S.slots[slot].offset)
    rep.completed = 0


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
    if S.slots[slot].kind == DECODING:
        computed = leave_group(S, rep, slot)
    else:
        computed = S.slots[slot].offset
        remove_part(S, rep, slot)
    S.executions[x].outputs = S.executions[x].output
    vacate(S, rep, slot, computed, held, False)
    S.executions[x].status = FINISHED
    S.executions[x].end = S.progress.now
    return x
