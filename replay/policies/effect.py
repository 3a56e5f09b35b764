"""What a policy can do with given traffic: knobs that nothing in it can move make no difference.

Two policies whose effective knobs are equal give equal results, to the byte; one of them is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from msgspec.structs import replace

from replay.policies.knobs import Cancellation, Client, Gateway, Policy
from replay.policies.waits import told_wait_s

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Traffic:
    """What happens in a trace that a policy could answer."""

    timeouts: bool
    """Clients wait for a time that the trace names."""
    leavers: bool
    """Users leave."""
    repeats: bool
    """Different calls have equal contents or keys, so that one may join another."""

    @classmethod
    def of(cls, calls: pa.Table) -> Traffic:
        """What is in `calls` (schema CALLS)."""
        keys = calls["idempotency_key"].drop_null()
        repeated = any(pc.count_distinct(c).as_py() < len(c) for c in (calls["content_id"], keys))
        return cls(
            timeouts=calls["client_timeout_s"].null_count < calls.num_rows,
            leavers=any(calls[name].null_count < calls.num_rows for name in ("user_cancel_s", "user_cancel_tokens")),
            repeats=repeated,
        )


def effective(policy: Policy, traffic: Traffic) -> Policy:
    """The policy with every knob that `traffic` cannot move at its neutral value.

    Without cancels the cost of looking for them is left out too.
    """
    client, gateway = policy.client, policy.gateway
    times_out = traffic.timeouts or client.timeout_s is not None
    hedges = client.hedge_after_s is not None
    disconnects = times_out or traffic.leavers or client.deadline_s is not None
    throttle = policy.throttle
    if throttle is not None and throttle.multiplier >= 1.0 and not (disconnects or refuses(policy)):
        throttle = None
    if not (times_out or hedges or refuses(policy) or throttle is not None):
        client = replace(client, max_attempts=1)
    tries_again = client.max_attempts > 1
    budget = policy.budget
    if not tries_again:
        budget = None
        gateway = replace(gateway, retries="alike")
        client = Client(
            timeout_s=client.timeout_s, timeout_kind=client.timeout_kind, deadline_s=client.deadline_s, max_attempts=1
        )
    disconnects = disconnects or (hedges and tries_again)
    admission = policy.admission
    comes_again = tries_again and client.retries_rejections and refuses(policy)
    if not comes_again or told_wait_s(policy) is None:
        client = replace(client, heeds_retry_after=True, retry_after_most_s=None)
        admission = replace(admission, retry_after_s=None)
    if not disconnects:
        gateway = replace(gateway, orphan_ttl_s=Gateway().orphan_ttl_s)
    if not tries_again and not traffic.repeats:
        gateway = replace(gateway, coalesce=False)
    if not gateway.coalesce:
        gateway = replace(gateway, result_ttl_s=0.0, coalesce_by=Gateway().coalesce_by)
    cancellation = policy.cancellation
    if gateway.orphan_ttl_s is None or not disconnects:
        cancellation = Cancellation()
    changes = {"client": client, "budget": budget, "throttle": throttle, "gateway": gateway, "admission": admission}
    return replace(policy, **changes, cancellation=cancellation)


def refuses(policy: Policy) -> bool:
    """Whether a gateway or an engine may refuse an attempt, and not for its length."""
    a = policy.admission
    capped = a.max_queued_requests is not None or a.max_queued_tokens is not None
    return capped or a.shed != "never" or a.codel_target_s is not None


def told_apart(
    families: Sequence[Sequence[Policy]], traffic: Traffic, own: str | None = None
) -> tuple[list[Policy], list[tuple[str, list[str]]]]:
    """The policies that `traffic` can tell apart; and for each that stands for others, (its name, their names).

    Policies of a family are told apart from each other; a family of which one is left, which a family before it has
    too, is left out. The policy called `own` stays in any case.
    """
    kept: list[Policy] = []
    stands_for: dict[Policy, tuple[str, list[str]]] = {}
    for family in families:
        effects = [replace(effective(policy, traffic), name="") for policy in family]
        seen = set(effects) if len(set(effects)) == 1 and effects[0] in stands_for else set()
        for policy, effect in zip(family, effects, strict=True):
            if effect in seen and policy.name != own:
                stands_for[effect][1].append(policy.name)
            else:
                kept.append(policy)
                stands_for.setdefault(effect, (policy.name, []))
                seen.add(effect)
    return kept, [(first, names) for first, names in stands_for.values() if names]
