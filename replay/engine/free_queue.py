"""The free blocks of a replica with a prefix cache, in the order in which they are taken.

In front are those that keep no hash; they are only counted (`blank_count`). Behind them lies `ring`, oldest first. An
entry of it is the number of a block, which is stale when a hit has taken that block since; or it stands for the private
blocks of a content, as many places as they are.
"""

from __future__ import annotations

from replay.engine.chains import forget, take_number
from replay.engine.kernel import cold, hot
from replay.engine.state import NONE, Replica, State


@hot
def take_front(S: State, rep: Replica, n: int) -> None:
    """Take `n` blocks: what they keep is lost, and nobody has them."""
    blanks = min(n, rep.blank_count)
    rep.blank_count -= blanks
    n -= blanks
    while n > 0:
        if rep.private_left == 0:
            place = rep.ring_head & S.settings.ring_mask
            b = S.ring[rep.index, place]
            if b >= 0:
                rep.ring_head += 1
                if S.blocks[b].state == -place:
                    if S.blocks[b].key != NONE:
                        forget(S, rep, b)
                    take_number(S, rep, b)
                    n -= 1
                continue
            rep.private_left = S.privates[-1 - b].count
        some = min(n, rep.private_left)
        rep.private_left -= some
        rep.ring_head += some
        n -= some


@hot
def put_back(S: State, rep: Replica, b: int) -> None:
    """Block `b`, which nobody holds any more, is the last to be taken."""
    place = rep.ring_tail & S.settings.ring_mask
    rep.ring_tail += 1
    S.ring[rep.index, place] = b
    S.blocks[b].state = -place
    rep.free += 1


@hot
def put_back_private(S: State, rep: Replica, content: int, count: int) -> None:
    """The `count` private blocks of a content are the last to be taken, from its end to its beginning."""
    S.privates[content].place = rep.ring_tail
    S.privates[content].count = count
    S.ring[rep.index, rep.ring_tail & S.settings.ring_mask] = -1 - content
    rep.ring_tail += count
    rep.free += count


@hot
def make_room(S: State, rep: Replica, count: int) -> None:
    """Let the ring have `count` places to spare."""
    if rep.ring_tail - rep.ring_head + count > S.settings.ring_mask:
        compact_ring(S, rep.index)


@cold
def compact_ring(S: State, r: int) -> None:
    """Drop the stale entries of a full ring, keeping the order."""
    mask = S.settings.ring_mask
    rep = S.replicas[r]
    write = rep.ring_head + rep.private_left
    read = write
    while read < rep.ring_tail:
        b = S.ring[r, read & mask]
        if b < 0:
            S.ring[r, write & mask] = b
            S.privates[-1 - b].place = write
            read += S.privates[-1 - b].count
            write += S.privates[-1 - b].count
            continue
        if S.blocks[b].state == -(read & mask):
            S.ring[r, write & mask] = b
            S.blocks[b].state = -(write & mask)
            write += 1
        read += 1
    rep.ring_tail = write
