"""Users who leave in mid-stream, when they have read so many tokens.

Nothing happens at a decoded token, so that somebody has to look: at the first token that a request puts out, and then
whenever the next reader could have had enough, were every step from now on as short as a step can be. So no token is
missed, and few are looked at.
"""

from __future__ import annotations

from replay.engine.batch import outputs_of
from replay.engine.events import READ_ENOUGH, TOKENS_ARE_READ, post, post_at, post_in_place
from replay.engine.flights import head_end, unread_tokens
from replay.engine.kernel import cold, hot
from replay.engine.limits import tokens_until_leaving
from replay.engine.state import DECODING, DRAINING, INFINITY, NONE, RUNNING, STREAMED, Replica, State

NOT_DUE = -1.0
"""Time of a look that nobody takes."""
AFTER_OTHERS = 1 << 40
"""Place of the first attempt among those whose users have read enough at one instant."""


@hot
def somebody_reads(S: State, x: int) -> None:
    """A user who may leave in mid-stream waits for execution `x` from now on, and has what it has put out."""
    if not S.executions[x].read:
        S.executions[x].read = 1
        S.execution_extras[x].look_at = NOT_DUE
    if S.executions[x].first_output < INFINITY:
        look_by(S, x, S.progress.now)


@hot
def begins_to_answer(S: State, rep: Replica, x: int) -> None:
    """Execution `x` puts out its first token, or the first since it was preempted."""
    S.executions[x].silent = 0
    if S.executions[x].read:
        look_at_step_end(S, rep, x)


@hot
def look_at_step_end(S: State, rep: Replica, x: int) -> None:
    """When the next step of the replica has ended, the outputs of execution `x` are looked at."""
    if not S.executions[x].look_is_due:
        S.executions[x].look_is_due = 1
        S.execution_extras[x].started = rep.started
        rep.started = x


@cold
def look_at_all(S: State, rep: Replica) -> None:
    """The steps in flight have become shorter: looks that reckoned with their ends come too late."""
    slot = rep.run_head
    while slot != NONE:
        x = S.slots[slot].execution
        if S.executions[x].read:
            look_at_step_end(S, rep, x)
        slot = S.slots[slot].run_next


@hot
def look_by(S: State, x: int, time: float) -> None:
    """An event looks at the outputs of execution `x` at `time`, unless one does before; later ones will not."""
    due = S.execution_extras[x].look_at
    if S.progress.now <= due <= time:
        return
    S.execution_extras[x].look_at = time
    post_at(S, time, TOKENS_ARE_READ, x)


@hot
def look_at_started(S: State, rep: Replica) -> None:
    """The replica's step has ended: looks that waited for it are taken."""
    while rep.started != NONE:
        x = rep.started
        rep.started = S.execution_extras[x].started
        S.executions[x].look_is_due = 0
        S.execution_extras[x].look_at = S.progress.now
        post(S, 0.0, TOKENS_ARE_READ, x)


@cold
def tokens_are_read(S: State, x: int) -> None:
    """Look at the outputs of execution `x`: the users who have read enough of them leave, one after the other."""
    if S.execution_extras[x].look_at != S.progress.now:
        return
    S.execution_extras[x].look_at = NOT_DUE
    if S.executions[x].status != RUNNING:
        return
    rep = S.replicas[S.executions[x].replica]
    slot = int(S.executions[x].slot)
    decodes = S.slots[slot].kind == DECODING or S.slots[slot].kind == DRAINING
    if not decodes or S.executions[x].silent or S.executions[x].first_output == INFINITY:
        return
    read = outputs_of(S, rep, slot) - unread_tokens(S, rep, slot)
    wanted = S.executions[x].output
    a = S.executions[x].waiters
    while a != NONE:
        c = int(S.attempts[a].call)
        tokens = tokens_until_leaving(S, c)
        if 0 < tokens < S.executions[x].output and S.calls[c].stream == STREAMED and not S.attempts[a].leaving:
            if tokens <= read:
                S.attempts[a].leaving = 1
                has_read_enough(S, a)
                look_by(S, x, S.progress.now)
                return
            wanted = min(wanted, tokens)
        a = S.attempts[a].next
    if wanted < S.executions[x].output:
        look_again(S, rep, x, wanted - read)


@hot
def has_read_enough(S: State, a: int) -> None:
    """The token after which the user of attempt `a` leaves is on its way."""
    time = S.progress.now + S.settings.to_engine + S.settings.to_gateway
    post_in_place(S, time, READ_ENOUGH, a, AFTER_OTHERS + a)


@hot
def look_again(S: State, rep: Replica, x: int, tokens: int) -> None:
    """Look when execution `x` could have put out so many more tokens; a step that ends now has yet to be read."""
    time = S.progress.now
    if rep.in_flight > 0:
        time = head_end(S, rep) + (tokens - 1) * S.settings.step_least
    if time > S.progress.now:
        look_by(S, x, time)
    else:
        look_at_step_end(S, rep, x)
