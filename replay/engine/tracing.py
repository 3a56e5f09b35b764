"""The table of steps, and of the rows in them, where somebody wants it."""

from __future__ import annotations

from replay.engine.kernel import cold, hot
from replay.engine.state import DECODING, NONE, PREFILLING, State


@hot
def room_to_trace(S: State) -> bool:
    """Whether the trace can hold two more steps: one that is coasted, and the one scheduled after it."""
    rows = S.progress.traced_rows + 2 * S.settings.max_num_seqs
    return S.progress.traced_steps + 2 < len(S.steps) and rows < len(S.rows)


@cold
def trace_step(S: State, r: int, scheduled_at: float, duration: float, prefill: int, decode: int) -> None:
    """Record the step just entered, and its rows in running order."""
    rep = S.replicas[r]
    k = S.progress.traced_steps
    S.progress.traced_steps += 1
    S.flights[r, rep.steps & 1].traced = k
    step = S.steps[k]
    step.replica = r
    step.step = rep.steps - 1
    step.scheduled_at = scheduled_at
    step.start = S.flights[r, rep.steps & 1].start if S.settings.depth > 1 else scheduled_at
    step.duration = duration
    step.prefill = prefill
    step.decode = decode
    step.running = rep.running
    step.waiting = rep.waiting
    step.free = rep.free
    step.preempted = rep.preempted
    context = 0 if rep.prefill_only else rep.context
    slot = rep.run_head
    while slot != NONE:
        decoding = S.slots[slot].kind == DECODING and not rep.prefill_only
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
