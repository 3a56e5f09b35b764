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

    The wait before retry n (n = 1, 2, ...) is `floor + (W - floor) * (1 - backoff_jitter * U)`, with U uniform in
    [0, 1) and W = `min(backoff_base_s * backoff_factor ** (n - 1), backoff_cap_s)`, but not below the floor; or what a
    refusal tells the client.
    """

    timeout_s: Seconds | None = None
    """Seconds that the client waits for one attempt; null: what the trace says of each call, else for ever."""
    timeout_kind: Literal["total", "first_token", "idle"] = "total"
    """total: for the whole response; first_token: for the first token; idle: while nothing comes, from the send on.

    A response that is not streamed comes at once, so that all three are the same. A stream is idle until its first
    token, and from a preemption until its next one.
    """
    deadline_s: Seconds | None = None
    """Seconds from the call's arrival after which it is given up, whatever it is doing; null: never."""
    max_attempts: Count = 4
    """Attempts of a call, the first one and hedges included."""
    retries_rejections: bool = True
    """Whether an attempt that was refused (429, 503) is tried again, as one that timed out is."""
    heeds_retry_after: bool = True
    """Whether a client that is refused waits as long as it is told (`admission.retry_after_s`), not as it would."""
    retry_after_most_s: Seconds | None = None
    """A client that heeds and is told to wait longer does not try again; null: it waits as told."""
    streams_retried: Literal["always", "before_first_token", "never"] = "always"
    """Which streams are tried again when they time out.

    An SDK does not retry a stream whose response headers it has: with vLLM, which sends them before the request is
    queued, that is never; with SGLang, which sends them with the first chunk, before the first token.
    """
    hedge_after_s: Seconds | None = None
    """An attempt without a token for so long gets a second one beside it; the first answer wins. null: never."""
    backoff_base_s: Seconds = 0.5
    backoff_factor: Annotated[float, Meta(ge=1.0)] = 2.0
    backoff_grows: Literal["by_factor", "by_sum"] = "by_factor"
    """by_sum: W is the sum of the terms up to n, as Envoy's `(2 ** n - 1) * base`."""
    backoff_cap_s: Seconds = 60.0
    backoff_floor_s: Seconds = 0.0
    backoff_jitter: Share = 0.25


class RetryBudget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What limits retries (and hedges): a bucket of tokens, and how many retries there may be at once.

    `budget: finagle` and others of `replay.policies.clients.BUDGETS` are such records, filled in from their sources.
    """

    scope: Literal["global", "tenant", "client"] = "global"
    """Who shares a bucket."""
    deposit_per_call: Tokens = 0.2
    """What a call brings when it arrives."""
    deposit_per_success: Tokens = 0.0
    """What an attempt that ends well brings."""
    cost_per_retry: Tokens = 1.0
    """What a retry takes before it waits; with less in the bucket there is none."""
    cost_per_timeout_retry: Tokens | None = None
    """The same for a retry after a timeout; null: as any."""
    cost_per_failure: Tokens = 0.0
    """What an attempt takes that fails; the bucket does not go below 0."""
    refunds: bool = False
    """Whether a success brings back what its call's last retry cost, instead of `deposit_per_success`."""
    retry_above: Tokens | None = None
    """There are retries only while the bucket holds more than this; null: while it holds what they cost."""
    initial: Tokens = 10.0
    cap: Tokens = 10.0
    ttl_s: Annotated[float, Meta(gt=0.0)] | None = None
    """Deposits and costs are forgotten after so long; `initial` stands, and there is no cap. null: they stand."""
    share_of_active: Annotated[float, Meta(ge=0.0)] | None = None
    """At most this share of the attempts under way may be retries; null: any."""
    concurrent_retries_min: Annotated[int, Meta(ge=0)] = 0
    """With `share_of_active`: so many retries at once are allowed in any case."""


class Throttle(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clients refuse their own attempts when too few succeed: adaptive throttling.

    With probability `max(0, (requests - multiplier * accepts) / (requests + 1))` over the last `window_s` seconds
    (Beyer et al., Site Reliability Engineering, 2016, chapter 21). A request counts when it ends, one refused here at
    once; one that ends well is an accept.
    """

    scope: Literal["global", "tenant", "client"] | None = None
    """Who counts together; null: those who share a retry budget, else all. With a budget it can be no other."""
    multiplier: Annotated[float, Meta(gt=0.0)] = 2.0
    window_s: Annotated[float, Meta(gt=0.0)] = 120.0


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
    coalesce_by: Literal["key_or_content", "key", "content", "call"] = "key_or_content"
    """What makes calls equal: an idempotency key, else (tenant, model, content); one of them alone; or nothing: only
    the attempts of one call join each other."""
    result_ttl_s: Seconds = 0.0
    """With `coalesce`: how long a finished result answers equal calls at once."""
    retries: Literal["alike", "last", "first"] = "alike"
    """Whether retries stand behind fresh calls, or before them: in the gateway's queue, and in an engine's that
    schedules by priority."""


class Admission(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which requests may wait, where, and in which order.

    A gateway that holds requests keeps the engines' queues short and has one of its own, out of which it can refuse
    and reorder; the rest of these knobs is about that one, but for the caps, which are about the engines' without it.
    """

    hold_beyond_steps: Annotated[float, Meta(ge=0.0)] | None = None
    """The gateway holds a request while every replica has prompts of so many full steps that have not begun to answer;
    null: it holds none. One prompt is sent in any case."""
    max_queued_requests: Annotated[int, Meta(ge=0)] | None = None
    """A request that finds so many waiting is refused: at the gateway if it holds requests, else at its replica."""
    max_queued_tokens: Annotated[int, Meta(ge=0)] | None = None
    """The same in prompt tokens, its own included."""
    order: Literal["fifo", "lifo", "adaptive_lifo"] = "fifo"
    """adaptive_lifo: the newest first while more than `lifo_above` wait (Maurer, Fail at Scale, ACM Queue, 2015)."""
    lifo_above: Annotated[int, Meta(ge=0)] = 8
    shed: Literal["never", "attempt", "call"] = "never"
    """A request whose turn comes is refused if no client of it would get the answer in time.

    attempt: before the attempt times out; call: before the last attempt that the client may make would. It is given the
    time of nearly all that finished of late: their running mean and four mean deviations (as the timer of RFC 6298).
    """
    codel_target_s: Seconds | None = None
    """CoDel (RFC 8289): once requests have waited longer than this for `codel_interval_s`, some are refused when their
    turn comes, ever faster until the wait is shorter. null: off."""
    codel_interval_s: Annotated[float, Meta(gt=0.0)] = 1.0
    retry_after_s: Seconds | None = None
    """What a refusal tells its client to wait (the header Retry-After of a 429 or 503); null: it tells nothing."""


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
    throttle: Throttle | None = None
    network: Network = Network()
    gateway: Gateway = Gateway()
    admission: Admission = Admission()
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
