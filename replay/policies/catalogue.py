"""The named policies. Each says only what it changes; the rest is the run's base policy: its clients and network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from replay.errors import UnknownName
from replay.policies.knobs import Policy


class Entry(msgspec.Struct, frozen=True):
    """A policy of the catalogue: what it does in a sentence, and the knobs it turns."""

    summary: str
    knobs: Mapping[str, Any]


RESULT_TTL_S = 120.0
"""How long the coalescing policies keep a finished result."""

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
    """`base` with `knobs` turned, called `name`. Raises msgspec.ValidationError for a knob that does not exist."""
    return msgspec.convert(merged(msgspec.to_builtins(base), {**knobs, "name": name}), Policy)


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
