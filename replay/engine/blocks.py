"""The paged KV pool of a replica, and its prefix cache.

Without caching a pool is a number: `free`. With it, every block is known. Free blocks form one queue whose front is
`blank` (blocks that keep no hash, a stack) and whose rest is `ring` (hashed ones, oldest first; an entry whose block
a hit has taken since is stale). Hashed blocks hang in `buckets`, in chains whose oldest entry answers.
"""

from __future__ import annotations

from replay.engine.kernel import cold, hot
from replay.engine.state import NONE, NS, Replica, State

HOLDER = 1
"""One more holder in a block's state."""
ATTENDED = 1 << 15
"""One more of its holders has a waiting client."""
HOLDERS = ATTENDED - 1
BLANK = 1 << 30
"""State of a free block without a hash: in no ring place, held by nobody."""


@hot
def now_ns(S: State) -> int:
    """The present instant in nanoseconds."""
    return int(S.progress.now * NS + 0.5)


@hot
def hold_of(S: State, x: int) -> int:
    """What one holding by execution `x` adds to a block's state."""
    return HOLDER if S.executions[x].orphan else HOLDER + ATTENDED


@hot
def block_key(S: State, x: int, j: int) -> int:
    """Identity of block `j` of the sequence of execution `x`."""
    c = int(S.executions[x].call)
    if j < S.calls[c].hash_count:
        return S.hashes[S.calls[c].hash_start + j]
    return S.settings.content_base + S.calls[c].content * S.settings.stride + j


@hot
def find(S: State, rep: Replica, key: int) -> int:
    """The oldest block of the replica that holds `key`, or NONE."""
    b = S.buckets[rep.index, key & S.settings.table_mask]
    while b != NONE and S.blocks[b].key != key:
        b = S.blocks[b].chain
    return b


@hot
def publish(S: State, rep: Replica, slot: int, first: int, end: int) -> None:
    """Hash the blocks `table[slot, first:end]`: others may hit them from now on."""
    x = S.slots[slot].execution
    c = int(S.executions[x].call)
    hashed = S.calls[c].hash_count
    hashes = S.calls[c].hash_start
    content = S.settings.content_base + S.calls[c].content * S.settings.stride
    for j in range(first, end):
        b = S.table[slot, j]
        key = content + j
        if j < hashed:
            key = S.hashes[hashes + j]
        S.blocks[b].key = key
        S.blocks[b].chain = NONE
        S.stories[b].producer = x
        append_to_chain(S, rep, b, key & S.settings.table_mask)


@hot
def publish_read(S: State, rep: Replica, slot: int, known: int) -> None:
    """Hash the blocks of a decoding slot that its `known` tokens fill, as far as they have no hash yet."""
    end = known // S.settings.block_size
    first = end
    while first > 0 and S.blocks[S.table[slot, first - 1]].key == NONE:
        first -= 1
    publish(S, rep, slot, first, end)


@hot
def append_to_chain(S: State, rep: Replica, b: int, bucket: int) -> None:
    """Hang block `b` at the end of its bucket's chain."""
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
def strand(S: State, b: int, x: int) -> None:
    """From now on nobody attended holds block `b`: because of `x`."""
    S.stories[b].owner = x
    S.stories[b].stranded_ns = now_ns(S)


@hot
def unstrand(S: State, b: int) -> None:
    """Block `b` is no longer stranded: charge the time to the execution that left it so."""
    S.ledgers[S.executions[S.stories[b].owner].ledger].stranded_kv_block += now_ns(S) - S.stories[b].stranded_ns


@hot
def take(S: State, rep: Replica, slot: int, first: int, end: int) -> None:
    """Fill `table[slot, first:end]` from the front of the free queue; the caller has counted them."""
    x = S.slots[slot].execution
    hold = hold_of(S, x)
    j = first
    while j < end and rep.blank_count > 0:
        rep.blank_count -= 1
        b = S.blank[rep.index, rep.blank_count]
        S.blocks[b].state = hold
        S.table[slot, j] = b
        j += 1
    while j < end:
        place = rep.ring_head & S.settings.ring_mask
        b = S.ring[rep.index, place]
        rep.ring_head += 1
        if S.blocks[b].state != -place:
            continue
        S.blocks[b].state = hold
        if S.blocks[b].key != NONE:
            forget(S, rep, b)
        S.table[slot, j] = b
        j += 1
    if S.executions[x].orphan:
        for k in range(first, end):
            strand(S, S.table[slot, k], x)


@hot
def touch(S: State, slot: int, count: int) -> None:
    """Hold the `count` blocks in `hits` as the head of `table[slot]`, out of the free queue where they lie in it."""
    x = S.slots[slot].execution
    hold = hold_of(S, x)
    for j in range(count):
        b = S.hits[j]
        S.table[slot, j] = b
        if S.blocks[b].state <= 0:
            S.blocks[b].state = hold
            if S.executions[x].orphan:
                strand(S, b, x)
        else:
            if S.blocks[b].state < ATTENDED and not S.executions[x].orphan:
                unstrand(S, b)
            S.blocks[b].state += hold


@cold
def compact_ring(S: State, r: int) -> None:
    """Drop the stale entries of a full ring, keeping the order."""
    mask = S.settings.ring_mask
    rep = S.replicas[r]
    write = rep.ring_tail
    for k in range(int(rep.ring_tail - rep.ring_head)):
        place = (rep.ring_tail - 1 - k) & mask
        b = S.ring[r, place]
        if S.blocks[b].state == -place:
            write -= 1
            S.ring[r, write & mask] = b
            S.blocks[b].state = -(write & mask)
    rep.ring_head = write


@hot
def release(S: State, rep: Replica, slot: int, held: int) -> None:
    """Let go of the `held` blocks of a slot, from the tail to the head of the sequence.

    Blocks without a hash, which are the last ones, go to the front of the free queue, the others to its back; in older
    engines all go to the back.
    """
    rep.released += held
    if not S.settings.caching:
        rep.free += held
        return
    x = S.slots[slot].execution
    part = hold_of(S, x)
    hashed = held
    while not S.settings.blanks_to_back and hashed > 0 and S.blocks[S.table[slot, hashed - 1]].key == NONE:
        hashed -= 1
    for i in range(hashed, held):
        b = S.table[slot, i]
        if S.executions[x].orphan:
            unstrand(S, b)
        S.blocks[b].state = BLANK
        S.blank[rep.index, rep.blank_count] = b
        rep.blank_count += 1
        rep.free += 1
    if rep.ring_tail - rep.ring_head + hashed > S.settings.ring_mask:
        compact_ring(S, rep.index)
    for i in range(hashed):
        b = S.table[slot, hashed - 1 - i]
        state = S.blocks[b].state - part
        if state == 0:
            if S.executions[x].orphan:
                unstrand(S, b)
            place = rep.ring_tail & S.settings.ring_mask
            rep.ring_tail += 1
            S.ring[rep.index, place] = b
            S.blocks[b].state = -place
            rep.free += 1
        else:
            if state < ATTENDED and not S.executions[x].orphan:
                strand(S, b, x)
            S.blocks[b].state = state


@hot
def linger(S: State, rep: Replica, slot: int, held: int) -> None:
    """The `held` blocks of a slot stay taken when its request has left it."""
    x = S.slots[slot].execution
    S.executions[x].lingering = held
    S.executions[x].lingering_from = now_ns(S)
    rep.lingering += held
    if S.settings.caching:
        for j in range(held):
            S.lingering[(S.progress.linger_tail + j) & (len(S.lingering) - 1)] = S.table[slot, j]
        S.progress.linger_tail += held


@hot
def charge_lingering(S: State, x: int) -> None:
    """Charge execution `x` the time that its blocks have lingered."""
    ledger = S.ledgers[S.executions[x].ledger]
    span = now_ns(S) - S.executions[x].lingering_from
    ledger.kv_block += S.executions[x].lingering * span
    if S.executions[x].orphan:
        ledger.stranded_kv += span
        if not S.settings.caching:
            ledger.stranded_kv_block += S.executions[x].lingering * span


@cold
def release_lingering(S: State, r: int, x: int) -> None:
    """The blocks that execution `x` kept are let go: those of the execution that was aborted first."""
    rep = S.replicas[r]
    held = S.executions[x].lingering
    charge_lingering(S, x)
    S.executions[x].lingering = 0
    rep.lingering -= held
    last = len(S.slots) - 1
    if S.settings.caching:
        for j in range(held):
            S.table[last, j] = S.lingering[(S.progress.linger_head + j) & (len(S.lingering) - 1)]
        S.progress.linger_head += held
    S.slots[last].execution = x
    release(S, rep, last, held)
    S.slots[last].execution = NONE


@cold
def leave_unattended(S: State, slot: int, held: int) -> None:
    """The last client of the slot's execution is gone: its blocks are stranded, but for those that others attend."""
    x = S.slots[slot].execution
    for j in range(held):
        b = S.table[slot, j]
        S.blocks[b].state -= ATTENDED
        if S.blocks[b].state < ATTENDED:
            strand(S, b, x)


@cold
def attend_again(S: State, slot: int, held: int) -> None:
    """A client waits for the slot's execution again."""
    for j in range(held):
        b = S.table[slot, j]
        if S.blocks[b].state < ATTENDED:
            unstrand(S, b)
        S.blocks[b].state += ATTENDED


@hot
def credit_salvage(S: State, slot: int) -> None:
    """A delivered execution reused prompt blocks that others had filled: count each once, for its producer."""
    x = S.slots[slot].execution
    for j in range(S.slots[slot].hits):
        b = S.table[slot, j]
        producer = S.stories[b].producer
        if producer < 0 or producer == x:
            continue
        if (j + 1) * S.settings.block_size <= S.executions[producer].prompt:
            S.ledgers[S.executions[producer].ledger].salvaged_tokens += S.settings.block_size
        S.stories[b].producer = NONE
