"""Steps in flight: one, or two where the next is scheduled when the one before it starts.

Steps are numbered as they are scheduled; one stands in `flights` at its number's parity. A token that a step has
computed is *unread* until the step has ended; a request that leaves before loses it.
"""

from __future__ import annotations

from replay.engine.kernel import cold, hot
from replay.engine.state import CONTEXT_BITS, DECODING, DRAINING, FS, Replica, State

NOTHING_S = 1e-12
"""Of a step of which no more is left, no row is: charges are rounded."""


@hot
def take_off(S: State, rep: Replica, duration: float, decoded: int) -> None:
    """The step just scheduled is in flight: it starts when the GPU is free."""
    put_in_flight(S, rep, max(S.progress.now, rep.gpu_free), duration, decoded)
    rep.in_flight += 1


@hot
def put_in_flight(S: State, rep: Replica, start: float, duration: float, decoded: int) -> None:
    """The step scheduled last starts at `start`, and is the last that the GPU has been given."""
    flight = S.flights[rep.index, rep.steps & 1]
    flight.start = start
    flight.end = flight.start + duration
    flight.cost = duration
    flight.row = rep.step_row
    flight.context = rep.step_context
    flight.marginal = rep.step_marginal
    flight.decoded = decoded
    flight.decodes = not rep.prefill_only
    flight.completed = 0
    flight.drained = 0
    rep.gpu_free = flight.end


@hot
def head(rep: Replica) -> int:
    """Number of the step that ends next."""
    return rep.steps - rep.in_flight + 1


@hot
def head_end(S: State, rep: Replica) -> float:
    """When the step that ends next does."""
    return S.flights[rep.index, head(rep) & 1].end


@hot
def has_unread(S: State, rep: Replica, slot: int, step: int) -> bool:
    """Whether an output of the slot's request, counted among its computed tokens, comes from step `step` in flight."""
    if S.slots[slot].kind == DECODING:
        last = rep.steps
    elif S.slots[slot].kind == DRAINING:
        last = S.slots[slot].last_scheduled
    else:
        return False
    if not S.flights[rep.index, step & 1].decodes and (S.settings.depth == 1 or step != S.slots[slot].first_counted):
        return False
    skipped = S.slots[slot].skipped_odd if step & 1 else S.slots[slot].skipped_even
    return S.slots[slot].first_counted <= step and step <= last and step != skipped


@hot
def unread_tokens(S: State, rep: Replica, slot: int) -> int:
    """Outputs of the slot's request that steps in flight compute: 0, 1 or 2."""
    count = 0
    for step in range(head(rep), rep.steps + 1):
        if has_unread(S, rep, slot, step):
            count += 1
    return count


@hot
def give_up_unread(S: State, rep: Replica, slot: int) -> int:
    """The slot's request leaves before its outputs in flight are read; returns how many those are."""
    count = 0
    for step in range(head(rep), rep.steps + 1):
        if has_unread(S, rep, slot, step):
            count += 1
            if S.settings.depth == 1 or step > S.slots[slot].first_counted:
                S.flights[rep.index, step & 1].decoded -= 1
    return count


@hot
def is_row_of(S: State, rep: Replica, slot: int, step: int) -> bool:
    """Whether the slot decodes in step `step` in flight."""
    if S.settings.depth > 1 and step == S.slots[slot].first_counted:
        return False
    return has_unread(S, rep, slot, step)


@cold
def give_back_rows(S: State, r: int, slot: int) -> None:
    """The rows of `slot` in the steps in flight are computed no further: what is left of them leaves the ledger.

    The rows of a step advance together, so that what is left of each is the share of the whole that is left. The steps
    become shorter, and end earlier.
    """
    rep = S.replicas[r]
    saved = 0.0
    for step in range(head(rep), rep.steps + 1):
        flight = S.flights[r, step & 1]
        flight.start -= saved
        flight.end -= saved
        if S.settings.trace:
            S.steps[flight.traced].start -= saved
        saved += give_back_row(S, rep, slot, step)
    rep.gpu_free = S.flights[r, rep.steps & 1].end


@hot
def give_back_row(S: State, rep: Replica, slot: int, step: int) -> float:
    """Take what is left of the row of `slot` in `step` out of the ledger; returns the seconds that this saves."""
    flight = S.flights[rep.index, step & 1]
    chunk = S.chunk_costs[slot, step & 1]
    left = flight.end - max(S.progress.now, flight.start)
    if left <= 0.0 or flight.cost <= 0.0:
        return 0.0
    x = S.slots[slot].execution
    again = 0
    decodes = True
    if is_row_of(S, rep, slot, step):
        computed = S.slots[slot].offset
        if S.slots[slot].kind == DECODING:
            computed += rep.clock
            if step < rep.steps and has_unread(S, rep, slot, rep.steps):
                computed -= 1
        elif step < S.slots[slot].last_scheduled:
            computed -= 1
        charge = flight.row + (flight.context * computed >> CONTEXT_BITS)
        marginal = flight.marginal + (flight.context * computed >> CONTEXT_BITS)
    elif chunk.step == step:
        charge = chunk.charge
        again = chunk.again
        marginal = chunk.marginal
        decodes = chunk.decodes
    else:
        return 0.0
    cost = (charge + again + S.settings.poll_fs) / FS
    share = min(left / flight.cost, 1.0)
    seconds = left if flight.cost - cost < NOTHING_S else min(share * cost, left)
    account = S.slots[slot]
    account.recompute -= int(share * again)
    account.poll -= int(share * S.settings.poll_fs)
    account.marginal -= int(share * marginal)
    charge = int(share * charge)
    orphan = chunk.orphan_before if chunk.turned_in == step else S.executions[x].orphan
    if orphan:
        if decodes:
            account.orphan_decode -= charge
        else:
            account.orphan_prefill -= charge
    elif decodes:
        account.attended_decode -= charge
    else:
        account.attended_prefill -= charge
    flight.cost -= cost
    flight.end -= seconds
    rep.busy_s -= seconds
    if S.settings.trace:
        S.steps[flight.traced].duration -= seconds
    return seconds
