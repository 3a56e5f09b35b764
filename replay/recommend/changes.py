"""Who can change what, in which steps: the table that a search is made over.

A change is one knob, or several that are one decision. It is made by whoever runs the client, the gateway or the
engine, in a setting (`config`) or by writing or adopting something (`code`). A line here adds one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from replay.policies.catalogue import CODEL_TARGET_S, HELD_BEYOND_STEPS, RESULT_TTL_S, THROTTLE_WINDOW_S, merged
from replay.policies.effect import refuses
from replay.policies.knobs import Policy

Who = Literal["client", "gateway", "engine"]
Effort = Literal["config", "code"]
WHO: tuple[Who, ...] = ("client", "gateway", "engine")


@dataclass(frozen=True, slots=True)
class Present:
    """What a value may depend on: the policy as it is, and what the traffic and the fleet are like."""

    policy: Policy
    timeout_s: float | None
    """How long clients wait for an attempt: the median; None: for ever."""
    replicas: int
    notices: str
    """How engines notice by themselves that a client has left (`EngineSettings.disconnect`)."""


@dataclass(frozen=True, slots=True)
class Step:
    """A value of a change: what it is called, and the knobs that it turns."""

    name: str
    knobs: Mapping[str, Any]


Steps = Callable[[Present], Sequence[Step]]
"""Values that depend on what is there."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that can be changed."""

    name: str
    who: Who
    effort: Effort
    words: str
    """What is changed, as a sentence has it."""
    steps: Steps


def to(key: str, *values: Any) -> Steps:
    """One knob, by its dotted key, to each of some values."""
    return lambda _: [Step(name_of(value), nested(key, value)) for value in values]


def times(key: str, present: Callable[[Present], float | None], *factors: float) -> Steps:
    """One knob to multiples of what it is at present; no step where it is nothing."""

    def steps(now: Present) -> Sequence[Step]:
        value = present(now)
        scaled = [float(f"{value * factor:.3g}") for factor in factors] if value else []
        return [Step(name_of(v), nested(key, v)) for v in scaled]

    return steps


def as_one(**steps: Mapping[str, Any]) -> Steps:
    """Several knobs that are one decision, in named variants; `_` is the plain one."""
    return lambda _: [Step("" if name == "_" else name, knobs) for name, knobs in steps.items()]


def where(applies: Callable[[Present], bool], steps: Steps) -> Steps:
    """Steps that there are under a condition."""
    return lambda now: steps(now) if applies(now) else []


def held(**knobs: Any) -> dict[str, Any]:
    """Knobs of a gateway that holds what its engines have no room for."""
    return {"admission": {"hold_beyond_steps": HELD_BEYOND_STEPS, **knobs}}


def nested(key: str, value: Any) -> dict[str, Any]:
    """A dotted key as nested settings."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def name_of(value: Any) -> str:
    """A value as part of a policy's name."""
    if value is None:
        return "none"
    return f"{value:g}".replace(".", "_") if isinstance(value, int | float) else str(value)


CHANGES: tuple[Change, ...] = (
    Change("max_attempts", "client", "config", "how often a call is tried", to("client.max_attempts", 1, 2, 3)),
    Change("timeout_s", "client", "config", "how long a client waits for an attempt",
           times("client.timeout_s", lambda now: now.timeout_s, 0.5, 1.5, 2.0, 4.0)),
    Change("backoff", "client", "config", "how long a client waits before it tries again",
           to("client.backoff_base_s", 2.0, 8.0, 30.0)),
    Change("orphan_ttl_s", "gateway", "config", "how long a request that nobody waits for runs on",
           to("gateway.orphan_ttl_s", 0.0, 10.0, 60.0, None)),
    Change("routing", "gateway", "config", "which replica a request goes to",
           where(lambda now: now.replicas > 1,
                 to("gateway.routing", "least_outstanding", "power_of_two", "prefix_affinity", "session"))),
    Change("queue", "gateway", "config", "how many requests may wait at an engine",
           to("admission.max_queued_requests", 16, 64, 256)),
    Change("retry_after_s", "gateway", "config", "what a refusal tells its client to wait",
           where(lambda now: refuses(now.policy), to("admission.retry_after_s", 1.0, 10.0, 60.0))),
    Change("deadline_s", "client", "config", "how long a client goes on with a call in all",
           times("client.deadline_s", lambda now: now.timeout_s, 1.0, 2.0)),
    Change("budget", "client", "code", "retries draw from a bucket that calls fill",
           as_one(_={"budget": {}}, finagle={"budget": "finagle"}, grpc={"budget": "grpc"}, envoy={"budget": "envoy"},
                  aws={"budget": "aws"})),
    Change("throttle", "client", "code", "clients hold back their own attempts while too few succeed",
           as_one(_={"throttle": {"window_s": THROTTLE_WINDOW_S}})),
    Change("hedge", "client", "code", "an attempt without a token gets a second one beside it",
           times("client.hedge_after_s", lambda now: now.timeout_s, 0.5)),
    Change("join_retries", "gateway", "code", "a retry joins the request that it repeats, and results are kept",
           as_one(_={"gateway": {"coalesce": True, "result_ttl_s": RESULT_TTL_S}})),
    Change("shed", "gateway", "code", "requests are held, and refused when their answer would be too late",
           as_one(attempt=held(shed="attempt"), call=held(shed="call"))),
    Change("codel_queue", "gateway", "code", "requests are held, and some refused while they wait too long (CoDel)",
           as_one(_=held(codel_target_s=CODEL_TARGET_S))),
    Change("newest_first", "gateway", "code", "requests are held, and the newest goes first while many wait",
           as_one(_=held(order="adaptive_lifo"))),
    Change("retries_last", "gateway", "code", "requests are held, and retries go after fresh calls",
           as_one(_={"gateway": {"retries": "last"}, **held()})),
    Change("notice_cancels", "engine", "code", "when the engine notices that a client has left",
           where(lambda now: now.notices != "push", to("cancellation.detection", "push"))),
)  # fmt: skip
"""Everything that can be changed, what is easiest first."""


def allowed(who: Sequence[Who]) -> list[Change]:
    """The changes that these can make."""
    return [change for change in CHANGES if change.who in who]


def together(steps: Sequence[Step]) -> dict[str, Any]:
    """The knobs of several steps as one."""
    knobs: dict[str, Any] = {}
    for step in steps:
        knobs = merged(knobs, step.knobs)
    return knobs
