"""Clients that are refused: when they come again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from replay.engine import simulate
from replay.policies.knobs import Admission, Client, Policy, Throttle
from replay.policies.waits import longest_waits_s
from replay.profiles.profile import EngineSettings, Profile, StepTime

ENGINE = Profile(
    name="one at a time",
    engine=EngineSettings(mode="sync", max_num_seqs=1, max_num_batched_tokens=4096, num_blocks=1_000),
    step_time=StepTime(knots_tokens=(1,), knots_s=(0.01,)),
)
CLIENT: dict[str, Any] = {"max_attempts": 3, "backoff_base_s": 0.5, "backoff_factor": 2.0, "backoff_jitter": 0.0}


def tries_of_the_third(retry_after_s: float | None, **client: Any) -> tuple[list[float], str | None]:
    """When a call is tried that finds one at work, until 5 s, and one waiting, which is all that may; why it failed."""
    calls = pa.table(
        {
            "content_id": np.arange(3),
            "arrival_s": np.array([0.0, 0.5, 1.0]),
            "prompt_tokens": np.full(3, 8),
            "output_tokens": np.array([500, 5, 5]),
        }
    )
    admission = Admission(max_queued_requests=1, retry_after_s=retry_after_s)
    policy = Policy(name="worked", client=Client(**CLIENT | client), admission=admission)
    results = simulate(calls, policy, ENGINE)
    mine = results.attempts.filter(np.asarray(results.attempts["call_id"]) == 2)
    return mine["start_s"].to_pylist(), results.calls["reason"][2].as_py()


def test_without_a_word_they_wait_as_they_would() -> None:
    assert tries_of_the_third(None) == ([1.0, 1.5, 2.5], "rejected:queue_full")


def test_told_to_wait_they_do() -> None:
    assert tries_of_the_third(3.0) == ([1.0, 4.0, 7.0], None)
    assert tries_of_the_third(0.25) == ([1.0, 1.25, 1.5], "rejected:queue_full")


def test_some_do_not_listen() -> None:
    assert tries_of_the_third(3.0, heeds_retry_after=False) == ([1.0, 1.5, 2.5], "rejected:queue_full")


def test_told_to_wait_too_long_they_give_up() -> None:
    assert tries_of_the_third(3.0, retry_after_most_s=2.9) == ([1.0], "rejected:queue_full")
    assert tries_of_the_third(3.0, retry_after_most_s=3.0) == ([1.0, 4.0, 7.0], None)


def test_a_client_that_refuses_its_own_attempts_tells_itself_nothing() -> None:
    calls = pa.table(
        {
            "content_id": np.arange(60),
            "arrival_s": np.linspace(0.0, 1.0, 60),
            "prompt_tokens": np.full(60, 8),
            "output_tokens": np.full(60, 500),
        }
    )
    throttle = Throttle(multiplier=0.01)
    client = Client(timeout_s=0.1, **CLIENT)
    told = Policy(name="told", client=client, throttle=throttle, admission=Admission(retry_after_s=9.0))
    untold = Policy(name="untold", client=client, throttle=throttle)
    results = simulate(calls, told, ENGINE)
    assert "rejected:throttled" in results.calls["reason"].to_pylist()
    assert results.attempts.equals(simulate(calls, untold, ENGINE).attempts)


@pytest.mark.parametrize(
    ("retry_after_s", "client", "longest_s"),
    [
        (None, {}, 0.5 + 1.0),
        (0.75, {}, 0.75 + 1.0),
        (9.0, {}, 9.0 + 9.0),
        (9.0, {"heeds_retry_after": False}, 0.5 + 1.0),
        (9.0, {"retry_after_most_s": 8.0}, 0.5 + 1.0),
        (9.0, {"backoff_base_s": 0.0}, 9.0 + 9.0),
        (9.0, {"max_attempts": 10**9}, 5 * 9.0 + 16.0 + 32.0 + 60.0 * (10**9 - 8)),
    ],
)
def test_the_longest_waits_are_those_that_may_come(
    retry_after_s: float | None, client: dict[str, Any], longest_s: float
) -> None:
    policy = Policy(name="worked", client=Client(**CLIENT | client), admission=Admission(retry_after_s=retry_after_s))
    assert longest_waits_s(policy) == longest_s
