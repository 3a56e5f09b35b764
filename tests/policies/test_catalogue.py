"""The named policies, and what they leave to the run."""

from __future__ import annotations

import pytest

from replay.errors import UnknownName
from replay.policies.catalogue import CATALOGUE, resolve
from replay.policies.knobs import Client, Network, Policy

BASE = Policy(name="base", client=Client(timeout_s=7.0, max_attempts=9), network=Network(cancel_s=0.1))


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_a_policy_keeps_the_clients_and_the_network_of_the_run(name: str) -> None:
    policy = resolve(name, BASE)
    assert policy.name == name
    assert policy.client.timeout_s == 7.0
    assert policy.network == BASE.network
    assert policy.client.max_attempts == (1 if name == "no_retry" else 9)
    assert CATALOGUE[name].summary


def test_each_policy_is_its_own() -> None:
    cancels = {name: resolve(name).gateway.orphan_ttl_s for name in CATALOGUE}
    assert {name for name, ttl in cancels.items() if ttl is None} == {"no_cancel", "coalesce"}
    assert {name for name in CATALOGUE if resolve(name).gateway.coalesce} == {"coalesce", "coalesce_cancel"}
    assert {name for name in CATALOGUE if resolve(name).budget is not None} == {"retry_budget"}


def test_an_unknown_policy_gets_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean retry_budget"):
        resolve("retry_buget")
