"""Who is charged for a step, in O(1) a step however many requests decode in it.

A step's duration (see `StepTime` in replay/profiles/profile.py) is shared among its rows: f(T) by tokens, the overhead
by rows, every other term to the row that causes it. Rows of prefill chunks are charged one by one. Decoding requests
are charged by running totals: what one row has been charged since the start of the run (`row_total`), what a token of
context has (`context_total`), and the same weighted by the replica's clock (`group_total`). A request whose context is
`clock + offset` owes the differences `row + offset * context + group` since it was last settled.

Charges are femtoseconds, those of context 2^-CONTEXT_BITS of one: rates are rounded, and a step has many of them in it.
"""

from __future__ import annotations

import math

from replay.engine.blocks import attend_again, leave_unattended, now_ns
from replay.engine.kernel import cold, hot
from replay.engine.paging import blocks_for
from replay.engine.state import (
    ATTENDED_DECODE,
    ATTENDED_PREFILL,
    CONTEXT_BITS,
    DECODING,
    FS,
    KV_BLOCK,
    MARGINAL,
    NS,
    ORPHAN_DECODE,
    ORPHAN_PREFILL,
    POLL_COST,
    RECOMPUTE,
    RECOMPUTED,
    RUNNING,
    STRANDED_KV,
    STRANDED_KV_BLOCK,
    Replica,
    State,
)


@hot
def step_overhead_s(S: State, rep: Replica, rows: int, tokens: int, decode: int) -> float:
    """The part of a step's duration that does not depend on context."""
    return rep.overhead_s + rep.sequence_s * rows + S.step_seconds[rep.table, tokens] + rep.decode_s * decode


@hot
def blocks_held(S: State, rep: Replica, slot: int) -> int:
    """Blocks of a slot, as of the last step that was completed or has been scheduled."""
    computed = S.slots[slot].offset
    if S.slots[slot].kind == DECODING:
        computed += rep.clock
    return blocks_for(S, computed)


@hot
def mark_decoding(S: State, rep: Replica, slot: int) -> None:
    """From here on the slot owes what the running totals gain."""
    S.slots[slot].row_mark = rep.row_total
    S.slots[slot].context_mark = rep.context_total
    S.slots[slot].group_mark = rep.group_total
    S.slots[slot].marginal_mark = rep.marginal_total
    S.slots[slot].crossed_mark = S.residues[rep.index, S.slots[slot].residue].crossed
    S.slots[slot].poll_mark = rep.clock


@hot
def settle_decoding(S: State, rep: Replica, slot: int) -> None:
    """Charge a decoding slot what it owes."""
    x = S.slots[slot].execution
    account = S.slots[slot]
    context = S.slots[slot].offset * (rep.context_total - S.slots[slot].context_mark)
    context += rep.group_total - S.slots[slot].group_mark
    context >>= CONTEXT_BITS
    charge = rep.row_total - S.slots[slot].row_mark + context
    if S.executions[x].orphan:
        account.orphan_decode += charge
    else:
        account.attended_decode += charge
    account.marginal += rep.marginal_total - S.slots[slot].marginal_mark + context
    account.poll += S.settings.poll_fs * (rep.clock - S.slots[slot].poll_mark)


@hot
def settle_kv(S: State, rep: Replica, slot: int, held: int) -> None:
    """Charge a slot the block time since it was last settled; `held` blocks are its own now.

    A decoding slot took its newer blocks at the times that its residue class has summed in `crossed`.
    """
    x = S.slots[slot].execution
    account = S.slots[slot]
    now = now_ns(S)
    before = S.slots[slot].blocks_mark
    area = before * (now - S.slots[slot].kv_mark_ns)
    if S.slots[slot].kind == DECODING:
        crossed = S.residues[rep.index, S.slots[slot].residue].crossed
        area += (held - before) * now - (crossed - S.slots[slot].crossed_mark)
    account.kv_block += area
    if S.executions[x].orphan:
        if not S.settings.caching:
            S.charges[STRANDED_KV_BLOCK, x] += area
        account.stranded_kv += now - S.slots[slot].stranded_from_ns
        S.slots[slot].stranded_from_ns = now
    S.slots[slot].kv_mark_ns = now
    S.slots[slot].blocks_mark = held


@hot
def settle(S: State, rep: Replica, slot: int) -> int:
    """Bring a running slot's ledger up to now; returns the blocks that it holds."""
    held = blocks_held(S, rep, slot)
    if S.slots[slot].kind == DECODING:
        settle_decoding(S, rep, slot)
        settle_kv(S, rep, slot, held)
        mark_decoding(S, rep, slot)
    else:
        settle_kv(S, rep, slot, held)
    return held


@hot
def open_slot(S: State, slot: int) -> None:
    """A request enters a slot: its account is empty, and its block time starts now."""
    account = S.slots[slot]
    account.kv_mark_ns = now_ns(S)
    account.blocks_mark = 0
    account.stranded_from_ns = now_ns(S)
    account.attended_prefill = 0
    account.attended_decode = 0
    account.marginal = 0
    account.kv_block = 0
    account.orphan_prefill = 0
    account.orphan_decode = 0
    account.recompute = 0
    account.poll = 0
    account.stranded_kv = 0
    account.recomputed = 0


@hot
def whole_ns(fs: int) -> int:
    """Femtoseconds to the nearest nanosecond."""
    return (fs + 500_000) // 1_000_000


@hot
def enter_charges(S: State, slot: int) -> None:
    """A request leaves its slot: what it was charged there is entered under its execution."""
    x = S.slots[slot].execution
    account = S.slots[slot]
    S.charges[ATTENDED_PREFILL, x] += whole_ns(account.attended_prefill)
    S.charges[ATTENDED_DECODE, x] += whole_ns(account.attended_decode)
    S.charges[MARGINAL, x] += whole_ns(account.marginal)
    S.charges[KV_BLOCK, x] += account.kv_block
    if account.stranded_kv > 0 or account.orphan_prefill > 0 or account.orphan_decode > 0:
        S.charges[ORPHAN_PREFILL, x] += whole_ns(account.orphan_prefill)
        S.charges[ORPHAN_DECODE, x] += whole_ns(account.orphan_decode)
        S.charges[STRANDED_KV, x] += account.stranded_kv
    if account.recomputed > 0:
        S.charges[RECOMPUTED, x] += account.recomputed
        S.charges[RECOMPUTE, x] += whole_ns(account.recompute)
    if account.poll > 0:
        S.charges[POLL_COST, x] += whole_ns(account.poll)


@hot
def become_orphan(S: State, x: int) -> None:
    """Nobody waits for execution `x` any more."""
    if S.executions[x].status == RUNNING:
        orphan_running(S, x)
    S.executions[x].orphan = 1


@hot
def remember(S: State, rep: Replica, slot: int, orphan: bool) -> None:
    """What the slot's rows in flight are charged as, now that its clients come or go."""
    for step in range(rep.steps - rep.in_flight + 1, rep.steps + 1):
        row = S.chunk_costs[slot, step & 1]
        if row.turned_in != step:
            row.turned_in = step
            row.orphan_before = orphan


@cold
def orphan_running(S: State, x: int) -> None:
    """Settle what the running execution `x` has cost while it was attended."""
    slot = int(S.executions[x].slot)
    remember(S, S.replicas[S.executions[x].replica], slot, False)
    settle(S, S.replicas[S.executions[x].replica], slot)
    S.slots[slot].stranded_from_ns = now_ns(S)
    if S.settings.caching:
        leave_unattended(S, slot)


@hot
def become_attended(S: State, x: int) -> None:
    """A client waits for execution `x` again."""
    if S.executions[x].status == RUNNING:
        attend_running(S, x)
    S.executions[x].orphan = 0


@cold
def attend_running(S: State, x: int) -> None:
    """Settle what the running execution `x` has cost while it was an orphan."""
    slot = int(S.executions[x].slot)
    remember(S, S.replicas[S.executions[x].replica], slot, True)
    settle(S, S.replicas[S.executions[x].replica], slot)
    if S.settings.caching:
        attend_again(S, slot)


@hot
def charge_chunk(
    S: State, rep: Replica, slot: int, token_fs: int, share_fs: int, kv_fs: float, tokens: int, rows: int
) -> None:
    """Charge the chunk that `slot` computes in this step. `tokens` and `rows`: of the whole step.

    What a preemption made it compute again is charged apart.
    """
    x = S.slots[slot].execution
    n = S.slots[slot].tokens
    after = S.slots[slot].offset
    before = after - n
    decodes = n == 1 and before >= S.executions[x].prompt
    own = rep.sequence_s * FS
    marginal = S.step_seconds[rep.table, tokens] - S.step_seconds[rep.table, tokens - n]
    if rows == 1:
        marginal += rep.overhead_s
    if decodes:
        own += rep.decode_s * FS + kv_fs * after
    else:
        own += (rep.attention_s * n * (before + 0.5 * n) + rep.chunk_context_s * before) * FS
    account = S.slots[slot]
    cost = S.chunk_costs[slot, rep.steps & 1]
    cost.step = rep.steps
    cost.marginal = int(marginal * FS + own + 0.5)
    cost.decodes = decodes
    account.marginal += cost.marginal
    account.poll += S.settings.poll_fs
    charge = n * token_fs + share_fs + math.floor(own + 0.5)
    again = min(after, S.slots[slot].peak) - before
    part = 0
    if again > 0:
        account.recomputed += again
        part = charge if again == n else int(charge * (again / n))
        account.recompute += part
        charge -= part
    cost.charge = charge
    cost.again = part
    if S.executions[x].orphan:
        if decodes:
            account.orphan_decode += charge
        else:
            account.orphan_prefill += charge
    else:
        if decodes:
            account.attended_decode += charge
        else:
            account.attended_prefill += charge


@hot
def shared_rates(S: State, rep: Replica, rows: int, tokens: int) -> tuple[int, int]:
    """What a step of so many rows and tokens charges each token, and each row, of what they share (fs)."""
    token = S.step_seconds[rep.table, tokens] / tokens * FS
    return math.floor(token + 0.5), math.floor(rep.overhead_s / rows * FS + 0.5)


@hot
def own_fs(rep: Replica) -> int:
    """What a decoding row causes itself, but for its context."""
    return math.floor((rep.decode_s + rep.sequence_s) * FS + 0.5)


@hot
def marginal_fs(S: State, rep: Replica, rows: int, tokens: int) -> int:
    """By how much a step of so many rows and tokens would be shorter without one that decodes, but for its context."""
    marginal = S.step_seconds[rep.table, tokens] - S.step_seconds[rep.table, tokens - 1]
    marginal += rep.decode_s + rep.sequence_s
    if rows == 1:
        marginal += rep.overhead_s
    return math.floor(marginal * FS + 0.5)


@hot
def post_step(
    S: State, rep: Replica, decoding: int, chunks: int, held: int, tokens: int, mixed: bool, duration: float
) -> None:
    """Enter one step in the ledger: `decoding` rows of the group, `chunks` chunk rows, `tokens` in all.

    `held` slots that stay taken for aborted requests are rows of one token beside them. The clock has been advanced;
    slots that do not take part are out of the group by now.
    """
    rows = decoding + chunks + held
    token_fs, share_fs = shared_rates(S, rep, rows, tokens)
    row_fs = token_fs + share_fs + own_fs(rep)
    kv_fs = rep.kv_token_s * FS
    if mixed:
        kv_fs *= rep.mixed_kv_factor
    if held > 0:
        rep.held_total += row_fs
    if decoding > 0:
        rate = rep.mixed_context_rate if mixed else rep.context_rate
        post_decoding(rep, 1, row_fs, rate, marginal_fs(S, rep, rows, tokens))
    for k in range(chunks):
        charge_chunk(S, rep, S.chunks[k], token_fs, share_fs, kv_fs, tokens, rows)
    rep.busy_s += duration


@hot
def post_decoding(rep: Replica, steps: int, row_fs: int, context: int, marginal: int) -> None:
    """Advance the running totals of the decoding group by `steps` equal steps, the last of which ends at its clock.

    A step charges a row `row_fs`, and each token of its context `context` (2^-CONTEXT_BITS fs); `marginal`: see there.
    """
    rep.step_row = row_fs
    rep.step_context = context
    rep.step_marginal = marginal
    rep.row_total += steps * row_fs
    rep.context_total += steps * context
    rep.group_total += context * (steps * rep.clock - steps * (steps - 1) // 2)
    rep.marginal_total += steps * marginal


@hot
def whole_busy_ns(rep: Replica) -> int:
    """GPU time so far."""
    return int(rep.busy_s * NS + 0.5)
