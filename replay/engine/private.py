"""Private blocks: those behind the hashed prefix of a content that one execution alone has had on a replica.

Nobody else can have hit one, so that they are counted and not numbered: they are the end of the sequence of their
execution while it holds them, and a stretch of the free queue after that. When somebody may hit them, they are
*disclosed*: each gets a number and its place in the hash table. From then on the content has no private blocks.
"""

from __future__ import annotations

from replay.engine.blocks import charge_private, hold_of, strand
from replay.engine.chains import enter, give_number, hashes_of
from replay.engine.kernel import cold, hot
from replay.engine.state import DISCLOSED, NO_PRIVATE, NONE, Replica, State


@hot
def are_gone(S: State, rep: Replica, content: int) -> bool:
    """Whether the private blocks of a content were on this replica, and are not any more."""
    x = S.privates[content].execution
    if S.executions[x].replica != rep.index:
        return False
    if S.privates[content].count == 0:
        return S.executions[x].slot == NONE
    return S.privates[content].place + S.privates[content].count <= rep.ring_head


@hot
def may_be_found(S: State, rep: Replica, content: int) -> bool:
    """Whether the replica may have blocks of the content behind its hashed prefix; they are disclosed."""
    x = S.privates[content].execution
    if x == NONE:
        return False
    if x != DISCLOSED and S.executions[x].replica == rep.index:
        if are_gone(S, rep, content):
            return False
        disclose(S, rep.index, content)
    return True


@hot
def first_private(S: State, rep: Replica, x: int) -> int:
    """Place in the sequence of `x`, which gets a slot, from which on its blocks are private; NO_PRIVATE for none."""
    c = int(S.executions[x].call)
    content = S.contents[c]
    owner = S.privates[content].execution
    if owner != NONE:
        if owner == DISCLOSED or S.executions[owner].replica != rep.index:
            return NO_PRIVATE
        if not are_gone(S, rep, content):
            disclose(S, rep.index, content)
            return NO_PRIVATE
    S.privates[content].execution = x
    S.privates[content].count = 0
    return S.hash_ends[c] - hashes_of(S, c)


@cold
def disclose(S: State, r: int, content: int) -> None:
    """Give the private blocks of a content their numbers, where they lie."""
    rep = S.replicas[r]
    x = S.privates[content].execution
    key = S.settings.content_base + content * S.settings.stride
    c = int(S.executions[x].call)
    first = S.hash_ends[c] - hashes_of(S, c)
    S.privates[content].execution = DISCLOSED
    if S.privates[content].count == 0:
        disclose_in_slot(S, rep, int(S.executions[x].slot), first, key)
        return
    place = S.privates[content].place
    end = place + S.privates[content].count
    if place < rep.ring_head:
        place = rep.ring_head
        rep.private_left = 0
    for k in range(place, end):
        at = k & S.settings.ring_mask
        b = give_number(S, rep, -at)
        S.ring[r, at] = b
        enter(S, rep, b, key + first + end - 1 - k, x)


@hot
def disclose_in_slot(S: State, rep: Replica, slot: int, first: int, key: int) -> None:
    """Give numbers to the private blocks of a slot, from place `first` on; `key`: that of place 0."""
    x = S.slots[slot].execution
    orphan = S.executions[x].orphan
    if orphan:
        charge_private(S, slot)
    S.slots[slot].private_from = NO_PRIVATE
    for j in range(first, S.slots[slot].blocks):
        b = give_number(S, rep, hold_of(S, x))
        S.table[slot, j] = b
        if j < S.slots[slot].filled:
            enter(S, rep, b, key + j, x)
        if orphan:
            strand(S, b, x)
