"""The queue's part of a step: requests are admitted from its head while budget, slots and blocks last."""

from __future__ import annotations

from replay.engine.batch import seat
from replay.engine.blocks import touch
from replay.engine.chains import find, hashes_of
from replay.engine.kernel import hot
from replay.engine.ledger import open_slot
from replay.engine.paging import blocks_for, full_blocks
from replay.engine.private import may_be_found
from replay.engine.queue import dequeue
from replay.engine.running import chunk_limit, give_chunk
from replay.engine.state import (
    ABORTED,
    BLOCKED_BY_BLOCKS,
    BLOCKED_BY_SLOTS,
    INFINITY,
    NONE,
    NOT_BLOCKED,
    RUNNING,
    Replica,
    State,
)


@hot
def prefix_hits(S: State, rep: Replica, x: int, tokens: int) -> int:
    """Look up the full blocks of the first `tokens - 1` tokens; leaves them in `hits`, returns their number."""
    if not S.settings.caching:
        return 0
    c = int(S.executions[x].call)
    limit = full_blocks(S, tokens - 1)
    first = hashes_of(S, c)
    hashed = min(limit, S.hash_ends[c] - first)
    count = 0
    while count < hashed:
        b = find(S, rep, S.hashes[first + count])
        if b == NONE:
            return count
        S.hits[count] = b
        count += 1
    if count < limit and may_be_found(S, rep, S.contents[c]):
        key = S.settings.content_base + S.contents[c] * S.settings.stride
        while count < limit:
            b = find(S, rep, key + count)
            if b == NONE:
                break
            S.hits[count] = b
            count += 1
    return count


@hot
def promised_blocks(S: State, rep: Replica, x: int) -> int:
    """Blocks that a request is promised at admission: for its prompt and a share of its output limit; 0 for none.

    At most all that there are: a limit may be larger than the pool, and the output is not.
    """
    if S.settings.reserve_share == 0.0:
        return 0
    tokens = S.executions[x].prompt + int(S.settings.reserve_share * S.call_extras[S.executions[x].call].reserve)
    return min(blocks_for(S, tokens), rep.num_blocks - 1)


@hot
def drop(S: State, rep: Replica, x: int) -> None:
    """The request at the head of the queue turns out to be cancelled: it leaves, and stands in the list of those."""
    dequeue(S, rep, x)
    S.executions[x].status = ABORTED
    S.executions[x].end = S.progress.now
    S.executions[x].next = rep.dropped
    rep.dropped = x


@hot
def admit(S: State, rep: Replica, budget: int) -> int:
    """Admit requests from the head of the queue while budget, slots and blocks last; returns the budget left."""
    size = S.settings.block_size
    limit = chunk_limit(S, rep)
    rep.blocked = NOT_BLOCKED
    while budget > 0 and rep.waiting > 0:
        if rep.running + rep.held >= rep.max_num_seqs:
            rep.blocked = BLOCKED_BY_SLOTS
            break
        x = rep.queue_head
        if S.executions[x].gone:
            drop(S, rep, x)
            continue
        tokens = S.executions[x].prompt + S.executions[x].outputs
        count = prefix_hits(S, rep, x, tokens)
        idle_hits = 0
        for j in range(count):
            if S.blocks[S.hits[j]].state <= 0:
                idle_hits += 1
        reserve = rep.watermark if rep.running > 0 else 0
        n = min(tokens - count * size, limit, budget)
        wanted = count * size + n if S.settings.chunk_admission else tokens
        promise = promised_blocks(S, rep, x)
        crowded = promise > 0 and rep.promised + promise > rep.num_blocks - 1
        if crowded or blocks_for(S, wanted) - count + idle_hits + reserve > rep.free:
            rep.blocked = BLOCKED_BY_BLOCKS
            break
        dequeue(S, rep, x)
        slot = seat(S, rep, x, count * size, count)
        if S.executions[x].admitted == INFINITY:
            S.executions[x].admitted = S.progress.now
            S.executions[x].cached = min(count * size, S.executions[x].prompt)
        S.slots[slot].promised = promise
        rep.promised += promise
        S.executions[x].status = RUNNING
        open_slot(S, slot)
        if count > 0:
            touch(S, slot, count)
            rep.free -= idle_hits
            rep.allocated += count
            S.slots[slot].blocks_mark = count
        give_chunk(S, rep, slot, n)
        budget -= n
    return budget


@hot
def may_skip_admission(S: State, rep: Replica) -> bool:
    """Whether the head of the queue is still blocked as it was: nobody has left, and no block has been hashed."""
    if rep.blocked == BLOCKED_BY_SLOTS:
        return True
    return rep.blocked == BLOCKED_BY_BLOCKS and not S.settings.caching
