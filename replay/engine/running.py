"""The running requests' part of a step: each gets its tokens and blocks, and when blocks are short some are preempted.

`running_in_order` is the plain case, in which nothing has to be decided request by request; `running_walk` is all of
vLLM's rule. Both give the same step where the plain case applies.
"""

from __future__ import annotations

from replay.engine.batch import grow, join_group, leave_group, outputs_of, preempt
from replay.engine.blocks import fill, now_ns, publish
from replay.engine.free_queue import take_front
from replay.engine.kernel import cold, hot
from replay.engine.ledger import settle, settle_kv
from replay.engine.paging import blocks_for, full_blocks, next_residue
from replay.engine.state import DECODING, DRAINING, NONE, PAUSED, Replica, State


@hot
def chunk_limit(S: State, rep: Replica) -> int:
    """Most prefill tokens of one request in a step: `long_prefill_token_threshold`, mostly unless it is alone."""
    requests = rep.running + rep.waiting
    if rep.chunk_limit == 0 or (requests <= 1 and not S.settings.chunks_alone):
        return rep.max_tokens
    if S.settings.fair_chunks:
        return max(rep.chunk_limit, rep.max_tokens // max(requests, 1))
    return rep.chunk_limit


@hot
def remaining(S: State, slot: int) -> int:
    """Tokens that a prefilling slot has still to compute before its next output."""
    x = S.slots[slot].execution
    return S.executions[x].prompt + S.executions[x].outputs - S.slots[slot].offset


@hot
def blocks_between(S: State, computed: int, n: int) -> int:
    """Blocks that `n` more tokens need after `computed`."""
    return blocks_for(S, computed + n) - blocks_for(S, computed)


@hot
def give_chunk(S: State, rep: Replica, slot: int, n: int) -> None:
    """Schedule `n` tokens of a slot in mid-prefill."""
    computed = S.slots[slot].offset
    settle_kv(S, rep, slot, blocks_for(S, computed))
    grow(S, rep, slot, computed, n)
    S.slots[slot].blocks_mark += blocks_between(S, computed, n)
    S.slots[slot].offset = computed + n
    S.slots[slot].tokens = n
    S.slots[slot].pass_no = rep.passes
    S.chunks[rep.chunks] = slot
    rep.chunks += 1


@hot
def decode_blocks(S: State, rep: Replica, clock: int, residue: int) -> None:
    """One token for every decoding request: those at a block's end take a block, those that fill one hash it.

    `clock` is the replica's, `residue` what it leaves of blocks. With two steps in flight the newest token is not known
    yet: a block is hashed a step later, when it is.
    """
    count = S.residues[rep.index, residue].count
    rep.free -= count
    rep.allocated += count
    S.residues[rep.index, residue].crossed += now_ns(S)
    if not S.settings.caching:
        return
    take_front(S, rep, count)
    slot = S.residues[rep.index, residue].head
    while slot != NONE:
        j = full_blocks(S, clock + S.slots[slot].offset)
        fill(S, rep, slot, j, j + 1)
        if S.settings.depth > 1 and S.slots[slot].filled < j:
            publish(S, rep, slot, j - 1, j)
        slot = S.slots[slot].residue_next
    if S.settings.depth > 1:
        return
    slot = S.residues[rep.index, next_residue(S, residue)].head
    while slot != NONE:
        j = full_blocks(S, clock + S.slots[slot].offset)
        publish(S, rep, slot, j, j + 1)
        slot = S.slots[slot].residue_next


@hot
def runs_in_order(S: State, rep: Replica) -> bool:
    """Whether the running pass needs no walk: budget and blocks suffice, and the order of taking blocks is plain."""
    need = S.residues[rep.index, rep.residue].count
    if rep.decoding > rep.max_tokens or need > rep.free:
        return False
    if S.settings.caching and rep.skipping and S.settings.depth > 1:
        return False
    if S.settings.caching and rep.prefilling > 0 and (rep.prefilling > 1 or S.parts[rep.index, 0] != rep.run_tail):
        return False
    left = rep.max_tokens - rep.decoding
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
    budget = rep.max_tokens - rep.decoding
    if rep.decoding > 0:
        decode_blocks(S, rep, rep.clock, rep.residue)
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
    budget = rep.max_tokens
    limit = chunk_limit(S, rep)
    slot = rep.run_head
    while slot != NONE and budget > 0:
        computed = S.slots[slot].offset
        n = 1
        if S.slots[slot].kind == DRAINING:
            slot = S.slots[slot].run_next
            continue
        if S.slots[slot].kind == DECODING:
            computed += rep.clock
        else:
            n = min(remaining(S, slot), limit, budget)
        need = blocks_between(S, computed, n)
        behind = NONE
        skipped = 0
        kept = True
        while need > rep.free:
            victim = rep.run_tail
            if S.settings.by_priority:
                victim = least_urgent(S, rep)
            elif S.settings.evicts_fewest:
                victim = with_fewest_outputs(S, rep)
            given = 0
            extra = 0
            if S.slots[victim].pass_no == rep.passes:
                given = S.slots[victim].tokens
                budget += given
                if S.slots[victim].kind == DECODING:
                    extra = blocks_between(S, rep.clock + S.slots[victim].offset, 1)
                else:
                    drop_chunk(S, rep, victim)
            elif S.settings.eviction_skips and S.slots[victim].admission < S.slots[slot].admission:
                skipped += 1
            if victim == slot and S.settings.pass_goes_on:
                behind = S.slots[slot].run_next
            preempt(S, rep, victim, given, extra)
            if victim == slot:
                kept = False
                break
        if not kept:
            slot = behind
            continue
        if S.slots[slot].kind == DECODING:
            grow(S, rep, slot, computed, 1)
            S.slots[slot].tokens = 1
            S.slots[slot].pass_no = rep.passes
        else:
            give_chunk(S, rep, slot, n)
        budget -= n
        slot = S.slots[slot].run_next
        while skipped > 0 and slot != NONE:
            slot = S.slots[slot].run_next
            skipped -= 1
    pause_unreached(S, rep)
    S.residues[r, rep.residue].crossed += now_ns(S)
    return budget


@hot
def least_urgent(S: State, rep: Replica) -> int:
    """The running slot with the largest (priority, arrival); the first of them in the running list."""
    victim = rep.run_head
    slot = S.slots[victim].run_next
    while slot != NONE:
        a = S.slots[slot].execution
        b = S.slots[victim].execution
        p = S.execution_extras[a].priority
        q = S.execution_extras[b].priority
        if p > q or (p == q and S.executions[a].queued > S.executions[b].queued):
            victim = slot
        slot = S.slots[slot].run_next
    return victim


@hot
def with_fewest_outputs(S: State, rep: Replica) -> int:
    """The running slot with the fewest outputs; of equals the one with the longest prompt, and then the last."""
    victim = rep.run_head
    slot = S.slots[victim].run_next
    while slot != NONE:
        mine = outputs_of(S, rep, slot)
        least = outputs_of(S, rep, victim)
        longer = S.executions[S.slots[slot].execution].prompt - S.executions[S.slots[victim].execution].prompt
        if mine < least or (mine == least and longer >= 0):
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
def resume_paused(S: State, rep: Replica, entered: bool) -> None:
    """Back into the group, one step behind it if a step was `entered` meanwhile."""
    if entered:
        rep.skipping = rep.finished > 0
    for k in range(rep.finished):
        slot = S.finished[k]
        if entered and rep.steps & 1:
            S.slots[slot].skipped_odd = rep.steps
        elif entered:
            S.slots[slot].skipped_even = rep.steps
        join_group(S, rep, slot, S.slots[slot].tokens)
    rep.finished = 0
