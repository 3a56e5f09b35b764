"""Slots that stay taken after an abort: rows of the batch that compute nothing, until their time is up."""

from __future__ import annotations

from replay.engine.kernel import hot
from replay.engine.ledger import whole_ns
from replay.engine.state import HELD_SLOT, NONE, NOT_BLOCKED, Replica, State


@hot
def hold_slot(S: State, rep: Replica, x: int, steps: int) -> None:
    """The slot of aborted execution `x` stays a row of the batch for `steps` more steps."""
    S.execution_extras[x].held_until = rep.clock + steps
    S.execution_extras[x].held_mark = rep.held_total
    place = S.execution_extras[x].held_until & S.settings.finish_mask
    S.execution_extras[x].child = S.held[rep.index, place]
    S.held[rep.index, place] = x
    S.executions[x].previous = NONE
    S.executions[x].next = rep.held_head
    if rep.held_head != NONE:
        S.executions[rep.held_head].previous = x
    rep.held_head = x
    rep.held += 1


@hot
def charge_held(S: State, rep: Replica, x: int) -> None:
    """Charge execution `x` for the slot that it has held since it was charged last."""
    S.charges[HELD_SLOT, x] += whole_ns(rep.held_total - S.execution_extras[x].held_mark)
    S.execution_extras[x].held_mark = rep.held_total


@hot
def give_up_held(S: State, rep: Replica) -> None:
    """Slots whose time is up at the end of this step are free."""
    place = rep.clock & S.settings.finish_mask
    x = S.held[rep.index, place]
    S.held[rep.index, place] = NONE
    while x != NONE:
        charge_held(S, rep, x)
        left = S.executions[x].previous
        right = S.executions[x].next
        if left != NONE:
            S.executions[left].next = right
        else:
            rep.held_head = right
        if right != NONE:
            S.executions[right].previous = left
        rep.held -= 1
        rep.blocked = NOT_BLOCKED
        x = S.execution_extras[x].child


@hot
def give_up_all_held(S: State, rep: Replica) -> None:
    """The batch is empty: no slot is held any longer."""
    x = rep.held_head
    while x != NONE:
        charge_held(S, rep, x)
        S.held[rep.index, S.execution_extras[x].held_until & S.settings.finish_mask] = NONE
        x = S.executions[x].next
    rep.held_head = NONE
    rep.held = 0
    rep.blocked = NOT_BLOCKED
