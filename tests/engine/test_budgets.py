"""Retry budgets and throttling against the worked numbers of their sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from replay.engine import simulate
from replay.policies.clients import BUDGETS
from replay.policies.knobs import Client, Policy, RetryBudget, Throttle
from replay.profiles.profile import EngineSettings, Profile, StepTime

FAST = Profile(
    name="fast",
    engine=EngineSettings(mode="sync", max_num_seqs=64, max_num_batched_tokens=4096, num_blocks=10_000),
    step_time=StepTime(knots_tokens=(1,), knots_s=(0.01,)),
)
SLOW_S, QUICK_S = 30.0, 0.05
"""Outputs of 3,000 tokens and of 5, at 10 ms each."""


def calls(arrivals: list[float], quick: list[bool] | None = None) -> pa.Table:
    """Calls at `arrivals`, of which those that are not `quick` outlast every timeout."""
    n = len(arrivals)
    quick = quick or [False] * n
    return pa.table(
        {
            "content_id": np.arange(n),
            "arrival_s": np.asarray(arrivals, float),
            "prompt_tokens": np.full(n, 8),
            "output_tokens": np.where(quick, 5, 3000),
        }
    )


def attempts(table: pa.Table, budget: RetryBudget | None, **client: Any) -> list[int]:
    """Attempts of each call under a client that waits 1 s and tries again at once, up to ten times."""
    knobs: dict[str, Any] = {"timeout_s": 1.0, "max_attempts": 10, "backoff_base_s": 0.0, "backoff_jitter": 0.0}
    policy = Policy(name="worked", client=Client(**knobs | client), budget=budget)
    found: list[int] = simulate(table, policy, FAST).calls["attempts"].to_pylist()
    return found


def test_a_bucket_lets_through_what_calls_deposit_and_no_more() -> None:
    budget = RetryBudget(deposit_per_call=0.5, cost_per_retry=1.0, initial=2.0, cap=10.0)
    assert sum(attempts(calls([0.0] * 6), budget)) == 6 + 5, "2 at first and 6 x 0.5 make 5 retries"


@pytest.mark.parametrize("ttl_s", [None, 10.0])
@pytest.mark.parametrize(("deposit", "paid"), [(0.1, 10), (0.2, 5), (0.3, 10), (0.7, 10)])
def test_deposits_add_up_to_what_they_are(deposit: float, paid: int, ttl_s: float | None) -> None:
    budget = RetryBudget(deposit_per_call=deposit, cost_per_retry=deposit * paid, initial=0.0, ttl_s=ttl_s)
    assert sum(attempts(calls([0.0] * paid), budget, max_attempts=2)) == paid + 1


def test_finagle_allows_a_fifth_of_the_calls_beyond_its_reserve() -> None:
    budget = replace(BUDGETS["finagle"], initial=0.0)
    assert sum(attempts(calls([0.0] * 10), budget, max_attempts=2)) == 10 + 2, "ten deposits of 1 pay two retries of 5"


def test_finagles_reserve_is_ten_retries_a_second_over_ten_seconds() -> None:
    assert sum(attempts(calls([0.0] * 200), BUDGETS["finagle"], max_attempts=2)) == 200 + (500 + 200) // 5


def test_finagles_deposits_are_gone_after_ten_seconds() -> None:
    budget = replace(BUDGETS["finagle"], initial=0.0)
    late = [0.0] * 10 + [12.0]
    assert attempts(calls(late), budget, timeout_s=1.0, max_attempts=2)[-1] == 1
    soon = [0.0] * 10 + [5.0]
    paid = attempts(calls(soon, quick=[True] * 10 + [False]), budget, timeout_s=1.0, max_attempts=2)
    assert paid[-1] == 2, "eleven deposits are still there, and one retry costs five"


def test_grpc_stops_retrying_at_half_of_its_tokens() -> None:
    # gRFC A6: 10 tokens, each failure takes one, no retry at 5 or below: the failures that leave 9, 8, 7 and 6 are
    # retried, the fifth is not.
    assert attempts(calls([0.0]), BUDGETS["grpc"]) == [5]


def test_grpc_gets_a_tenth_of_a_token_back_for_a_success() -> None:
    # Five failures leave 5; eleven successes bring 1.1, so that the next failure leaves 5.1, and is retried once: the
    # one after it leaves 4.1.
    arrivals = [0.0, *[10.0 + 0.2 * k for k in range(11)], 20.0]
    counts = attempts(calls(arrivals, quick=[False] + [True] * 11 + [False]), BUDGETS["grpc"])
    assert counts[-1] == 2
    assert counts[0] == 5


def test_envoy_allows_three_retries_at_once_and_then_a_fifth_of_what_is_active() -> None:
    # Ten calls time out together: three may retry, a fifth of ten being less.
    assert sum(attempts(calls([0.0] * 10), BUDGETS["envoy"], max_attempts=2)) == 10 + 3
    # Of forty active ones a fifth is eight; each failure leaves one less active, so that the eighth retry needs
    # forty less seven to be enough: 33 / 5 = 6.6 allow seven.
    assert sum(attempts(calls([0.0] * 40), BUDGETS["envoy"], max_attempts=2)) == 40 + 7


def test_the_aws_bucket_pays_fifty_retries_after_timeouts() -> None:
    assert sum(attempts(calls([0.0] * 80), BUDGETS["aws"], max_attempts=2)) == 80 + 50


def test_the_aws_bucket_gets_the_price_of_a_retry_back_when_it_succeeds() -> None:
    budget = replace(BUDGETS["aws"], initial=10.0, cap=500.0)
    # The one slot is taken for 1.5 s by a call of a patient user: the retry of the second call succeeds and returns
    # ten tokens, which pay the retry of the third.
    one = replace(FAST, engine=replace(FAST.engine, max_num_seqs=1))
    table = pa.table(
        {
            "content_id": [0, 1, 2],
            "arrival_s": [0.0, 0.1, 20.0],
            "prompt_tokens": [8, 8, 8],
            "output_tokens": [150, 5, 3000],
            "client_timeout_s": [100.0, 1.0, 1.0],
        }
    )
    client = Client(max_attempts=2, backoff_base_s=0.0, backoff_jitter=0.0)
    found = simulate(table, Policy(name="worked", client=client, budget=budget), one).calls
    assert found["outcome"].to_pylist() == ["delivered", "delivered", "failed"]
    # The first success had no retry and brought 1, the second 10.
    assert found["attempts"].to_pylist() == [1, 2, 2]
    poor = replace(budget, refunds=False)
    assert simulate(table, Policy(name="worked", client=client, budget=poor), one).calls["attempts"].to_pylist()[2] == 1


def test_throttling_refuses_in_proportion_to_what_exceeds_twice_the_accepts() -> None:
    """Ten accepts and forty failures: (50 - 2 * 10) / 51 of the next requests are refused, and each refusal counts."""
    burst = 1000
    arrivals = [0.1 * k for k in range(50)] + [20.0] * burst
    table = calls(arrivals, quick=[True] * 10 + [False] * (40 + burst))
    policy = Policy(name="worked", client=Client(timeout_s=1.0, max_attempts=1), throttle=Throttle(window_s=120.0))
    early = replace(policy, throttle=Throttle(multiplier=1e9))
    assert simulate(table, early, FAST).calls["reason"].to_pylist().count("rejected:throttled") == 0
    refused = simulate(table, policy, FAST).calls["reason"].to_pylist()
    before = refused[:50].count("rejected:throttled")
    requests, expected = 50.0, 0.0
    for _ in range(burst):
        probability = (requests - 2.0 * 10.0) / (requests + 1.0)
        requests += probability
        expected += probability
    assert refused[:10].count("rejected:throttled") == 0
    assert before <= 40
    assert refused[50:].count("rejected:throttled") == pytest.approx(expected, abs=4.0 * (burst * 0.03) ** 0.5)


def test_throttling_forgets_what_lies_behind_its_window() -> None:
    arrivals = [0.1 * k for k in range(50)] + [100.0] * 20
    table = calls(arrivals, quick=[False] * 50 + [True] * 20)
    client = Client(timeout_s=1.0, max_attempts=1)
    for window, refuses in ((30.0, False), (300.0, True)):
        policy = Policy(name="worked", client=client, throttle=Throttle(window_s=window))
        reasons = simulate(table, policy, FAST).calls["reason"].to_pylist()[50:]
        assert ("rejected:throttled" in reasons) == refuses
