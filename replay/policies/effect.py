"""What a policy can do with given traffic: knobs that nothing in it can move make no difference.

Two policies whose effective knobs are equal give equal results, to the byte; one of them is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from msgspec.structs import replace

from replay.policies.knobs import Client, Gateway, Policy

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
            leavers=calls["user_cancel_s"].null_count < calls.num_rows,
            repeats=repeated,
        )


def effective(policy: Policy, traffic: Traffic) -> Policy:
    """The policy with every knob that `traffic` cannot move at its neutral value."""
    client, gateway = policy.client, policy.gateway
    times_out = traffic.timeouts or client.timeout_s is not None
    if not times_out:
        client = replace(client, max_attempts=1)
    budget = policy.budget
    if client.max_attempts == 1:
        budget = None
        client = Client(timeout_s=client.timeout_s, timeout_kind=client.timeout_kind, max_attempts=1)
    if not (times_out or traffic.leavers):
        gateway = replace(gateway, orphan_ttl_s=Gateway().orphan_ttl_s)
    if client.max_attempts == 1 and not traffic.repeats:
        gateway = replace(gateway, coalesce=False)
    if not gateway.coalesce:
        gateway = replace(gateway, result_ttl_s=0.0)
    return replace(policy, client=client, budget=budget, gateway=gateway)


def told_apart(
    policies: Sequence[Policy], traffic: Traffic, keep: int = 0
) -> tuple[list[Policy], list[tuple[str, list[str]]]]:
    """The policies that `traffic` can tell apart; and for each that stands for others, (its name, their names).

    The first `keep` policies stay in any case.
    """
    kept: list[Policy] = []
    by_effect: dict[Policy, tuple[str, list[str]]] = {}
    for place, policy in enumerate(policies):
        effect = replace(effective(policy, traffic), name="")
        if effect in by_effect and place >= keep:
            by_effect[effect][1].append(policy.name)
        else:
            kept.append(policy)
            by_effect.setdefault(effect, (policy.name, []))
    return kept, [(first, names) for first, names in by_effect.values() if names]
