"""How long clients and users wait, by the policy or the trace; columns that say nothing of any call are empty."""

from __future__ import annotations

from replay.engine.kernel import hot
from replay.engine.state import INFINITY, State


@hot
def timeout_of(S: State, c: int) -> float:
    """Seconds that the client of call `c` waits for an attempt."""
    return S.timeouts[c] if len(S.timeouts) > 0 else INFINITY


@hot
def patience_of(S: State, c: int) -> float:
    """Seconds from its arrival until the user of call `c` leaves for good."""
    return S.patiences[c] if len(S.patiences) > 0 else INFINITY


@hot
def tokens_until_leaving(S: State, c: int) -> int:
    """Tokens of a stream that the user of call `c` reads before leaving; 0 where all of it is read."""
    return S.leaves_tokens[c] if len(S.leaves_tokens) > 0 else 0
