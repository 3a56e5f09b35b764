"""The batch of a replica: requests enter a slot, prefill, join the decoding group, and leave.

A decoding request is not touched in a step. It stands in two lists: that of the step which finishes it
(`finishing`, a ring over steps) and that of its residue class (`residues`), which tells when it needs a block.
"""

from __future__ import annotations

from replay.engine.blocks import linger, publish, publish_read, release, take
from replay.engine.flights import give_up_unread, unread_tokens
from replay.engine.kernel import hot
from replay.engine.ledger import enter_charges, mark_decoding, settle
from replay.engine.paging import blocks_for, full_blocks, residue_of
from replay.engine.private import first_private
from replay.engine.queue import enqueue
from replay.engine.state import (
    COMPUTED,
    COMPUTED_PROMPT,
    DECODING,
    DRAINING,
    EMPTY,
    NONE,
    PREFILLING,
    QUEUED,
    Replica,
    State,
)


@hot
def join_group(S: State, rep: Replica, slot: int, computed: int) -> None:
    """The slot decodes from the replica's next step on; it has `computed` tokens now."""
    x = S.slots[slot].execution
    offset = computed - rep.clock
    S.slots[slot].offset = offset
    S.slots[slot].kind = DECODING
    rep.decoding += 1
    rep.context += computed
    residue = residue_of(S, rep, computed)
    S.slots[slot].residue = residue
    S.residues[rep.index, residue].count += 1
    if S.settings.caching:
        join_residue(S, rep, slot, residue)
    place = (S.executions[x].prompt + S.executions[x].output - 1 - offset) & S.settings.finish_mask
    head = S.finishing[rep.index, place]
    S.slots[slot].finish_next = head
    S.slots[slot].finish_previous = -2 - place
    if head != NONE:
        S.slots[head].finish_previous = slot
    S.finishing[rep.index, place] = slot
    mark_decoding(S, rep, slot)


@hot
def join_residue(S: State, rep: Replica, slot: int, residue: int) -> None:
    """Into the list of its residue class, which is kept in admission order: blocks are taken in that order."""
    left = S.residues[rep.index, residue].tail
    right = NONE
    while left != NONE and S.slots[left].admission > S.slots[slot].admission:
        right = left
        left = S.slots[left].residue_previous
    S.slots[slot].residue_previous = left
    S.slots[slot].residue_next = right
    if left != NONE:
        S.slots[left].residue_next = slot
    else:
        S.residues[rep.index, residue].head = slot
    if right != NONE:
        S.slots[right].residue_previous = slot
    else:
        S.residues[rep.index, residue].tail = slot


@hot
def leave_group(S: State, rep: Replica, slot: int) -> int:
    """Out of the decoding group; returns the computed tokens. What it owed must have been settled."""
    computed = rep.clock + S.slots[slot].offset
    rep.decoding -= 1
    rep.context -= computed
    residue = S.slots[slot].residue
    S.residues[rep.index, residue].count -= 1
    if S.settings.caching:
        left = S.slots[slot].residue_previous
        right = S.slots[slot].residue_next
        if left != NONE:
            S.slots[left].residue_next = right
        else:
            S.residues[rep.index, residue].head = right
        if right != NONE:
            S.slots[right].residue_previous = left
        else:
            S.residues[rep.index, residue].tail = left
    left = S.slots[slot].finish_previous
    right = S.slots[slot].finish_next
    if left >= 0:
        S.slots[left].finish_next = right
    else:
        S.finishing[rep.index, -2 - left] = right
    if right != NONE:
        S.slots[right].finish_previous = left
    return computed


@hot
def drain(S: State, rep: Replica, slot: int, computed: int) -> None:
    """The step just scheduled computes the slot's last token: it takes part in no other, and waits for its outputs."""
    S.slots[slot].kind = DRAINING
    S.slots[slot].offset = computed
    S.slots[slot].last_scheduled = rep.steps
    flight = S.flights[rep.index, rep.steps & 1]
    place = 2 * rep.index + (rep.steps & 1)
    S.draining[place, flight.drained, 0] = slot
    S.draining[place, flight.drained, 1] = S.slots[slot].admission
    flight.drained += 1


@hot
def remove_part(S: State, rep: Replica, slot: int) -> None:
    """Out of the list of slots in mid-prefill."""
    k = 0
    while S.parts[rep.index, k] != slot:
        k += 1
    rep.prefilling -= 1
    for i in range(k, rep.prefilling):
        S.parts[rep.index, i] = S.parts[rep.index, i + 1]


@hot
def grow(S: State, rep: Replica, slot: int, computed: int, n: int) -> None:
    """Blocks for `n` more tokens after `computed` (they are known to be free); full ones are hashed."""
    held = blocks_for(S, computed)
    wanted = blocks_for(S, computed + n)
    rep.free -= wanted - held
    rep.allocated += wanted - held
    if S.settings.caching:
        take(S, rep, slot, held, wanted)
        if S.slots[slot].kind != DECODING or S.settings.depth == 1:
            publish(S, rep, slot, full_blocks(S, computed), full_blocks(S, computed + n))
        else:
            publish_read(S, rep, slot, computed + 1 - unread_tokens(S, rep, slot))


@hot
def book(S: State, slot: int, computed: int) -> None:
    """Enter in the ledger what the slot's request has computed since it was admitted, up to `computed` tokens."""
    x = S.slots[slot].execution
    start = S.slots[slot].computed_from
    S.charges[COMPUTED_PROMPT, x] += max(min(computed, S.executions[x].prompt) - start, 0)
    if S.settings.trace:
        S.charges[COMPUTED, x] += computed - start


@hot
def vacate(S: State, rep: Replica, slot: int, computed: int, held: int, lingers: bool) -> None:
    """Take a request out of its slot: give back the `held` blocks, unless they linger; book the `computed` tokens."""
    x = S.slots[slot].execution
    if lingers:
        linger(S, rep, slot, held)
    else:
        release(S, rep, slot, held)
    book(S, slot, computed)
    enter_charges(S, slot)
    S.executions[x].slot = NONE
    left = S.slots[slot].run_previous
    right = S.slots[slot].run_next
    if left != NONE:
        S.slots[left].run_next = right
    else:
        rep.run_head = right
    if right != NONE:
        S.slots[right].run_previous = left
    else:
        rep.run_tail = left
    rep.running -= 1
    rep.promised -= S.slots[slot].promised
    S.slots[slot].execution = NONE
    S.slots[slot].kind = EMPTY
    S.free_slots[rep.index, rep.slots_free] = slot
    rep.slots_free += 1
    rep.blocked = 0


@hot
def outputs_of(S: State, rep: Replica, slot: int) -> int:
    """Tokens that the slot's request has put out, those in flight included."""
    x = S.slots[slot].execution
    if S.slots[slot].kind == DECODING:
        return rep.clock + S.slots[slot].offset - S.executions[x].prompt + 1
    if S.slots[slot].kind == DRAINING:
        return S.slots[slot].offset - S.executions[x].prompt + 1
    return S.executions[x].outputs


@hot
def evict(S: State, rep: Replica, slot: int, given: int, extra: int, lingers: bool) -> int:
    """A running request leaves its slot before its end; returns its execution.

    `given`: tokens that the step being scheduled has given it already; `extra`: blocks that it took for them;
    `lingers`: it keeps its blocks for a while.
    """
    x = S.slots[slot].execution
    S.executions[x].outputs = outputs_of(S, rep, slot)
    held = settle(S, rep, slot)
    computed = S.slots[slot].offset - given
    if S.slots[slot].kind == DECODING:
        computed = leave_group(S, rep, slot)
        held += extra
    elif S.slots[slot].kind == PREFILLING:
        remove_part(S, rep, slot)
    S.slots[slot].peak = max(S.slots[slot].peak, computed)
    vacate(S, rep, slot, computed, held, lingers)
    return x


@hot
def preempt(S: State, rep: Replica, slot: int, given: int, extra: int) -> None:
    """Blocks are short: a running request goes back to the queue, and will compute its tokens again.

    An output of it that is in flight still counts when it arrives.
    """
    unread = give_up_unread(S, rep, slot)
    x = evict(S, rep, slot, given, extra, False)
    S.executions[x].status = QUEUED
    S.executions[x].silent = 1
    S.execution_extras[x].peak = S.slots[slot].peak
    S.execution_extras[x].silent_since = S.progress.now
    if unread > 0:
        S.executions[x].outputs -= unread
        S.stale[rep.index, rep.stale] = x
        rep.stale += 1
    S.executions[x].preemptions += 1
    rep.preemptions += 1
    rep.preempted += 1
    enqueue(S, rep, x, True)


@hot
def seat(S: State, rep: Replica, x: int, computed: int, hits: int) -> int:
    """Give an admitted request a slot at the end of the running list; returns the slot."""
    rep.slots_free -= 1
    slot = S.free_slots[rep.index, rep.slots_free]
    rep.admissions += 1
    S.slots[slot].admission = rep.admissions
    S.slots[slot].execution = x
    S.slots[slot].kind = PREFILLING
    S.slots[slot].offset = computed
    S.slots[slot].computed_from = computed
    S.slots[slot].hits = hits
    S.slots[slot].peak = S.execution_extras[x].peak if S.executions[x].preemptions > 0 else 0
    if S.settings.caching:
        S.slots[slot].private_from = first_private(S, rep, x)
        S.slots[slot].private_stranded = 0
        S.slots[slot].filled = hits
        S.slots[slot].blocks = hits
    S.slots[slot].first_round = rep.rounds
    S.slots[slot].skipped_even = NONE
    S.slots[slot].skipped_odd = NONE
    for parity in range(2):
        S.chunk_costs[slot, parity].step = NONE
        S.chunk_costs[slot, parity].turned_in = NONE
    S.slots[slot].run_next = NONE
    S.slots[slot].run_previous = rep.run_tail
    if rep.run_tail != NONE:
        S.slots[rep.run_tail].run_next = slot
    else:
        rep.run_head = slot
    rep.run_tail = slot
    rep.running += 1
    S.executions[x].slot = slot
    S.parts[rep.index, rep.prefilling] = slot
    rep.prefilling += 1
    return slot
