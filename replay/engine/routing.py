"""Which replica an execution runs on."""

from __future__ import annotations

from replay.engine.chains import hashes_of
from replay.engine.events import draw, mix
from replay.engine.kernel import cold, hot
from replay.engine.state import (
    LEAST_OUTSTANDING,
    NONE,
    POWER_OF_TWO,
    PREFIX_AFFINITY,
    RANDOM,
    SESSION,
    State,
)

DRAW_REPLICA, DRAW_OTHER_REPLICA = 2, 3
"""Purposes of the draws of a replica, and of a second one."""


@hot
def choose_replica(S: State, c: int, x: int) -> int:
    """The replica for execution `x` of call `c`."""
    return 0 if S.settings.replicas == 1 else choose_among_all(S, c, x)


@cold
def choose_among_all(S: State, c: int, x: int) -> int:
    """The replica for execution `x` of call `c`, where there are several."""
    n = S.settings.replicas
    if S.settings.routing == LEAST_OUTSTANDING:
        return least_outstanding(S)
    if S.settings.routing == RANDOM:
        return any_replica(S, c, DRAW_REPLICA)
    if S.settings.routing == POWER_OF_TWO:
        return less_loaded_of_two(S, c)
    if S.settings.routing == PREFIX_AFFINITY:
        return where_the_prefix_is(S, c)
    if S.settings.routing == SESSION and S.call_extras[c].session != NONE:
        return int((mix(S.call_extras[c].session + 1) >> 1) % n)
    return x % n


@hot
def least_outstanding(S: State) -> int:
    """The replica with the fewest executions sent and not ended; the first of them."""
    found = 0
    for r in range(1, S.settings.replicas):
        if S.replicas[r].outstanding < S.replicas[found].outstanding:
            found = r
    return found


@hot
def any_replica(S: State, c: int, purpose: int) -> int:
    """A replica by lot, the same for the same attempt of a call under every policy."""
    return int(draw(S.settings.seed, purpose, c, S.calls[c].attempts) * S.settings.replicas)


@hot
def less_loaded_of_two(S: State, c: int) -> int:
    """The one with fewer executions outstanding of two replicas by lot; the first at a tie."""
    a = any_replica(S, c, DRAW_REPLICA)
    b = any_replica(S, c, DRAW_OTHER_REPLICA)
    return b if S.replicas[b].outstanding < S.replicas[a].outstanding else a


@hot
def where_the_prefix_is(S: State, c: int) -> int:
    """The replica that the longest known prefix of the prompt was last sent to, unless too little of it is known.

    And unless the fleet is out of balance: then, the least loaded one.
    """
    first = hashes_of(S, c)
    count = S.hash_ends[c] - first
    home = S.sent_content[S.contents[c]]
    known = S.calls[c].prompt if home != NONE else 0
    if home == NONE:
        matched = 0
        while matched < count and S.sent_prefix[S.hashes[first + matched]] != NONE:
            matched += 1
        if matched > 0:
            home = S.sent_prefix[S.hashes[first + matched - 1]]
            known = matched * S.settings.block_size
    if home == NONE or known < S.settings.affinity_share * S.calls[c].prompt or out_of_balance(S):
        home = least_outstanding(S)
    S.sent_content[S.contents[c]] = home
    for j in range(count):
        S.sent_prefix[S.hashes[first + j]] = home
    return home


@hot
def out_of_balance(S: State) -> bool:
    """Whether the busiest replica has far more outstanding than the idlest, in number and in proportion."""
    low = S.replicas[0].outstanding
    high = low
    for r in range(1, S.settings.replicas):
        low = min(low, S.replicas[r].outstanding)
        high = max(high, S.replicas[r].outstanding)
    return high - low > S.settings.balance_gap and high > S.settings.balance_ratio * low
