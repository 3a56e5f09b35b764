"""Attempts become calls, and show what their clients do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from connectors.rows import attempts_of
from trace_schema.fold import fold


def attempts(*rows: dict[str, Any]) -> Any:
    names = dict.fromkeys(key for row in rows for key in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return attempts_of(columns, np.arange(1, len(rows) + 1), source_format="test", source_file="test").attempts


def attempt(call: str | None, start: float, status: str = "ok", **more: Any) -> dict[str, Any]:
    return {"retry_group": call, "arrival_s": start, "status": status, "prompt_tokens": 10, "e2e_s": 1.0, **more}


def test_attempts_of_a_group_are_one_call_in_order_of_arrival() -> None:
    calls, _ = folded(
        attempts(
            attempt("b", 5.0, output_tokens=7),
            attempt("a", 3.0, "timeout", retry_index=1),
            attempt("a", 1.0, "timeout", retry_index=0),
            attempt("a", 4.5, "ok", retry_index=2, output_tokens=9),
        )
    )
    assert calls["source_call"].to_pylist() == ["a", "b"]
    assert calls["arrival_s"].to_pylist() == [1.0, 5.0]
    assert calls["observed_attempts"].to_pylist() == [3, 1]
    assert calls["observed_status"].to_pylist() == ["ok", "ok"]
    assert calls["observed_e2e_s"].to_pylist() == [4.5, 1.0]
    assert calls["output_tokens"].to_pylist() == [9, 7]
    assert calls["content_id"].to_pylist() == [0, 1]


def test_attempts_without_a_mark_are_calls_of_their_own() -> None:
    calls, _ = folded(attempts(attempt(None, 1.0), attempt(None, 2.0)))
    assert calls["call_id"].to_pylist() == [0, 1]
    assert calls["observed_attempts"].to_pylist() == [1, 1]


def test_an_output_that_was_always_cut_short_is_a_lower_bound() -> None:
    calls, _ = folded(
        attempts(
            attempt("a", 0.0, "timeout", received_tokens=3),
            attempt("a", 2.0, "timeout", received_tokens=5),
            attempt("b", 3.0, "ok", received_tokens=8),
        )
    )
    assert calls["output_tokens"].to_pylist() == [5, 8]
    assert calls["output_censored"].to_pylist() == [True, False]


def test_a_user_who_left_is_not_a_timeout() -> None:
    calls, _ = folded(attempts(attempt("a", 2.0, "cancelled"), attempt("b", 3.0)))
    assert calls["user_cancel_s"].to_pylist() == [1.0, None]
    assert calls["patience_censored"].to_pylist() == [False, True]


def test_equal_bodies_are_one_content() -> None:
    calls, _ = folded(attempts(*(attempt(None, float(i), body_hash=h) for i, h in enumerate(["x", "y", "x", None]))))
    a, b, c, d = calls["content_id"].to_pylist()
    assert a == c
    assert len({a, b, d}) == 3


def test_absolute_times_count_from_the_first_arrival() -> None:
    calls, _ = folded(attempts(attempt("a", 1.7e9 + 5), attempt("b", 1.7e9 + 7)))
    assert calls["arrival_s"].to_pylist() == [0.0, 2.0]


def folded(table: Any) -> Any:
    found = fold(table)
    return found.calls, found.client


def retrying_log(timeout: float, base: float, factor: float, jitter: float, attempts_max: int) -> Any:
    rng = np.random.default_rng(1)
    rows = []
    for call in range(60):
        start = 10.0 * call
        for n in range(attempts_max):
            took = timeout + 0.001 + 0.02 * rng.random()
            rows.append(attempt(str(call), start, "timeout", retry_index=n, e2e_s=took))
            start += took + base * factor**n * (1 - jitter * rng.random())
    return attempts(*rows)


@pytest.mark.parametrize(("timeout", "base", "factor"), [(8.0, 0.5, 2.0), (30.0, 1.0, 1.5), (0.5, 0.2, 3.0)])
def test_the_clients_law_is_read_off_the_log(timeout: float, base: float, factor: float) -> None:
    calls, client = folded(retrying_log(timeout, base, factor, 0.25, 4))
    assert client.timeout_s == timeout
    assert client.max_attempts == 4
    assert client.backoff_base_s == pytest.approx(base, rel=0.03)
    assert client.backoff_factor == factor
    assert client.backoff_jitter == pytest.approx(0.25, abs=0.02)
    assert set(calls["client_timeout_s"].to_pylist()) == {timeout}


def test_a_log_without_failures_says_nothing_of_its_clients() -> None:
    _, client = folded(attempts(*(attempt(str(i), float(i)) for i in range(20))))
    assert client.timeout_s is None
    assert client.max_attempts is None
    assert client.retries == 0


def test_failures_of_a_log_that_knows_no_retries_do_not_say_that_there_are_none() -> None:
    rows = [{**attempt("", float(i), "error"), "retry_group": None} for i in range(20)]
    assert fold(attempts(*rows)).client.max_attempts is None


def test_timeouts_that_do_not_agree_are_not_one_timeout() -> None:
    rows = [attempt(str(i), float(i), "timeout", e2e_s=1.0 + i) for i in range(20)]
    assert fold(attempts(*rows)).client.timeout_s is None
