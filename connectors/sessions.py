"""Turns of sessions whose log says how long a user or a tool waited after a response, not when the response came."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(ge=0.0, le=1e9)]


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast responses are taken to come, where the time of a turn hangs on the end of the one before."""

    first_token_s: Seconds = 0.25
    """When a response is taken to begin."""
    token_s: Seconds = 0.01
    """Seconds that each of its tokens is taken to last."""


def paced(pace: Pace) -> str:
    """What is taken for granted of turns that hang on responses, for people who read such a trace."""
    return (
        f"when responses came is not in it: turns that follow one arrive as if it took {pace.first_token_s:g} s and "
        f"{pace.token_s:g} s for each of its tokens (--option first_token_s, --option token_s)"
    )


class Turns:
    """When the turns of sessions arrive: at a time of their own, or so long after the turn before has ended."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.ends: dict[str, float] = {}

    def arrivals(
        self,
        sessions: Sequence[str | None],
        times_s: Sequence[float | None],
        waits_s: Sequence[float | None],
        output_tokens: Sequence[float | None],
    ) -> list[float | None]:
        """Seconds of each row; its time where it has one, None where it has neither time nor a turn before it."""
        return list(map(self.arrival, sessions, times_s, waits_s, output_tokens))

    def arrival(
        self, session: str | None, time_s: float | None, wait_s: float | None, output: float | None
    ) -> float | None:
        """Seconds of one turn, whose response then ends after the pace's time."""
        if time_s is None and session in self.ends and wait_s is not None:
            time_s = self.ends[session] + wait_s
        if time_s is not None and session is not None and math.isfinite(time_s):
            tokens = output if output is not None and 0.0 <= output < math.inf else 0.0
            self.ends[session] = time_s + self.pace.first_token_s + self.pace.token_s * tokens
        return time_s

    def wait(self, session: str | None, wait_s: float | None) -> None:
        """The next turn waits so much longer than for the response."""
        if session in self.ends and wait_s is not None and 0.0 <= wait_s < math.inf:
            self.ends[session] += wait_s
