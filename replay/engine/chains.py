"""Blocks by the key of what they hold: chains in a hash table, whose oldest entry answers."""

from __future__ import annotations

from replay.engine.kernel import hot
from replay.engine.state import BLANK, NONE, Replica, State


@hot
def hashes_of(S: State, c: int) -> int:
    """Where the block keys of call `c` begin in `hashes`."""
    return S.hash_ends[c - 1] if c > 0 else 0


@hot
def find(S: State, rep: Replica, key: int) -> int:
    """The oldest block of the replica that holds `key`, or NONE."""
    b = S.buckets[rep.index, key & S.settings.table_mask]
    while b != NONE and S.blocks[b].key != key:
        b = S.blocks[b].chain
    return b


@hot
def enter(S: State, rep: Replica, b: int, key: int, producer: int) -> None:
    """Block `b` holds `key`, filled by execution `producer`: it hangs at the end of its chain."""
    S.blocks[b].key = key
    S.blocks[b].chain = NONE
    S.stories[b].producer = producer
    bucket = key & S.settings.table_mask
    last = S.buckets[rep.index, bucket]
    if last == NONE:
        S.buckets[rep.index, bucket] = b
        return
    while S.blocks[last].chain != NONE:
        last = S.blocks[last].chain
    S.blocks[last].chain = b


@hot
def forget(S: State, rep: Replica, b: int) -> None:
    """Take the hash off block `b`."""
    i = S.blocks[b].key & S.settings.table_mask
    before = S.buckets[rep.index, i]
    if before == b:
        S.buckets[rep.index, i] = S.blocks[b].chain
    else:
        while S.blocks[before].chain != b:
            before = S.blocks[before].chain
        S.blocks[before].chain = S.blocks[b].chain
    S.blocks[b].key = NONE


@hot
def give_number(S: State, rep: Replica, state: int) -> int:
    """A number for a block that had none, which is in `state` from now on."""
    rep.numbers -= 1
    b = S.numbers[rep.index, rep.numbers]
    S.blocks[b].state = state
    return b


@hot
def take_number(S: State, rep: Replica, b: int) -> None:
    """Block `b`, which has no hash, is one of those that are only counted."""
    S.blocks[b].state = BLANK
    S.numbers[rep.index, rep.numbers] = b
    rep.numbers += 1
