"""Whole steps in which nothing happens but decoding, one after the other."""

from __future__ import annotations

from replay.engine.admission import may_skip_admission
from replay.engine.flights import put_in_flight
from replay.engine.kernel import hot
from replay.engine.ledger import post_decoding
from replay.engine.paging import next_residue, tick
from replay.engine.running import decode_blocks
from replay.engine.state import NONE, NOTHING, Replica, State
from replay.engine.tracing import room_to_trace, trace_step

MANY = 1 << 60
"""More steps than there are."""


@hot
def may_coast(S: State, rep: Replica) -> bool:
    """Whether nothing but decoding can happen in the next step, and nothing but tokens comes of the one in flight."""
    if rep.prefilling > 0 or rep.decoding == 0 or rep.decoding > rep.max_tokens or rep.started != NONE:
        return False
    if rep.waiting > 0 and not may_skip_admission(S, rep):
        return False
    if S.settings.depth == 1:
        return True
    flight = S.flights[rep.index, rep.steps & 1]
    return rep.in_flight == 1 and flight.completed == 0 and flight.drained == 0 and rep.stale == 0 and rep.skipping == 0


@hot
def coast(S: State, rep: Replica, horizon: float) -> None:
    """Run whole steps that only decode and finish nobody, while rounds end before `horizon`.

    A round is a step; with two in flight it schedules a step, and ends with the one before it.
    """
    if not may_coast(S, rep):
        return
    rep.prefill_only = 0
    rep.preempted = 0
    if not S.settings.trace:
        coast_steps(S, rep, horizon, MANY)
        return
    while room_to_trace(S):
        scheduled_at = S.progress.now
        duration = coast_steps(S, rep, horizon, 1)
        if duration == NOTHING:
            return
        trace_step(S, rep.index, scheduled_at, duration, 0, rep.decoding)


@hot
def coast_steps(S: State, rep: Replica, horizon: float, most: int) -> float:
    """Coast `most` steps at most; returns the duration of the last one.

    Steps differ in how long they last and in who needs a block. All else is entered for all of them at the end.
    """
    two_in_flight = S.settings.depth > 1
    decode = rep.decoding
    rows = decode + rep.held
    costs = S.decodes[rep.table, rows]
    overhead = costs.overhead_s
    poll = S.settings.poll * decode
    kv_token_s = rep.kv_token_s
    clock = rep.clock
    residue = rep.residue
    context = rep.context
    now = S.progress.now
    gpu_free = rep.gpu_free
    busy_s = rep.busy_s
    start = now
    last = NOTHING
    while clock - rep.clock < most and nothing_is_due(S, rep, clock - rep.clock):
        need = S.residues[rep.index, residue].count
        duration = overhead + kv_token_s * (context + decode) + poll
        ends = gpu_free if two_in_flight else now + duration
        if need > rep.free or ends >= horizon:
            break
        if need > 0 or (S.settings.caching and not two_in_flight):
            S.progress.now = now
            decode_blocks(S, rep, clock, residue)
        clock += 1
        residue = next_residue(S, residue)
        context += decode
        busy_s += duration
        start = now
        if two_in_flight:
            start = max(now, gpu_free)
            gpu_free = start + duration
        now = max(now, ends)
        last = duration
    steps = clock - rep.clock
    if steps == 0:
        return NOTHING
    decoded = decode
    if two_in_flight:
        decoded = S.flights[rep.index, rep.steps & 1].decoded
    rep.computed_output += decoded + (steps - 1) * decode
    tick(S, rep, steps, residue)
    rep.context = context
    rep.steps += steps
    rep.rounds += steps
    rep.busy_s = busy_s
    post_decoding(rep, steps, costs.row_fs, rep.context_rate, costs.marginal_fs)
    if rep.held > 0:
        rep.held_total += steps * costs.row_fs
    if two_in_flight:
        put_in_flight(S, rep, start, last, decode)
    S.progress.steps += steps
    S.progress.now = now
    return last


@hot
def nothing_is_due(S: State, rep: Replica, steps: int) -> bool:
    """Whether `steps` steps later nobody finishes at the end, no cancel is noticed and no held slot is given up."""
    place = (rep.clock + steps + 1) & S.settings.finish_mask
    if S.finishing[rep.index, place] != NONE:
        return False
    if S.settings.due_mask > 0 and S.due[rep.index, (rep.rounds + steps + 1) & S.settings.due_mask] != NONE:
        return False
    return rep.held == 0 or S.held[rep.index, place] == NONE
