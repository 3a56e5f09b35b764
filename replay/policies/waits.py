"""How long clients wait before they try again: what a policy comes to, for those who must know it beforehand."""

from __future__ import annotations

import math

from replay.policies.knobs import Policy

SUMMED = 1_000
"""Waits that are added up one by one; those after them are taken to be the longest that there are."""


def told_wait_s(policy: Policy) -> float | None:
    """What a client that is refused waits because it is told to.

    None where it waits as after a timeout; infinity where it does not try again, for it would have to wait too long.
    """
    told, client = policy.admission.retry_after_s, policy.client
    if told is None or not client.heeds_retry_after:
        return None
    most = client.retry_after_most_s
    return told if most is None or told <= most else math.inf


def longest_waits_s(policy: Policy) -> float:
    """Seconds that a client spends between its attempts at most: all waits, without jitter."""
    client, told = policy.client, told_wait_s(policy)
    least = client.backoff_floor_s if told is None or math.isinf(told) else max(client.backoff_floor_s, told)
    longest = max(client.backoff_cap_s, least) if client.backoff_base_s > 0 else least
    terms, total, waited = 1.0, 0.0, 0.0
    for retry in range(1, client.max_attempts):
        total += terms
        grown = total if client.backoff_grows == "by_sum" else terms
        wait = max(min(client.backoff_base_s * grown, client.backoff_cap_s), least)
        if wait >= longest or retry == SUMMED:
            return waited + longest * (client.max_attempts - retry)
        waited += wait
        terms *= client.backoff_factor
    return waited
