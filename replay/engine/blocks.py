"""The paged KV pool of a replica, and its prefix cache.

Without caching a pool is a number: `free`. With it, every block that others may hit has a number of its own, and hangs
in `buckets` by what it holds; the others are counted (see `private.py`). Free blocks form one queue (`free_queue.py`).
"""

from __future__ import annotations

from replay.engine.chains import enter, give_number, hashes_of, take_number
from replay.engine.free_queue import make_room, put_back, put_back_private, take_front
from replay.engine.kernel import cold, hot
from replay.engine.paging import full_blocks
from replay.engine.state import KV_BLOCK, NONE, NS, SALVAGED, STRANDED_KV, STRANDED_KV_BLOCK, Replica, State

HOLDER = 1
"""One more holder in a block's state."""
ATTENDED = 1 << 15
"""One more of its holders has a waiting client."""
HOLDERS = ATTENDED - 1


@hot
def now_ns(S: State) -> int:
    """The present instant in nanoseconds."""
    return int(S.progress.now * NS + 0.5)


@hot
def hold_of(S: State, x: int) -> int:
    """What one holding by execution `x` adds to a block's state."""
    return HOLDER if S.executions[x].orphan else HOLDER + ATTENDED


@hot
def publish(S: State, rep: Replica, slot: int, first: int, end: int) -> None:
    """Hash the blocks `first` to `end` of a slot: others may hit them from now on."""
    S.slots[slot].filled = end
    x = S.slots[slot].execution
    c = int(S.executions[x].call)
    hashes = hashes_of(S, c)
    hashed = S.hash_ends[c] - hashes
    content = S.settings.content_base + S.contents[c] * S.settings.stride
    for j in range(first, min(end, S.slots[slot].private_from)):
        key = content + j
        if j < hashed:
            key = S.hashes[hashes + j]
        enter(S, rep, S.table[slot, j], key, x)


@hot
def publish_read(S: State, rep: Replica, slot: int, known: int) -> None:
    """Hash the blocks of a decoding slot that its `known` tokens fill, as far as they have no hash yet."""
    end = full_blocks(S, known)
    if end > S.slots[slot].filled:
        publish(S, rep, slot, int(S.slots[slot].filled), end)


@hot
def strand(S: State, b: int, x: int) -> None:
    """From now on nobody attended holds block `b`: because of `x`."""
    S.stories[b].owner = x
    S.stories[b].stranded_ns = now_ns(S)


@hot
def unstrand(S: State, b: int) -> None:
    """Block `b` is no longer stranded: charge the time to the execution that left it so."""
    S.charges[STRANDED_KV_BLOCK, S.stories[b].owner] += now_ns(S) - S.stories[b].stranded_ns


@hot
def charge_private(S: State, slot: int) -> None:
    """The private blocks of a slot are stranded no longer: charge the time to its execution."""
    count = S.slots[slot].blocks - S.slots[slot].private_from
    if count > 0:
        x = S.slots[slot].execution
        S.charges[STRANDED_KV_BLOCK, x] += count * now_ns(S) - S.slots[slot].private_stranded
        S.slots[slot].private_stranded = 0


@hot
def take(S: State, rep: Replica, slot: int, first: int, end: int) -> None:
    """Blocks `first` to `end` of a slot, from the front of the free queue; the caller has counted them."""
    take_front(S, rep, end - first)
    fill(S, rep, slot, first, end)


@hot
def fill(S: State, rep: Replica, slot: int, first: int, end: int) -> None:
    """Blocks taken from the free queue are `first` to `end` of a slot."""
    x = S.slots[slot].execution
    orphan = S.executions[x].orphan
    S.slots[slot].blocks = end
    if orphan and end > S.slots[slot].private_from:
        S.slots[slot].private_stranded += (end - max(first, S.slots[slot].private_from)) * now_ns(S)
    for j in range(first, min(end, S.slots[slot].private_from)):
        b = give_number(S, rep, hold_of(S, x))
        S.table[slot, j] = b
        if orphan:
            strand(S, b, x)


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
    orphan = S.executions[x].orphan
    part = hold_of(S, x)
    keep = held if S.settings.blanks_to_back else S.slots[slot].filled
    numbered = min(held, S.slots[slot].private_from)
    rep.blank_count += held - keep
    rep.free += held - keep
    for j in range(keep, numbered):
        b = S.table[slot, j]
        if orphan:
            unstrand(S, b)
        take_number(S, rep, b)
    make_room(S, rep, keep)
    if held > numbered:
        if orphan:
            charge_private(S, slot)
        if keep > numbered:
            put_back_private(S, rep, S.contents[S.executions[x].call], keep - numbered)
            keep = numbered
    for i in range(keep):
        b = S.table[slot, keep - 1 - i]
        state = S.blocks[b].state - part
        if state == 0:
            if orphan:
                unstrand(S, b)
            put_back(S, rep, b)
        else:
            if state < ATTENDED and not orphan:
                strand(S, b, x)
            S.blocks[b].state = state


@hot
def linger(S: State, rep: Replica, slot: int, held: int) -> None:
    """The `held` blocks of a slot stay taken when its request has left it."""
    x = S.slots[slot].execution
    S.execution_extras[x].lingering = held
    S.execution_extras[x].lingering_from = now_ns(S)
    rep.lingering += held
    if S.settings.caching:
        for j in range(held):
            S.lingering[(S.progress.linger_tail + j) & (len(S.lingering) - 1)] = S.table[slot, j]
        S.progress.linger_tail += held


@hot
def charge_lingering(S: State, x: int) -> None:
    """Charge execution `x` the time that its blocks have lingered."""
    span = now_ns(S) - S.execution_extras[x].lingering_from
    S.charges[KV_BLOCK, x] += S.execution_extras[x].lingering * span
    if S.executions[x].orphan:
        S.charges[STRANDED_KV, x] += span
        if not S.settings.caching:
            S.charges[STRANDED_KV_BLOCK, x] += S.execution_extras[x].lingering * span


@cold
def release_lingering(S: State, r: int, x: int) -> None:
    """The blocks that execution `x` kept are let go: those of the execution that was aborted first."""
    rep = S.replicas[r]
    held = S.execution_extras[x].lingering
    charge_lingering(S, x)
    S.execution_extras[x].lingering = 0
    rep.lingering -= held
    last = len(S.slots) - 1
    if S.settings.caching:
        for j in range(held):
            S.table[last, j] = S.lingering[(S.progress.linger_head + j) & (len(S.lingering) - 1)]
        S.progress.linger_head += held
        filled = held
        while filled > 0 and S.blocks[S.table[last, filled - 1]].key == NONE:
            filled -= 1
        S.slots[last].filled = filled
    S.slots[last].execution = x
    release(S, rep, last, held)
    S.slots[last].execution = NONE


@cold
def leave_unattended(S: State, slot: int) -> None:
    """The last client of the slot's execution is gone: its blocks are stranded, but for those that others attend."""
    x = S.slots[slot].execution
    blocks, private_from = S.slots[slot].blocks, S.slots[slot].private_from
    for j in range(min(blocks, private_from)):
        b = S.table[slot, j]
        S.blocks[b].state -= ATTENDED
        if S.blocks[b].state < ATTENDED:
            strand(S, b, x)
    if blocks > private_from:
        S.slots[slot].private_stranded = (blocks - private_from) * now_ns(S)


@cold
def attend_again(S: State, slot: int) -> None:
    """A client waits for the slot's execution again."""
    charge_private(S, slot)
    for j in range(min(S.slots[slot].blocks, S.slots[slot].private_from)):
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
            S.charges[SALVAGED, producer] += S.settings.block_size
        S.stories[b].producer = NONE
