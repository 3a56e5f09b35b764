"""What the naive world is made of: calls, attempts, and draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.naive.replica import Execution

U64 = (1 << 64) - 1


def scatter(place: int) -> int:
    """A large number for a session's place among the sessions."""
    x = place + 1
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & U64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & U64
    x ^= x >> 31
    return ((x - (1 << 64)) if x >> 63 else x) >> 1


def draw(seed: int, purpose: int, call: int, attempt: int) -> float:
    """SplitMix64 over the arguments."""

    def mix(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & U64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & U64
        return x ^ (x >> 31)

    golden = 0x9E3779B97F4A7C15
    x = mix((seed + golden) & U64)
    for value in (purpose, call, attempt):
        x = mix((x + value * golden) & U64)
    return (x >> 11) * 2.0**-53


@dataclass(eq=False)
class Call:
    id: int
    arrival: float
    prompt: int
    output: int
    content: Any
    priority: int
    key: Any
    bucket: Any
    timeout: float
    patience: float
    leaves_tokens: int
    stream: bool | None
    session: int | None
    reserve: int
    keys: list[Any]
    too_long: bool
    status: str = "live"
    end: float | None = None
    first_token: float | None = None
    delivered_by: Execution | None = None
    open_attempt: Any = None
    hedge: Any = None
    attempts: int = 0
    following: Any = None
    waits: bool = False
    think: float = 0.0
    retrying: bool = False
    last_cost: float = 0.0


@dataclass(eq=False)
class Attempt:
    id: int
    call: Call
    number: int
    start: float
    status: str = "open"
    end: float | None = None
    first_token: float | None = None
    execution: Execution | None = None
    joined: bool = False
    leaving: bool = False


@dataclass
class Expectation:
    """A retransmission timer's idea of how long something takes: SRTT and RTTVAR of RFC 6298."""

    mean: float = 0.0
    off: float = 0.0

    def learn(self, seconds: float) -> None:
        if self.mean == 0:
            self.mean, self.off = seconds, seconds / 2
        else:
            self.off = 3 / 4 * self.off + 1 / 4 * abs(self.mean - seconds)
            self.mean = 7 / 8 * self.mean + 1 / 8 * seconds

    def most(self) -> float:
        return self.mean + 4 * self.off
