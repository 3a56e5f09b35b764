"""One step of vLLM's V1 scheduler: running requests first, then the queue, then the blocks and the clock.

`schedule` decides a step and returns its duration; `end_step` reads its outputs. Neither knows of clients. `coast`
runs whole steps in which nothing happens but decoding. Checked step for step against schedules recorded from vLLM.
"""

from __future__ import annotations

from replay.engine.batch import (
    evict,
    grow,
    join_group,
    leave_group,
    preempt,
    remove_part,
    seat,
    vacate,
)
from replay.engine.blocks import block_key, credit_salvage, find, now_ns, publish, take, touch
from replay.engine.kernel import cold, hot
from replay.engine.ledger import new_ledger, open_slot, post_step, settle, settle_kv, step_overhead_s
from replay.engine.queue import dequeue
from replay.engine.state import (
    ABORTED,
    BLOCKED_BY_BLOCKS,
    BLOCKED_BY_SLOTS,
    DECODING,
    FINISHED,
    NO_PAGE,
    NONE,
    NOT_BLOCKED,
    PAUSED,
    PREFILLING,
    QUEUED,
    RUNNING,
    Replica,
    State,
)

NOTHING = -1.0
"""Duration of a step without a row."""


@hot
def chunk_limit(S: State, rep: Replica) -> int:
    """Most prefill tokens of one request in a step: `long_prefill_token_threshold`, unless it is alone."""
    if S.settings.chunk_limit > 0 and rep.running + rep.waiting > 1:
        return S.settings.chunk_limit
    return S.settings.max_tokens


@hot
def remaining(S: State, slot: int) -> int:
    """Tokens that a prefilling slot has still to compute before its next output."""
    x = S.slots[slot].execution
    return S.executions[x].prompt + S.executions[x].outputs - S.slots[slot].offset


@hot
def blocks_between(S: State, computed: int, n: int) -> int:
    """Blocks that `n` more tokens need after `computed`."""
    size = S.settings.block_size
    return (computed + n + size - 1) // size - (computed + size - 1) // size


@hot
def give_chunk(S: State, rep: Replica, slot: int, n: int) -> None:
    """Schedule `n` tokens of a slot in mid-prefill."""
    computed = S.slots[slot].offset
    settle_kv(S, rep, slot, (computed + S.settings.block_size - 1) // S.settings.block_size)
    grow(S, rep, slot, computed, n)
    S.slots[slot].blocks_mark += blocks_between(S, computed, n)
    S.slots[slot].offset = computed + n
    S.slots[slot].tokens = n
    S.slots[slot].pass_no = rep.passes
    S.chunks[rep.chunks] = slot
    rep.chunks += 1


@hot
def decode_blocks(S: State, rep: Replica) -> None:
    """One token for every decoding request: those at a block's end take a block, those that fill one hash it."""
    size = S.settings.block_size
    residue = rep.clock % size
    count = S.residues[rep.index, residue].count
    rep.free -= count
    rep.allocated += count
    S.residues[rep.index, residue].crossed += now_ns(S)
    if not S.settings.caching:
        return
    slot = S.residues[rep.index, residue].head
    while slot != NONE:
        j = (rep.clock + S.slots[slot].offset) // size
        take(S, rep, slot, j, j + 1)
        slot = S.slots[slot].residue_next
    slot = S.residues[rep.index, (residue + 1) % size].head
    while slot != NONE:
        j = (rep.clock + S.slots[slot].offset) // size
        publish(S, rep, slot, j, j + 1)
        slot = S.slots[slot].residue_next


@hot
def runs_in_order(S: State, rep: Replica) -> bool:
    """Whether the running pass needs no walk: budget and blocks suffice, and the order of taking blocks is plain."""
    need = S.residues[rep.index, rep.clock % S.settings.block_size].count
    if rep.decoding > S.settings.max_tokens or need > rep.free:
        return False
    if S.settings.caching and rep.prefilling > 0 and (rep.prefilling > 1 or S.parts[rep.index, 0] != rep.run_tail):
        return False
    left = S.settings.max_tokens - rep.decoding
    limit = chunk_limit(S, rep)
    for k in range(rep.prefilling):
        slot = S.parts[rep.index, k]
        n = min(remaining(S, slot), limit)
        if n > left:
            if slot != rep.run_tail:
                return False
            n = left
        left -= n
        need += blocks_between(S, S.slots[slot].offset, n)
    return need <= rep.free


@hot
def running_in_order(S: State, rep: Replica) -> int:
    """The running requests' part of a step, when all of it fits; returns the budget that is left."""
    budget = S.settings.max_tokens - rep.decoding
    if rep.decoding > 0:
        decode_blocks(S, rep)
    limit = chunk_limit(S, rep)
    for k in range(rep.prefilling):
        slot = S.parts[rep.index, k]
        n = min(remaining(S, slot), limit, budget)
        if n > 0:
            give_chunk(S, rep, slot, n)
            budget -= n
    return budget


@cold
def running_walk(S: State, r: int) -> int:
    """The running pass, request by request: preempts when blocks are short, stops when the budget is spent."""
    rep = S.replicas[r]
    budget = S.settings.max_tokens
    limit = chunk_limit(S, rep)
    slot = rep.run_head
    while slot != NONE and budget > 0:
        computed = S.slots[slot].offset
        n = 1
        if S.slots[slot].kind == DECODING:
            computed += rep.clock
        else:
            n = min(remaining(S, slot), limit, budget)
        need = blocks_between(S, computed, n)
        kept = True
        while need > rep.free:
            victim = rep.run_tail
            if S.settings.by_priority:
                victim = least_urgent(S, rep)
            given = 0
            extra = 0
            if S.slots[victim].pass_no == rep.passes:
                given = S.slots[victim].tokens
                budget += given
                if S.slots[victim].kind == DECODING:
                    extra = blocks_between(S, rep.clock + S.slots[victim].offset, 1)
                else:
                    drop_chunk(S, rep, victim)
            preempt(S, rep, victim, given, extra)
            if victim == slot:
                kept = False
                break
        if not kept:
            break
        if S.slots[slot].kind == DECODING:
            grow(S, rep, slot, computed, 1)
            S.slots[slot].tokens = 1
            S.slots[slot].pass_no = rep.passes
        else:
            give_chunk(S, rep, slot, n)
        budget -= n
        slot = S.slots[slot].run_next
    pause_unreached(S, rep)
    S.residues[r, rep.clock % S.settings.block_size].crossed += now_ns(S)
    return budget


@hot
def least_urgent(S: State, rep: Replica) -> int:
    """The running slot with the largest (priority, arrival); the first of them in the running list."""
    victim = rep.run_head
    slot = S.slots[victim].run_next
    while slot != NONE:
        a = S.slots[slot].execution
        b = S.slots[victim].execution
        p = S.calls[S.executions[a].call].priority
        q = S.calls[S.executions[b].call].priority
        if p > q or (p == q and S.executions[a].queued > S.executions[b].queued):
            victim = slot
        slot = S.slots[slot].run_next
    return victim


@hot
def drop_chunk(S: State, rep: Replica, slot: int) -> None:
    """A chunk that this step had given is taken back."""
    k = 0
    while S.chunks[k] != slot:
        k += 1
    rep.chunks -= 1
    for i in range(k, rep.chunks):
        S.chunks[i] = S.chunks[i + 1]


@hot
def prefix_hits(S: State, rep: Replica, x: int, tokens: int) -> int:
    """Look up the full blocks of the first `tokens - 1` tokens; leaves them in `hits`, returns their number."""
    count = 0
    if S.settings.caching:
        limit = (tokens - 1) // S.settings.block_size
        while count < limit:
            b = find(S, rep, block_key(S, x, count))
            if b == NONE:
                break
            S.hits[count] = b
            count += 1
    return count


@hot
def admit(S: State, rep: Replica, budget: int) -> int:
    """Admit requests from the head of the queue while budget, slots and blocks last; returns the budget left."""
    size = S.settings.block_size
    limit = chunk_limit(S, rep)
    rep.blocked = NOT_BLOCKED
    while budget > 0 and rep.waiting > 0:
        if rep.running >= S.settings.max_num_seqs:
            rep.blocked = BLOCKED_BY_SLOTS
            break
        x = rep.queue_head
        tokens = S.executions[x].prompt + S.executions[x].outputs
        count = prefix_hits(S, rep, x, tokens)
        idle_hits = 0
        for j in range(count):
            if S.blocks[S.hits[j]].state <= 0:
                idle_hits += 1
        reserve = S.settings.watermark if rep.running > 0 else 0
        if (tokens + size - 1) // size - count + idle_hits + reserve > rep.free:
            rep.blocked = BLOCKED_BY_BLOCKS
            break
        dequeue(S, rep, x)
        slot = seat(S, rep, x, count * size, count)
        if S.executions[x].ledger == NO_PAGE:
            new_ledger(S, x)
            S.executions[x].admitted = S.progress.now
            S.ledgers[S.executions[x].ledger].cached = min(count * size, S.executions[x].prompt)
        S.executions[x].status = RUNNING
        open_slot(S, slot)
        if count > 0:
            touch(S, slot, count)
            rep.free -= idle_hits
            rep.allocated += count
            S.slots[slot].blocks_mark = count
        n = min(tokens - count * size, limit, budget)
        give_chunk(S, rep, slot, n)
        budget -= n
    return budget


@hot
def pause_unreached(S: State, rep: Replica) -> None:
    """Decoding requests that the budget did not reach stay where they are while the clock moves on.

    They are out of the group while the step is entered in the ledger; `resume_paused` puts them back.
    """
    slot = rep.run_head
    while slot != NONE:
        if S.slots[slot].kind == DECODING and S.slots[slot].pass_no != rep.passes:
            settle(S, rep, slot)
            S.slots[slot].tokens = leave_group(S, rep, slot)
            S.slots[slot].kind = PAUSED
            S.finished[rep.finished] = slot
            rep.finished += 1
        slot = S.slots[slot].run_next


@hot
def resume_paused(S: State, rep: Replica) -> None:
    """Back into the group, one step behind it."""
    for k in range(rep.finished):
        slot = S.finished[k]
        join_group(S, rep, slot, S.slots[slot].tokens)
    rep.finished = 0


@hot
def may_skip_admission(S: State, rep: Replica) -> bool:
    """Whether the head of the queue is still blocked as it was: nobody has left, and no block has been hashed."""
    if rep.blocked == BLOCKED_BY_SLOTS:
        return True
    return rep.blocked == BLOCKED_BY_BLOCKS and not S.settings.caching


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
    if budget < S.settings.max_tokens:
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
    duration = step_overhead_s(S, rep.decoding + rep.chunks, tokens, decode) + kv_seconds
    duration += S.settings.attention * attention + S.settings.context * context
    rep.clock += 1
    rep.context += rep.decoding
    rep.steps += 1
    rep.decoded = rep.decoding
    post_step(S, rep, rep.decoding, rep.chunks, tokens, mixed, duration)
    if S.settings.trace:
        trace_step(S, rep.index, duration, tokens - decode, decode)
    return duration


@cold
def trace_step(S: State, r: int, duration: float, prefill: int, decode: int) -> None:
    """Record the step just entered, and its rows in running order."""
    rep = S.replicas[r]
    k = S.progress.traced_steps
    S.progress.traced_steps += 1
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
    rep.chunks = 0
    rep.preempted = 0
    overhead = step_overhead_s(S, decode, decode, decode)
    while S.finishing[rep.index, (rep.clock + 1) & S.settings.finish_mask] == NONE:
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
        post_step(S, rep, decode, 0, decode, False, duration)
        if S.settings.trace:
            trace_step(S, rep.index, duration, 0, decode)
        S.progress.steps += 1
        S.progress.now += duration


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
        evict(S, rep, slot, 0, 0)
        S.executions[x].outputs -= unread
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
    vacate(S, rep, slot, computed, held)
    S.executions[x].status = FINISHED
    S.executions[x].end = S.progress.now
    return x
