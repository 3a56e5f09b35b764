"""Clients, proxies and retry budgets by name: their defaults, read from their sources in 2026.

A preset stands for a whole client; knobs beside it win. Where a source cannot be said in these knobs, its note says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from replay.errors import BadConfig, UnknownName
from replay.policies.knobs import Client, RetryBudget

BUDGETS: Mapping[str, RetryBudget] = {
    "finagle": RetryBudget(
        deposit_per_call=1.0, cost_per_retry=5.0, initial=10.0 * 10.0 * 5.0, cap=1e18, ttl_s=10.0
    ),  # RetryBudget.apply(ttl 10 s, minRetriesPerSec 10, percentCanRetry 0.2): a reserve of 10 retries/s over the ttl
    "grpc": RetryBudget(
        deposit_per_call=0.0, deposit_per_success=0.1, cost_per_retry=0.0, cost_per_failure=1.0, retry_above=5.0,
        initial=10.0, cap=10.0,
    ),  # gRFC A6: maxTokens 10, tokenRatio 0.1; none at or below half
    "envoy": RetryBudget(
        deposit_per_call=0.0, cost_per_retry=0.0, initial=0.0, share_of_active=0.2, concurrent_retries_min=3
    ),  # retry_budget: budget_percent 20, min_retry_concurrency 3
    "aws": RetryBudget(
        deposit_per_call=0.0, deposit_per_success=1.0, cost_per_retry=5.0, cost_per_timeout_retry=10.0, refunds=True,
        initial=500.0, cap=500.0,
    ),  # standard mode: 500 tokens, retry 5, after a timeout 10; a success returns its last retry's cost, or 1
}  # fmt: skip
"""Retry budgets by the name of where they come from."""


class Preset(Struct, frozen=True, kw_only=True):
    """A client as it comes: its knobs, its budget, and what else is to be known of it."""

    client: Client
    budget: RetryBudget | None = None
    note: str = ""

    @property
    def says(self) -> str:
        """How it waits and retries, in a line."""
        c = self.client
        waits = "waits for ever" if c.timeout_s is None else f"{c.timeout_s:g} s {WAITS[c.timeout_kind]}"
        ends = "" if c.deadline_s is None else f", {c.deadline_s:g} s in all"
        return f"{waits}{ends}; {'1 attempt' if c.max_attempts == 1 else f'{c.max_attempts} attempts'}"


WAITS = {"total": "for the response", "first_token": "for the first token", "idle": "between two tokens"}


def sdk(timeout_s: float, **knobs: Any) -> Client:
    """An SDK of Stainless: three attempts, `min(0.5 * 2 ** n, 8)` seconds less up to a quarter between them."""
    usual: dict[str, Any] = {"max_attempts": 3, "backoff_base_s": 0.5, "backoff_cap_s": 8.0, "backoff_jitter": 0.25}
    return Client(timeout_s=timeout_s, timeout_kind="idle", streams_retried="never", **usual | knobs)


HEADERS = "A stream whose headers have come is not retried; with SGLang, set streams_retried: before_first_token."
CLIENTS: Mapping[str, Preset] = {
    "openai-python": Preset(client=sdk(600.0, retry_after_most_s=120.0), note=HEADERS),
    "anthropic": Preset(client=sdk(600.0), note=HEADERS),
    "httpx": Preset(client=Client(timeout_s=5.0, timeout_kind="idle", max_attempts=1)),
    "langchain-openai": Preset(
        client=sdk(600.0, retry_after_most_s=120.0),
        note="Its limit of 120 s between chunks of a stream is not modelled beside the SDK's 600 s."
    ),
    "llamaindex-openai": Preset(
        client=Client(
            timeout_s=60.0, timeout_kind="idle", max_attempts=12, backoff_base_s=1.0, backoff_cap_s=20.0,
            backoff_floor_s=1.0, backoff_jitter=1.0, heeds_retry_after=False,
        ),
        note="The SDK's four attempts inside three of tenacity, all with tenacity's random waits of 1 to 20 s.",
    ),
    "litellm": Preset(
        client=Client(timeout_s=600.0, max_attempts=3, backoff_base_s=0.5, backoff_cap_s=8.0, backoff_jitter=0.25),
        note="A healthy deployment beside is tried at once; its cooldown of a failing one is not modelled, "
        "nor that it waits as it would where Retry-After is over a minute.",
    ),
    "envoy": Preset(
        client=Client(
            deadline_s=15.0, max_attempts=2, backoff_base_s=0.025, backoff_grows="by_sum", backoff_cap_s=0.25,
            backoff_jitter=1.0, heeds_retry_after=False,
        ),
        budget=BUDGETS["envoy"],
        note="A route with a retry policy; its timeout of 15 s includes the retry. Without one, set max_attempts: 1.",
    ),
    "istio": Preset(
        client=Client(
            max_attempts=3, backoff_base_s=0.025, backoff_grows="by_sum", backoff_jitter=1.0, heeds_retry_after=False
        ),
        note="No timeout of its own; what it retries on does not include timeouts of the upstream.",
    ),
    "nginx": Preset(
        client=Client(timeout_s=60.0, timeout_kind="idle", max_attempts=1, retries_rejections=False),
        note="A POST that was sent is tried elsewhere only with non_idempotent: then raise max_attempts.",
    ),
    "aws-alb": Preset(client=Client(timeout_s=60.0, timeout_kind="idle", max_attempts=1, retries_rejections=False)),
    "cloudflare": Preset(
        client=Client(timeout_s=100.0, timeout_kind="first_token", max_attempts=1, retries_rejections=False),
        note="524 after 100 s without a first byte.",
    ),
    "grpc": Preset(
        client=Client(max_attempts=5, backoff_base_s=0.1, backoff_cap_s=1.0, backoff_jitter=1.0,
                      heeds_retry_after=False),
        budget=BUDGETS["grpc"],
        note="The deadline of the call spans all attempts: set deadline_s.",
    ),
    "aws-sdk-standard": Preset(
        client=Client(timeout_s=60.0, timeout_kind="idle", max_attempts=3, backoff_base_s=1.0, backoff_cap_s=20.0,
                      backoff_jitter=1.0, heeds_retry_after=False),
        budget=BUDGETS["aws"],
    ),
    "finagle": Preset(
        client=Client(max_attempts=26, backoff_base_s=0.0, backoff_jitter=0.0, heeds_retry_after=False),
        budget=BUDGETS["finagle"],
        note="No timeout and no wait of its own: set timeout_s, and backoff_base_s if there is one.",
    ),
}  # fmt: skip
"""Clients and proxies by name."""


def expanded(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """`knobs` with presets in full: `client: NAME`, `client: {preset: NAME, ...}`, and the same of `budget`.

    A client's preset brings its budget along, unless the knobs have one. Raises BadConfig.
    """
    result = dict(knobs)
    name, own = split(knobs.get("client"), "client")
    if name is not None:
        if name not in CLIENTS:
            raise BadConfig(str(UnknownName.of("client", name, CLIENTS)))
        result["client"] = {**msgspec.to_builtins(CLIENTS[name].client), **own}
        if CLIENTS[name].budget is not None and "budget" not in knobs:
            result["budget"] = msgspec.to_builtins(CLIENTS[name].budget)
    name, own = split(knobs.get("budget"), "budget")
    if name is not None:
        if name not in BUDGETS:
            raise BadConfig(str(UnknownName.of("retry budget", name, BUDGETS)))
        result["budget"] = {**msgspec.to_builtins(BUDGETS[name]), **own}
    return result


def split(value: Any, key: str) -> tuple[str | None, Mapping[str, Any]]:
    """(preset, knobs beside it) of what stands under `key`."""
    if isinstance(value, str):
        return value, {}
    if isinstance(value, Mapping) and "preset" in value:
        if not isinstance(value["preset"], str):
            raise BadConfig(f"{key}.preset: must be a name")
        return value["preset"], {k: v for k, v in value.items() if k != "preset"}
    return None, {}
