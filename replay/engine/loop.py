"""The event loop over clients, gateway and replicas: takes the earliest event, and what it causes without delay."""

from __future__ import annotations

from typing import Any

from replay.engine.batch import book, outputs_of
from replay.engine.blocks import ATTENDED, charge_lingering, charge_private, unstrand
from replay.engine.cancels import abort_arrives, abort_now, cancel_is_seen, kv_is_released, read_due, read_inbox
from replay.engine.clients import (
    call_arrives,
    deadline_passes,
    deliver,
    hedge_is_sent,
    read_enough,
    refused,
    response_arrives,
    retry_is_sent,
    times_out,
    user_leaves,
)
from replay.engine.coasting import coast
from replay.engine.events import (
    ABORT_ARRIVES,
    ANSWER,
    ATTEMPT_AT_GATEWAY,
    CALL_ARRIVES,
    CANCEL_IS_SEEN,
    DEADLINE_PASSES,
    DELIVER,
    DISCONNECT_AT_GATEWAY,
    EXECUTION_ARRIVES,
    HEDGE_IS_SENT,
    KV_IS_RELEASED,
    LETS_GO,
    ORPHAN_EXPIRES,
    PRIORITY_SHIFT,
    READ_ENOUGH,
    REFUSED,
    RETRY_IS_SENT,
    SCHEDULE,
    STEP_ENDS,
    TIMES_OUT,
    TOKENS_ARE_READ,
    USER_LEAVES,
    drop_top,
    post,
    post_at,
)
from replay.engine.flights import head_end, unread_tokens
from replay.engine.gateway import attempt_arrives, disconnect_arrives, execution_ended, orphan_expires
from replay.engine.held import charge_held, give_up_all_held
from replay.engine.kernel import cold, entry, hot
from replay.engine.ledger import enter_charges, settle, step_overhead_s, whole_busy_ns
from replay.engine.lines import leave_line
from replay.engine.lobby import is_full, lets_go, room_was_made
from replay.engine.queue import enqueue
from replay.engine.readers import look_at_started, tokens_are_read
from replay.engine.scheduler import end_step, finish, schedule
from replay.engine.slim import keep, slim
from replay.engine.state import (
    ABORTED,
    BLOCKED_BY_BLOCKS,
    DECODING,
    DONE,
    EVENTS_AT_ONCE,
    FINISHED,
    INFINITY,
    NONE,
    NOT_BLOCKED,
    OUT_OF_ROOM,
    QUEUE_FULL,
    SLICE_ENDED,
    STUCK,
    Replica,
    State,
)
from replay.engine.tracing import room_to_trace
from replay.engine.wakes import others_wake, wake

FROM_REPLICA, FROM_TRACE, FROM_LINE, FROM_HEAP = 0, 1, 2, 3
"""Where the next event comes from."""
EMPTY_STEPS_MAX = 1_000
"""Consecutive steps without a row after which a replica is taken to be stuck."""


@hot
def next_outside(S: State) -> float:
    """When the next thing happens that does not come from a replica."""
    time = min(S.settings.until, S.progress.next_sample)
    if S.progress.next_call < S.settings.calls:
        time = min(time, S.calls[S.progress.next_call].arrival)
    if S.progress.heap > 0:
        time = min(time, S.heap[0].time)
    return min(time, S.fronts[S.progress.first_line].time)


@hot
def execution_arrives(S: State, x: int) -> None:
    """A request enters the queue of its replica, unless that is full."""
    rep = S.replicas[S.executions[x].replica]
    S.executions[x].queued = S.progress.now
    if not S.settings.holds and is_full(S, x, rep.waiting, rep.waiting_tokens):
        turn_away(S, x)
        return
    S.executions[x].arrived_in_round = rep.rounds if rep.in_flight > 0 else NONE
    enqueue(S, rep, x, False)
    if S.settings.by_priority and rep.blocked == BLOCKED_BY_BLOCKS:
        rep.blocked = NOT_BLOCKED
    if rep.in_flight == 0:
        wake(S, rep, S.progress.now, SCHEDULE)


@cold
def turn_away(S: State, x: int) -> None:
    """A replica refuses a request; its clients will hear of it."""
    S.executions[x].status = ABORTED
    S.executions[x].end = S.progress.now
    S.executions[x].arrived_in_round = NONE
    S.executions[x].abort_sent = 1
    S.executions[x].refused = QUEUE_FULL
    execution_ended(S, x)
    post(S, S.settings.to_engine + S.settings.to_gateway, REFUSED, x)


@hot
def step_ends(S: State, rep: Replica) -> None:
    """The replica's step is over: aborts first, then its outputs."""
    unstarted = rep.unstarted
    if not S.settings.late_aborts:
        read_inbox(S, rep, True)
    read_due(S, rep)
    end_step(S, rep)
    for k in range(rep.finished):
        x = finish(S, rep, S.finished[k])
        execution_ended(S, x)
        post(S, S.settings.to_engine + S.settings.to_gateway, DELIVER, x)
    rep.finished = 0
    while rep.doomed != NONE:
        x = rep.doomed
        rep.doomed = S.executions[x].next
        abort_now(S, rep.index, x)
        S.executions[x].doomed = 0
    while rep.late != NONE:
        x = rep.late
        rep.late = S.executions[x].next
        execution_ended(S, x)
        if S.executions[x].status == FINISHED:
            post(S, S.settings.to_engine + S.settings.to_gateway, DELIVER, x)
    look_at_started(S, rep)
    if rep.unstarted < unstarted:
        room_was_made(S)
    rest(S, rep)


@hot
def rest(S: State, rep: Replica) -> None:
    """Between two steps: schedule the next one, after all else that happens now, if there is anything to run."""
    if rep.running > 0 or rep.waiting > 0 or rep.inbox_first != NONE:
        wake(S, rep, S.progress.now, SCHEDULE)
    elif rep.in_flight > 0:
        wake(S, rep, head_end(S, rep), STEP_ENDS)
    else:
        go_idle(S, rep)


@hot
def go_idle(S: State, rep: Replica) -> None:
    """Nothing to run: the batch is empty, and no slot of it is held."""
    if rep.held > 0:
        give_up_all_held(S, rep)
    wake(S, rep, INFINITY, SCHEDULE)


@hot
def start_step(S: State, rep: Replica) -> bool:
    """Schedule the replica's next step; False when it only goes round in circles."""
    read_inbox(S, rep, False)
    if rep.running == 0 and rep.waiting == 0:
        if rep.in_flight > 0:
            wake(S, rep, head_end(S, rep), STEP_ENDS)
        else:
            go_idle(S, rep)
        return True
    if S.progress.soon_head == S.progress.soon_tail:  # else an abort has let the gateway send another request, now
        horizon = S.progress.outside
        if S.settings.reaches_out:
            horizon = min(horizon, others_wake(S))
        coast(S, rep, horizon)
    duration = schedule(S, rep)
    while rep.dropped != NONE:
        execution_ended(S, rep.dropped)
        rep.dropped = S.executions[rep.dropped].next
    if duration >= 0.0:
        S.progress.steps += 1
        rep.empty_steps = 0
        if rep.in_flight < S.settings.depth:
            wake(S, rep, S.progress.now, SCHEDULE)
        else:
            wake(S, rep, head_end(S, rep), STEP_ENDS)
        return True
    if rep.in_flight > 0:
        wake(S, rep, head_end(S, rep), STEP_ENDS)
        return True
    if rep.lingering > 0:
        wake(S, rep, INFINITY, SCHEDULE)
        return True
    rep.empty_steps += 1
    wake(S, rep, S.progress.now, SCHEDULE)
    return rep.empty_steps < EMPTY_STEPS_MAX


@hot
def has_room(S: State) -> bool:
    """Whether every array can take what one event of a replica may add to it."""
    p = S.progress
    return (
        p.heap + EVENTS_AT_ONCE * S.settings.max_num_seqs + 16 < len(S.heap)
        and p.linger_tail - p.linger_head + S.settings.linger_most < len(S.lingering)
        and (not S.settings.trace or room_to_trace(S))
    )


@hot
def has_room_outside(S: State) -> bool:
    """Whether every array can take what an event that comes from no replica may add beside that."""
    p = S.progress
    return (
        p.attempts + 1 < len(S.attempts)
        and p.executions + 1 < len(S.executions)
        and p.samples + S.settings.replicas < len(S.samples)
    )


@cold
def take_sample(S: State) -> None:
    """Write down what a scraper would see now, and set the time of the next look."""
    for r in range(S.settings.replicas):
        rep = S.replicas[r]
        sample = S.samples[S.progress.samples]
        S.progress.samples += 1
        sample.time = S.progress.next_sample
        sample.replica = r
        sample.running = rep.running
        sample.waiting = rep.waiting
        sample.used_blocks = rep.num_blocks - 1 - rep.free
        sample.busy_ns = whole_busy_ns(rep)
        sample.computed_prompt = rep.computed_prompt
        sample.computed_output = rep.computed_output
        sample.counter_prompt = rep.counter_prompt
        sample.preemptions = rep.preemptions
    S.progress.sampled += 1
    S.progress.next_sample = S.progress.sampled * S.settings.sample_interval


@hot
def handle(S: State, kind: int, argument: int) -> bool:
    """Let one event happen; False when a replica is stuck."""
    if kind == STEP_ENDS:
        step_ends(S, S.replicas[argument])
    elif kind == SCHEDULE:
        return start_step(S, S.replicas[argument])
    elif kind == CALL_ARRIVES:
        call_arrives(S, argument)
    elif kind == ATTEMPT_AT_GATEWAY:
        attempt_arrives(S, argument)
    elif kind == EXECUTION_ARRIVES:
        execution_arrives(S, argument)
    elif kind == DELIVER:
        deliver(S, argument)
    elif kind == TIMES_OUT:
        times_out(S, argument)
    elif kind == DISCONNECT_AT_GATEWAY:
        disconnect_arrives(S, argument)
    elif kind == ABORT_ARRIVES:
        abort_arrives(S, argument)
    elif kind == RETRY_IS_SENT:
        retry_is_sent(S, argument)
    elif kind == USER_LEAVES:
        user_leaves(S, argument)
    elif kind == ORPHAN_EXPIRES:
        orphan_expires(S, argument)
    elif kind == ANSWER:
        response_arrives(S, argument)
    elif kind == CANCEL_IS_SEEN:
        cancel_is_seen(S, argument)
    elif kind == KV_IS_RELEASED:
        kv_is_released(S, argument)
    else:
        handle_rare(S, kind, argument)
    return True


@hot
def handle_rare(S: State, kind: int, argument: int) -> None:
    """Let an event happen that only some policies and users know."""
    if kind == LETS_GO:
        lets_go(S)
    elif kind == REFUSED:
        refused(S, argument)
    elif kind == HEDGE_IS_SENT:
        hedge_is_sent(S, argument)
    elif kind == DEADLINE_PASSES:
        deadline_passes(S, argument)
    elif kind == TOKENS_ARE_READ:
        tokens_are_read(S, argument)
    elif kind == READ_ENOUGH:
        read_enough(S, argument)


@hot
def earliest(S: State) -> tuple[float, int, int, int]:
    """(time, kind, argument, source) of the next event, by time and then by priority."""
    r = S.wakes[0]
    time = S.replicas[r].wake_at
    kind = S.replicas[r].wake_kind
    priority = kind
    argument = r
    source = FROM_REPLICA
    c = S.progress.next_call
    if c < S.settings.calls:
        arrival = S.calls[c].arrival
        if arrival < time or (arrival == time and priority > CALL_ARRIVES):
            time, kind, priority, argument, source = arrival, CALL_ARRIVES, CALL_ARRIVES, c, FROM_TRACE
    order = priority << PRIORITY_SHIFT
    front = S.fronts[S.progress.first_line]
    if front.time < time or (front.time == time and front.order < order):
        event = S.lines[S.progress.first_line, front.head & S.settings.line_mask]
        time, order, kind, argument, source = front.time, front.order, event.kind, event.argument, FROM_LINE
    if S.progress.heap > 0:
        top = S.heap[0].time
        if top < time or (top == time and S.heap[0].order < order):
            time, kind, argument, source = top, S.heap[0].kind, S.heap[0].argument, FROM_HEAP
    return time, kind, argument, source


@hot
def call_is_taken(S: State) -> None:
    """On to the next call of the trace that waits for no other."""
    S.progress.next_call += 1
    while S.progress.next_call < S.settings.calls and S.calls[S.progress.next_call].waits:
        S.progress.next_call += 1


@hot
def remove(S: State, source: int) -> None:
    """The earliest event is taken from where it came from."""
    if source == FROM_LINE:
        leave_line(S, S.progress.first_line)
    elif source == FROM_HEAP:
        drop_top(S)
    elif source == FROM_TRACE:
        call_is_taken(S)


@hot
def let_happen(S: State, kind: int, argument: int) -> bool:
    """Let an event happen, and then whatever it causes without delay; False when a replica is stuck."""
    while True:
        if not handle(S, kind, argument):
            return False
        if S.progress.soon_head == S.progress.soon_tail:
            return True
        place = S.progress.soon_head & (len(S.soon) - 1)
        S.progress.soon_head += 1
        kind = S.soon[place].kind
        argument = S.soon[place].argument


@cold
def run_slice(S: State, events_max: int) -> int:
    """Run until the end, or for `events_max` events, or until an array is full; says which (state.DONE, ...)."""
    S.progress.outside = next_outside(S)
    for _ in range(events_max):
        if not has_room(S):
            return OUT_OF_ROOM
        argument = int(S.wakes[0])
        kind = S.replicas[argument].wake_kind
        time = S.replicas[argument].wake_at
        if time >= S.progress.outside:
            if not has_room_outside(S):
                return OUT_OF_ROOM
            time, kind, argument, source = earliest(S)
            if time == INFINITY or time > S.settings.until:
                return DONE
            if S.progress.next_sample <= time:
                S.progress.now = S.progress.next_sample
                take_sample(S)
                S.progress.outside = next_outside(S)
                continue
            remove(S, source)
            S.progress.outside = next_outside(S)
        S.progress.now = time
        if not let_happen(S, kind, argument):
            return STUCK
    return SLICE_ENDED


@cold
def settle_all(S: State) -> None:
    """Settle what still runs, as of now."""
    for slot in range(len(S.slots)):
        x = S.slots[slot].execution
        if x == NONE:
            continue
        rep = S.replicas[S.executions[x].replica]
        S.executions[x].outputs = outputs_of(S, rep, slot) - unread_tokens(S, rep, slot)
        computed = S.slots[slot].offset
        if S.slots[slot].kind == DECODING:
            computed += rep.clock
        settle(S, rep, slot)
        book(S, slot, computed)
        if S.executions[x].orphan:
            charge_private(S, slot)
        enter_charges(S, slot)
    for b in range(len(S.blocks)):
        if 0 < S.blocks[b].state < ATTENDED:
            unstrand(S, b)
    if S.settings.kv_delay > 0.0:
        for x in range(S.progress.executions):
            if S.execution_extras[x].lingering > 0:
                charge_lingering(S, x)
    for r in range(S.settings.replicas):
        x = S.replicas[r].held_head
        while x != NONE:
            charge_held(S, S.replicas[r], x)
            x = S.executions[x].next


@cold
def seconds_alone(S: State, r: int, seconds: Any) -> None:
    """For each call, the seconds that its steps would take on replica `r`, were it idle, without a cache."""
    rep = S.replicas[r]
    for c in range(len(S.calls)):
        prompt = S.calls[c].prompt
        computed = 0
        total = 0.0
        while computed < prompt:
            n = min(prompt - computed, rep.max_tokens)
            total += step_overhead_s(S, rep, 1, n, 0)
            total += rep.attention_s * n * (computed + 0.5 * n) + rep.chunk_context_s * computed
            computed += n
        decodes = S.calls[c].output - 1
        total += decodes * step_overhead_s(S, rep, 1, 1, 1)
        total += rep.kv_token_s * (decodes * prompt + 0.5 * decodes * (decodes + 1))
        seconds[c] = total


@cold
def post_one(S: State, time: float, kind: int, argument: int) -> None:
    """`kind` happens to `argument` at `time`."""
    post_at(S, time, kind, argument)


@entry
def run(state: State, events_max: int) -> int:
    """Run until the end, or for `events_max` events, or until an array is full; says which (state.DONE, ...)."""
    S = slim(state)
    came_back = run_slice(S, events_max)
    keep(state, S)
    return came_back


@entry
def post_event(state: State, time: float, kind: int, argument: int) -> None:
    """Post one event from outside."""
    S = slim(state)
    post_one(S, time, kind, argument)
    keep(state, S)


@entry
def close_books(state: State) -> None:
    """Settle what still runs, as of now."""
    S = slim(state)
    settle_all(S)
    keep(state, S)


@entry
def idle_seconds(state: State, r: int, seconds: Any) -> None:
    """For each call, the seconds that its steps would take on replica `r`, were it idle, without a cache."""
    seconds_alone(slim(state), r, seconds)
