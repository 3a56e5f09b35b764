"""Users who leave are told from clients that time out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.incidents import Incident, tell
from tests.trace_schema.test_joins import log, sent, with_prompts
from trace_schema.fold import fold
from trace_schema.fold.leaving import clusters


def gone(start: float, lasted: float, **more: Any) -> dict[str, Any]:
    return sent(start, e2e_s=lasted, cancel_reason="client_disconnect", **more)


def statuses(*rows: dict[str, Any]) -> list[str]:
    return list(fold(log(*rows)).calls["observed_status"].to_pylist())


def test_who_waited_as_long_as_announced_timed_out() -> None:
    rows = [gone(0.0, 4.99, client_timeout_s=5.0), gone(10.0, 2.0, client_timeout_s=5.0)]
    assert statuses(*rows) == ["timeout", "cancelled"]


def test_who_tried_again_had_not_left() -> None:
    rows = [gone(0.0, 2.0, retry_index=0), sent(2.5, "ok", retry_index=1)]
    folded = fold(log(*rows))
    assert folded.account.departures.timed_out == 1
    assert folded.calls["observed_status"].to_pylist() == ["ok"]


def test_three_durations_at_one_value_are_a_timeout() -> None:
    lasted = [5.0, 5.01, 5.003, 0.7, 3.1]
    assert statuses(*(gone(20.0 * n, s) for n, s in enumerate(lasted))) == ["timeout"] * 3 + ["cancelled"] * 2
    account = fold(log(*(gone(20.0 * n, s) for n, s in enumerate(lasted)))).account
    assert account.departures.timeouts_s == [5.0]


def test_streams_that_time_out_and_are_never_tried_again_are_noticed() -> None:
    others = [gone(100.0, 5.0, retry_index=0), sent(105.5, "ok", retry_index=1)]
    streams = [gone(20.0 * n, 5.0, stream=True, client_timeout_s=5.0) for n in range(3)]
    assert fold(log(*streams, *others)).client.streams_retried == "never"
    assert fold(log(*streams[1:], *others)).client.streams_retried is None, "two are too few"
    assert fold(log(*streams)).client.streams_retried is None, "nothing is tried again"
    again = [gone(40.0, 5.0, retry_index=0, stream=True), sent(45.5, "ok", retry_index=1, stream=True)]
    assert fold(log(*streams, *others, *again)).client.streams_retried is None


def test_two_are_not() -> None:
    assert statuses(*(gone(20.0 * n, s) for n, s in enumerate([5.0, 5.01, 0.7]))) == ["cancelled"] * 3


def test_an_attempt_of_unknown_length_is_not_guessed() -> None:
    account = fold(log(gone(0.0, 1.0), {**gone(5.0, 1.0), "e2e_s": None})).account
    assert (account.departures.left, account.departures.untold) == (1, 1)


@pytest.mark.parametrize("seed", range(20))
def test_users_who_leave_whenever_they_like_do_not_cluster(seed: int) -> None:
    assert clusters(np.random.default_rng(seed).exponential(3.0, 300)) == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("timeout", [0.5, 2.0, 10.0, 60.0])
def test_timeouts_are_found_among_users_who_leave(seed: int, timeout: float) -> None:
    rng = np.random.default_rng(seed)
    left, timed_out = rng.exponential(timeout / 2, 100), timeout + rng.exponential(0.01, 30)
    (found,) = clusters(np.concatenate([left, timed_out]))
    assert found.timeout_s == timeout
    assert found.holds(timed_out).mean() > 0.98


def test_clients_of_two_kinds_have_two_timeouts() -> None:
    rng = np.random.default_rng(1)
    lasted = np.concatenate([t + rng.exponential(0.01, 20) for t in (5.0, 30.0)])
    assert sorted(cluster.timeout_s for cluster in clusters(lasted)) == [5.0, 30.0]


def test_whole_seconds_of_a_coarse_log_are_no_timeouts() -> None:
    lasted = np.ceil(np.random.default_rng(2).exponential(6.0, 200))
    assert clusters(lasted) == []


@pytest.mark.parametrize("timeout", [2.0, 5.0, 30.0])
@pytest.mark.parametrize("without", [(), ("client_timeout_s",), ("client_timeout_s", "retry_index")])
def test_all_who_left_are_found_and_no_timeout_is_taken_for_one(timeout: float, without: tuple[str, ...]) -> None:
    told = tell(Incident(seed=7, timeout_s=timeout, leaving_share=0.2))
    folded = fold(with_prompts(told.table("gateway", *without)))
    assert folded.client.timeout_s == timeout
    outcomes: dict[tuple[str, str], int] = {}
    of = dict(zip(folded.call.tolist(), told.call, strict=True))
    for call, status in enumerate(folded.calls["observed_status"].to_pylist()):
        pair = (told.outcomes[of[call]], status)
        outcomes[pair] = outcomes.get(pair, 0) + 1
    assert ("timeout", "cancelled") not in outcomes
    # Who leaves at the very moment of a timeout cannot be told from it.
    assert outcomes[("left", "cancelled")] >= 0.95 * told.outcomes.count("left")
