"""What a policy is made of: frozen records of numbers and a few names. Nothing here runs."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta, Struct

Seconds = Annotated[float, Meta(ge=0.0)]
Count = Annotated[int, Meta(ge=1)]
Tokens = Annotated[float, Meta(ge=0.0)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class Client(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a client waits and tries again.

    The wait before retry n (n = 1, 2, ...) is `min(backoff_base_s * backoff_factor ** (n - 1), backoff_cap_s)`,
    times `1 - backoff_jitter * U` with U uniform in [0, 1).
    """

    timeout_s: Seconds | None = None
    """Seconds that the client waits for one attempt; null: what the trace says of each call, else for ever."""
    timeout_kind: Literal["total", "first_token", "idle"] = "total"
    """total: for the whole response; first_token: for the first token; idle: between two tokens."""
    max_attempts: Count = 4
    """Attempts of a call, the first one included."""
    backoff_base_s: Seconds = 0.5
    backoff_factor: Annotated[float, Meta(ge=1.0)] = 2.0
    backoff_cap_s: Seconds = 60.0
    backoff_jitter: Share = 0.25


class RetryBudget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token bucket that retries draw from: calls deposit at arrival, a retry withdraws before it waits."""

    scope: Literal["global", "tenant", "client"] = "global"
    """Who shares a bucket."""
    deposit_per_call: Tokens = 0.2
    cost_per_retry: Tokens = 1.0
    initial: Tokens = 10.0
    cap: Tokens = 10.0


class Network(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One-way delays."""

    client_gateway_s: Seconds = 0.0
    gateway_engine_s: Seconds = 0.0
    cancel_s: Seconds = 0.0
    """What a cancel takes from gateway to engine beyond `gateway_engine_s`."""


class Gateway(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands between clients and engines."""

    routing: Literal["round_robin", "random", "least_outstanding", "power_of_two", "prefix_affinity", "session"] = (
        "round_robin"
    )
    """Which replica a request goes to; a retry may go to another one.

    least_outstanding: with the fewest requests sent and not ended; power_of_two: with fewer of them of two by lot;
    session: the same for all calls of a session (round_robin for calls without one); prefix_affinity: where the longest
    known prefix of its prompt was last sent, with the three rules below.
    """
    affinity_min_share: Share = 0.3
    """Below this share of the prompt a known prefix does not decide: the replica with the fewest outstanding does.

    With the two below, the defaults of SGLang's cache-aware router (cache_threshold, balance_abs_threshold,
    balance_rel_threshold).
    """
    balance_gap: Annotated[int, Meta(ge=0)] = 64
    """Nor does it where the busiest replica has so many more outstanding than the idlest, and ..."""
    balance_ratio: Annotated[float, Meta(ge=1.0)] = 1.5
    """... more than so many times as many."""
    orphan_ttl_s: Seconds | None = 0.0
    """How long an execution that nobody waits for may run on before the gateway cancels it.

    0: a disconnect cancels at once; null: nothing is ever cancelled.
    """
    coalesce: bool = False
    """An attempt joins the live execution of an equal call instead of making one."""
    result_ttl_s: Seconds = 0.0
    """With `coalesce`: how long a finished result answers equal calls at once."""


class Cancellation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an engine does with a cancel that reaches it: when it notices, and what it gives back."""

    detection: Literal["push", "poll", "timer", "oracle", "never"] | None = None
    """null: as the engine does by itself (vLLM: push). push: at the end of the running step. poll: at a look that each
    request takes every `poll_every_tokens`. timer: at a look every `timer_s` seconds. oracle: in mid-step, whose rest
    is not computed. never: the request runs to its end.
    """
    timer_s: Seconds = 1.0
    poll_every_tokens: Annotated[int, Meta(ge=1, le=65_536)] = 1
    """Tokens between two looks; before the first token, steps. A waiting request is looked at before it is admitted."""
    poll_lag: Literal["full", "phase"] = "full"
    """full: a whole interval passes after the cancel; phase: what is left until the request's next look."""
    poll_cost_s: Seconds = 0.0
    """Time that a look at one request takes from the step, spread evenly over its interval."""
    kv_release_delay_s: Seconds = 0.0
    """How long an aborted request keeps its KV blocks."""
    repack: bool = True
    """Whether the batch closes up. If not, an aborted request's slot stays a row for the outputs that it still had."""


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every knob that an operator can turn. What the traffic brings is in the trace."""

    name: str
    client: Client = Client()
    budget: RetryBudget | None = None
    network: Network = Network()
    gateway: Gateway = Gateway()
    cancellation: Cancellation = Cancellation()


class Engines(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Equal replicas of a profile that stand beside those of the run's own."""

    profile: str
    """A name of `replay profiles`, or a file."""
    replicas: Count = 1


class Fleet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The engines behind the gateway: replicas of the run's profile, and of others beside them."""

    replicas: Count = 1
    beside: tuple[Engines, ...] = ()

    @property
    def name(self) -> str:
        others = [f"{e.replicas}x-{re.sub(r'[^A-Za-z0-9.]+', '-', e.profile)}" for e in self.beside]
        return "+".join([f"{self.replicas}x", *others])

    @property
    def size(self) -> int:
        """All replicas."""
        return self.replicas + sum(engines.replicas for engines in self.beside)
