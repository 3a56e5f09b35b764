"""Where requests go in a fleet, and fleets of unequal engines."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from replay.engine import Results, simulate
from replay.errors import BadConfig
from replay.policies.knobs import Client, Engines, Fleet, Gateway, Policy
from replay.profiles.profile import EngineSettings, Profile, StepTime
from tests import naive
from tests.engine.test_twin import compare_calls, compare_executions, compare_replicas

FAST = Profile(
    name="fast",
    engine=EngineSettings(max_num_seqs=16, max_num_batched_tokens=512, block_size=16, num_blocks=400),
    step_time=StepTime(knots_tokens=(1, 512), knots_s=(0.01, 0.1)),
)
SLOW = replace(
    FAST,
    name="slow",
    engine=replace(FAST.engine, num_blocks=150, max_num_seqs=4, max_num_batched_tokens=64),
    step_time=StepTime(knots_tokens=(1, 512), knots_s=(0.03, 0.3)),
)


def calls(n: int = 400, gap_s: float = 0.01, families: int = 7, sessions: int = 20) -> pa.Table:
    """Calls of several families, which share the first 64 of 100 prompt tokens."""
    place = np.arange(n)
    hashes = [[1000 * (i % families) + j for j in range(4)] + [10**6 + 10 * i + j for j in range(2)] for i in range(n)]
    return pa.table(
        {
            "call_id": place,
            "content_id": place,
            "arrival_s": place * gap_s,
            "prompt_tokens": np.full(n, 100),
            "output_tokens": 5 + place % 7,
            "session_id": [f"s{i % sessions}" for i in range(n)],
            "block_hashes": pa.array(hashes, pa.list_(pa.uint64())),
            "hash_block_tokens": np.full(n, 16, np.int32),
        }
    )


def routed(
    routing: str, n: int = 4, trace: pa.Table | None = None, client: Client | None = None, **knobs: Any
) -> Results:
    gateway = Gateway(routing=routing, **knobs)  # type: ignore[arg-type]
    policy = Policy(name=routing, gateway=gateway, client=client or Client())
    return simulate(calls() if trace is None else trace, policy, FAST, Fleet(replicas=n))


def counts(results: Results) -> list[int]:
    found = Counter(results.executions["replica"].to_pylist())
    return [found[r] for r in sorted(found)]


def hits(results: Results) -> int:
    return int(np.asarray(results.executions["cached_prompt_tokens"]).sum())


def test_round_robin_deals_them_out() -> None:
    assert counts(routed("round_robin")) == [100] * 4


@pytest.mark.parametrize("routing", ["random", "power_of_two"])
def test_lots_reach_every_replica_about_equally_often(routing: str) -> None:
    found = counts(routed(routing))
    assert sum(found) == 400
    assert min(found) > 60
    assert counts(routed(routing)) == found


def test_two_choices_balance_better_than_one() -> None:
    waits = {}
    for routing in ("random", "power_of_two"):
        results = routed(routing, trace=calls(gap_s=0.004))
        waits[routing] = np.quantile(np.asarray(results.calls["end_s"]) - np.asarray(results.calls["arrival_s"]), 0.95)
    assert waits["power_of_two"] < waits["random"]


def test_a_session_stays_where_it_was() -> None:
    results = routed("session")
    places: dict[str, set[int]] = {}
    names = calls()["session_id"].to_pylist()
    for call, replica in zip(
        results.executions["call_id"].to_pylist(), results.executions["replica"].to_pylist(), strict=True
    ):
        places.setdefault(names[call], set()).add(replica)
    assert all(len(found) == 1 for found in places.values())
    assert len(set.union(*places.values())) == 4


def test_prefix_affinity_finds_more_in_the_cache() -> None:
    assert hits(routed("prefix_affinity")) > 1.02 * hits(routed("round_robin"))
    assert hits(routed("prefix_affinity", affinity_min_share=1.0)) <= hits(routed("prefix_affinity"))


def test_prefix_affinity_gives_way_to_balance() -> None:
    one_family = calls(families=1, gap_s=0.002)
    assert len(counts(routed("prefix_affinity", trace=one_family, balance_gap=10_000))) == 1
    assert len(counts(routed("prefix_affinity", trace=one_family, balance_gap=4))) == 4


def test_a_retry_may_land_elsewhere_and_lose_its_cache() -> None:
    impatient = Client(timeout_s=0.05, max_attempts=3, backoff_base_s=0.01)
    retried = routed("round_robin", client=impatient).executions
    at_home = routed("prefix_affinity", client=impatient).executions
    moved: dict[int, set[int]] = {}
    for call, replica in zip(retried["call_id"].to_pylist(), retried["replica"].to_pylist(), strict=True):
        moved.setdefault(call, set()).add(replica)
    assert any(len(places) > 1 for places in moved.values())
    assert np.asarray(at_home["cached_prompt_tokens"]).mean() > np.asarray(retried["cached_prompt_tokens"]).mean()


@pytest.mark.parametrize("routing", ["round_robin", "least_outstanding", "power_of_two", "prefix_affinity"])
def test_unequal_engines_agree_with_their_twin(routing: str) -> None:
    policy = Policy(name="mixed", gateway=Gateway(routing=routing), client=Client(timeout_s=1.0, max_attempts=2))  # type: ignore[arg-type]
    trace = calls(120)
    ours = simulate(trace, policy, [FAST, SLOW, SLOW], timeline_interval_s=0)
    twin = naive.simulate(trace, policy, [FAST, SLOW, SLOW])
    compare_calls(ours, twin)
    compare_executions(ours, twin)
    compare_replicas(ours, twin)


def test_the_least_loaded_of_unequal_engines_is_mostly_the_fast_one() -> None:
    policy = Policy(name="mixed", gateway=Gateway(routing="least_outstanding"))
    found = counts(simulate(calls(gap_s=0.03), policy, [FAST, SLOW]))
    assert found[0] > 2 * found[1]


def test_engines_of_a_fleet_must_agree_in_what_blocks_are() -> None:
    other = replace(SLOW, engine=replace(SLOW.engine, block_size=32))
    with pytest.raises(BadConfig, match=r"slow: engine\.block_size is 32, but 16 for fast"):
        simulate(calls(4), Policy(name="mixed"), [FAST, other])


def test_a_fleet_is_named_for_what_is_in_it() -> None:
    fleet = Fleet(replicas=2, beside=(Engines(profile="h200-sxm/llama-3.1-8b", replicas=3),))
    assert (fleet.name, fleet.size) == ("2x+3x-h200-sxm-llama-3.1-8b", 5)
