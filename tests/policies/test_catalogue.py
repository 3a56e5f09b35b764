"""The named policies, and what they leave to the run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from replay.errors import BadConfig, UnknownName
from replay.policies.catalogue import CATALOGUE, apply, resolve
from replay.policies.clients import BUDGETS, CLIENTS
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
    patient = {"coalesce", "coalesce_budget", "coalesce_deadline"}
    assert {name for name, ttl in cancels.items() if ttl is None} == patient | {"no_cancel"}
    assert {name for name in CATALOGUE if resolve(name).gateway.coalesce} == patient | {"coalesce_cancel"}
    assert {name for name in CATALOGUE if resolve(name).budget is not None} == {"retry_budget", "coalesce_budget"}
    different = {name: replace(resolve(name), name="") for name in CATALOGUE}
    assert len(set(different.values())) == len(CATALOGUE)


def test_a_client_by_name_is_a_whole_one_and_knobs_beside_it_win() -> None:
    policy = apply({"client": {"preset": "openai-python", "timeout_s": 30.0}}, BASE, "mine")
    assert policy.client == replace(CLIENTS["openai-python"].client, timeout_s=30.0)
    assert policy.budget is None


def test_a_proxy_brings_its_budget_unless_there_is_one() -> None:
    assert apply({"client": "envoy"}, BASE, "mine").budget == BUDGETS["envoy"]
    assert apply({"client": "envoy", "budget": "finagle"}, BASE, "mine").budget == BUDGETS["finagle"]
    assert apply({"client": "envoy", "budget": None}, BASE, "mine").budget is None


def test_unknown_presets_get_the_nearest() -> None:
    with pytest.raises(BadConfig, match="did you mean openai-python"):
        apply({"client": "openai_python"}, BASE, "mine")
    with pytest.raises(BadConfig, match="did you mean finagle"):
        apply({"budget": {"preset": "finagel"}}, BASE, "mine")
    with pytest.raises(BadConfig, match="must be a name"):
        apply({"client": {"preset": 3}}, BASE, "mine")


def test_an_unknown_policy_gets_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean retry_budget"):
        resolve("retry_buget")
