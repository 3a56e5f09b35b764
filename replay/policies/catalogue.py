"""The named policies. Each says only what it changes; the rest is the run's base policy: its clients and network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from replay.errors import UnknownName
from replay.policies.clients import expanded
from replay.policies.knobs import Policy


class Entry(msgspec.Struct, frozen=True):
    """A policy of the catalogue: what it does in a sentence, the knobs it turns, and which question it answers."""

    summary: str
    knobs: Mapping[str, Any]
    family: Literal["retries", "cancellation"] = "retries"


RESULT_TTL_S = 120.0
"""How long the coalescing policies keep a finished result."""
POLL_COST_S = 2e-6
"""What a look at one request takes: a flag that another thread sets."""
KV_RELEASE_DELAY_S = 0.05
"""How long lazy release keeps blocks: a few decoding steps."""
HELD_BEYOND_STEPS = 2.0
"""How much work gateways that hold requests leave with an engine: enough for the next step while one is running."""
QUEUED_REQUESTS_MAX = 16
"""Beyond what the engines have: a short queue loses no throughput while it is never empty."""
CODEL_TARGET_S = 0.1
"""A tenth of the interval, as RFC 8289 advises."""
THROTTLE_WINDOW_S = 30.0
"""Shorter than the two minutes of the source: an LLM's overloads are."""


def admission(summary: str, **knobs: Any) -> Entry:
    """As cancel, with a gateway that holds requests, and a rule for those that wait."""
    summary = f"as cancel, and the gateway holds what its engines have no room for: {summary}"
    held = {"hold_beyond_steps": HELD_BEYOND_STEPS, **knobs}
    return Entry(summary, {"gateway": {"orphan_ttl_s": 0.0}, "admission": held})


def cancellation(summary: str, **knobs: Any) -> Entry:
    """A policy of how the engine handles a cancel that the gateway sends at once."""
    return Entry(summary, {"gateway": {"orphan_ttl_s": 0.0}, "cancellation": knobs}, "cancellation")


def poll(tokens: int) -> Entry:
    """The engine looks for cancels now and then."""
    every = "at every token" if tokens == 1 else f"every {tokens} tokens"
    return cancellation(
        f"the engine looks for a cancel {every}, and aborts a whole interval after it",
        detection="poll",
        poll_every_tokens=tokens,
        poll_cost_s=POLL_COST_S,
    )


CATALOGUE: Mapping[str, Entry] = {
    "no_retry": Entry(
        "clients try once; a disconnect aborts the request at once",
        {"client": {"max_attempts": 1}, "gateway": {"orphan_ttl_s": 0.0}},
    ),
    "no_cancel": Entry(
        "clients retry; nobody tells the engine that a client has left",
        {"gateway": {"orphan_ttl_s": None}},
    ),
    "cancel": Entry(
        "clients retry; a disconnect aborts the request at once",
        {"gateway": {"orphan_ttl_s": 0.0}},
    ),
    "retry_budget": Entry(
        "as cancel, and retries draw from a token bucket that calls fill",
        {"gateway": {"orphan_ttl_s": 0.0}, "budget": {}},
    ),
    "coalesce": Entry(
        "a retry joins the running request; orphans run on, and results are kept",
        {"gateway": {"coalesce": True, "orphan_ttl_s": None, "result_ttl_s": RESULT_TTL_S}},
    ),
    "coalesce_cancel": Entry(
        "a retry joins the running request; one that nobody waits for is aborted",
        {"gateway": {"coalesce": True, "orphan_ttl_s": 0.0, "result_ttl_s": RESULT_TTL_S}},
    ),
    "coalesce_budget": Entry(
        "as coalesce, and retries draw from a token bucket that calls fill",
        {"gateway": {"coalesce": True, "orphan_ttl_s": None, "result_ttl_s": RESULT_TTL_S}, "budget": {}},
    ),
    "coalesce_deadline": Entry(
        "as coalesce, and the gateway refuses what would be too late for the last attempt of its calls",
        {
            "gateway": {"coalesce": True, "orphan_ttl_s": None, "result_ttl_s": RESULT_TTL_S},
            "admission": {"hold_beyond_steps": HELD_BEYOND_STEPS, "shed": "call"},
        },
    ),
    "queue_cap": admission("it refuses what finds a queue", max_queued_requests=QUEUED_REQUESTS_MAX),
    "deadline_shed": admission("it refuses what would be too late for its client", shed="attempt"),
    "codel": admission("CoDel refuses requests while they wait too long", codel_target_s=CODEL_TARGET_S),
    "adaptive_lifo": admission("the newest goes first while many wait", order="adaptive_lifo"),
    "priority_retry_last": Entry(
        "as cancel, and the gateway holds what its engines have no room for: fresh calls go before retries",
        {
            "gateway": {"orphan_ttl_s": 0.0, "retries": "last"},
            "admission": {"hold_beyond_steps": HELD_BEYOND_STEPS},
        },
    ),
    "adaptive_throttle": Entry(
        "as cancel, and clients refuse their own attempts while too few succeed",
        {"gateway": {"orphan_ttl_s": 0.0}, "throttle": {"window_s": THROTTLE_WINDOW_S}},
    ),
    "no_cancel_handling": cancellation("the engine takes no notice of cancels", detection="never"),
    "poll_every_1": poll(1),
    "poll_every_2": poll(2),
    "poll_every_4": poll(4),
    "poll_every_8": poll(8),
    "push_cancel": cancellation("the engine aborts at the end of the running step", detection="push"),
    "push_cancel_lazy_kv": cancellation(
        "as push_cancel, but the KV blocks are given back later", kv_release_delay_s=KV_RELEASE_DELAY_S
    ),
    "push_cancel_no_repack": cancellation(
        "as push_cancel, but the batch slot stays taken for the outputs that were left", repack=False
    ),
    "perfect_immediate_cancel": cancellation("the engine aborts in mid-step, at no cost", detection="oracle"),
}


def entry(name: str) -> Entry:
    """The entry called `name`. Raises UnknownName."""
    if name not in CATALOGUE:
        raise UnknownName.of("policy", name, CATALOGUE)
    return CATALOGUE[name]


def resolve(name: str, base: Policy | None = None) -> Policy:
    """The policy `name` over `base`: what the policy says wins. Raises UnknownName."""
    return apply(entry(name).knobs, base or Policy(name="base"), name)


def apply(knobs: Mapping[str, Any], base: Policy, name: str) -> Policy:
    """`base` with `knobs` turned, called `name`; presets among them are filled in.

    Raises msgspec.ValidationError for a knob that does not exist, and BadConfig for such a preset.
    """
    return msgspec.convert(merged(msgspec.to_builtins(base), {**expanded(knobs), "name": name}), Policy)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings of which `above` wins, key by key."""
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        if isinstance(value, Mapping):
            result[key] = merged(under if isinstance(under, Mapping) else {}, value)
        else:
            result[key] = value
    return result
