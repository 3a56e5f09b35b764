"""No policy delivers more than is possible, whatever is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replay.engine import simulate
from replay.policies.knobs import Client, Gateway, Policy
from replay.possible import Possible, most_calls
from replay.profiles.profile import EngineSettings, Profile, StepTime
from tests.engine.scenarios import Scenario, scenarios

ONCE = Client(max_attempts=1)


def possible(calls: pa.Table, policy: Policy, engines: list[Profile]) -> Possible:
    cut_short = policy.cancellation.detection == "oracle"
    (found,) = most_calls(calls, [policy], engines, [np.ones(calls.num_rows, bool)], cut_short=cut_short)
    return found


@given(scenarios())
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_policy_delivers_more_than_is_possible(scenario: Scenario) -> None:
    calls, engines = scenario.table, [scenario.profile] * scenario.fleet.replicas
    most = possible(calls, scenario.policy, engines)
    found = simulate(calls, scenario.policy, engines, seed=scenario.seed).calls
    timeouts = np.asarray(found["client_timeout_s"].fill_null(np.inf))
    eligible = np.asarray(found["eligible"])
    delivered = eligible & (np.asarray(found["outcome"]) == "delivered")
    latency = np.asarray(found["end_s"].fill_null(np.inf)) - np.asarray(found["arrival_s"])
    assert eligible.sum() == most.calls
    assert delivered.sum() <= most.delivered
    assert (delivered & (latency <= timeouts)).sum() <= most.on_time


def calls_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"call_id": i, "content_id": i, "arrival_s": 0.0, **row} for i, row in enumerate(rows)]
    )


def test_an_engine_that_is_never_short_can_deliver_everything(profile: Profile) -> None:
    calls = calls_of([{"prompt_tokens": 100, "output_tokens": 5}] * 20)
    assert possible(calls, Policy(name="any"), [profile]) == Possible(20, 20, 20)


def test_a_full_engine_delivers_no_more_than_its_tokens_take(profile: Profile) -> None:
    # A step of 256 prompt tokens takes 0.1 s, and no mix of steps makes a prompt token cheaper.
    calls = calls_of([{"prompt_tokens": 256, "output_tokens": 1, "client_timeout_s": 1.0}] * 40)
    assert possible(calls, Policy(name="any", client=ONCE), [profile]).delivered == 10
    assert possible(calls, Policy(name="any", client=ONCE), [profile] * 2).delivered == 20
    policy = Policy(name="served", client=ONCE, gateway=Gateway(orphan_ttl_s=0.0))
    served = simulate(calls, policy, [profile]).calls
    assert served["outcome"].to_pylist().count("delivered") == 10


def test_patience_is_that_of_the_most_patient_policy(profile: Profile) -> None:
    calls = calls_of([{"prompt_tokens": 256, "output_tokens": 1, "client_timeout_s": 1.0}] * 40)
    twice = Client(max_attempts=2, backoff_base_s=0.5)
    (most,) = most_calls(
        calls, [Policy(name="once", client=ONCE), Policy(name="twice", client=twice)], [profile], [np.ones(40, bool)]
    )
    assert (most.delivered, most.on_time) == (25, 10)


def test_calls_that_ask_the_same_may_share_one_response(profile: Profile) -> None:
    rows = [{"prompt_tokens": 256, "output_tokens": 1, "client_timeout_s": 1.0, "content_id": 0}] * 40
    assert possible(calls_of(rows), Policy(name="any", client=ONCE), [profile]).delivered == 40


def test_a_prefix_that_was_computed_for_one_call_costs_the_others_nothing(profile: Profile) -> None:
    shared = list(range(15))
    rows = [
        {"prompt_tokens": 256, "output_tokens": 1, "client_timeout_s": 1.0, "block_hashes": [*shared, 100 + i]}
        for i in range(40)
    ]
    calls = calls_of(rows)
    calls = calls.set_column(
        calls.column_names.index("block_hashes"), "block_hashes", calls["block_hashes"].cast(pa.list_(pa.uint64()))
    )
    assert possible(calls, Policy(name="any", client=ONCE), [profile]).delivered == 40
    uncached = msgspec.structs.replace(profile, engine=msgspec.structs.replace(profile.engine, prefix_caching=False))
    assert possible(calls, Policy(name="any", client=ONCE), [uncached]).delivered == 10


def test_a_small_pool_is_what_bounds_long_contexts(profile: Profile) -> None:
    # Of 400 blocks, 399 hold tokens: 6 requests of 1,000 tokens at once, whose 200 outputs take 200 steps of 10 ms.
    rows = [{"prompt_tokens": 1000, "output_tokens": 201, "client_timeout_s": 20.0}] * 60
    cheap = StepTime(knots_tokens=(1,), knots_s=(0.01,))
    engine = msgspec.structs.replace(profile.engine, max_num_seqs=64, max_num_batched_tokens=4096)
    small = Profile(name="small", engine=engine, step_time=cheap)
    large = Profile(name="large", engine=msgspec.structs.replace(engine, num_blocks=10_000), step_time=cheap)
    policy = Policy(name="any", client=ONCE)
    assert possible(calls_of(rows), policy, [large]).delivered == 60
    served = simulate(calls_of(rows), policy, [small]).calls["outcome"].to_pylist().count("delivered")
    assert 45 <= served <= possible(calls_of(rows), policy, [small]).delivered < 60


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.02, 0.2]), st.sampled_from([16, 100, 250]), st.sampled_from([0.12, 0.3, 0.6])
        ),
        min_size=2,
        max_size=4,
    )
)
@settings(max_examples=15, deadline=None)
def test_no_order_of_serving_beats_the_bound(drawn: list[tuple[float, int, float]]) -> None:
    """All orders in which one request at a time can be served, of all calls and of some of them."""
    engine = EngineSettings(
        policy="priority", max_num_seqs=1, max_num_batched_tokens=256, max_model_len=4096, num_blocks=400
    )
    step_time = StepTime(knots_tokens=(1, 256), knots_s=(0.01, 0.1))
    profile = Profile(name="one at a time", engine=engine, step_time=step_time)
    arrivals = np.cumsum([gap for gap, _, _ in drawn])
    rows = [
        {"arrival_s": at, "prompt_tokens": prompt, "output_tokens": 2, "client_timeout_s": timeout}
        for at, (_, prompt, timeout) in zip(arrivals.tolist(), drawn, strict=True)
    ]
    policy = Policy(name="once", client=ONCE)
    best = 0
    for n in range(1, len(rows) + 1):
        for order in permutations(range(len(rows)), n):
            served = [{**rows[i], "priority": order.index(i)} for i in sorted(order)]
            outcome = simulate(calls_of(served), policy, [profile]).calls["outcome"].to_pylist()
            best = max(best, outcome.count("delivered"))
    assert best <= possible(calls_of(rows), policy, [profile]).delivered
