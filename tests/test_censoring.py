"""What a log cut short is drawn from the log itself: the truth comes back, which its bounds alone do not give."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors import synthetic
from replay.censoring import (
    LEAVERS_LEAST,
    Drawn,
    Survival,
    put,
    uncensored,
    uniform,
)
from trace_schema.calls import CALLS
from trace_schema.check import check_calls, conform

N = 20_000
Floats = npt.NDArray[np.float64]


def calls_of(**columns: Any) -> pa.Table:
    n = len(next(iter(columns.values())))
    fields: dict[str, Any] = {
        "call_id": np.arange(n),
        "content_id": np.arange(n),
        "arrival_s": np.arange(n) * 0.1,
        "priority": np.zeros(n, np.int32),
        "prompt_tokens": np.full(n, 100),
        "output_tokens": np.full(n, 50),
        "output_censored": np.zeros(n, bool),
        "patience_censored": np.zeros(n, bool),
        "observed_attempts": np.ones(n, np.int32),
    }
    return check_calls(conform(pa.table(fields | columns), CALLS))


def cut_outputs(seed: int = 0) -> tuple[pa.Table, Floats]:
    """A log whose clients gave up before long outputs had come, and the outputs that it does not show.

    Short prompts have short outputs, long ones long outputs; how many tokens came in time depends on neither.
    """
    random = np.random.default_rng(seed)
    long = random.random(N) < 0.5
    truth = np.ceil(random.exponential(np.where(long, 300.0, 60.0)))
    received = np.floor(random.exponential(250.0, N))
    cut = received < truth
    seen = np.where(cut, np.maximum(received, 1.0), truth)
    prompt = np.where(long, random.integers(2_000, 8_000, N), random.integers(10, 500, N))
    return calls_of(prompt_tokens=prompt, output_tokens=seen.astype(np.int64), output_censored=cut), truth


def column(calls: pa.Table, name: str) -> Floats:
    return np.asarray(calls[name].cast(pa.float64()).fill_null(np.inf))


def shares_longer(values: Floats, moments: Floats) -> Floats:
    return np.asarray([np.mean(values > m) for m in moments])


def sampling_error(shares: Floats, n: int) -> Floats:
    """Four standard errors of a share, of `n` observations and of as many draws."""
    return np.asarray(4.0 * np.sqrt(2.0 * shares * (1.0 - shares) / n)) + 1e-3


@pytest.mark.parametrize("kind", ["short", "long"])
def test_drawn_outputs_have_the_true_law_for_prompts_of_each_length_and_bounds_have_not(kind: str) -> None:
    log, truth = cut_outputs()
    replayed, drawn = uncensored(log, seed=1)
    those = (column(log, "prompt_tokens") > 1_000) == (kind == "long")
    moments = np.quantile(truth[those], [0.1, 0.25, 0.5, 0.75, 0.9, 0.97])
    true = shares_longer(truth[those], moments)
    error = sampling_error(true, int(those.sum()))
    again, naive = (shares_longer(column(t, "output_tokens")[those], moments) for t in (replayed, log))
    assert (np.abs(again - true) < error).all()
    assert (np.abs(naive - true) > 2.0 * error).any()
    assert drawn.outputs == int(column(log, "output_censored").sum())


def test_the_mean_of_the_truth_lies_in_the_interval_of_the_replays_and_not_near_that_of_the_log() -> None:
    log, truth = cut_outputs(seed=3)
    means = [column(uncensored(log, seed)[0], "output_tokens").mean() for seed in range(20)]
    low, high = np.mean(means) - 4 * truth.std() / N**0.5, np.mean(means) + 4 * truth.std() / N**0.5
    assert low < truth.mean() < high
    assert column(log, "output_tokens").mean() < 0.8 * truth.mean()


def impatient(seed: int = 0, slow: float = 1.0) -> tuple[pa.Table, Floats]:
    """A log of users who leave when they have waited long enough, and how long that is for each of them."""
    random = np.random.default_rng(seed)
    patience = 40.0 * random.weibull(1.5, N)
    service = slow * random.exponential(10.0, N)
    left = patience < service
    return calls_of(
        user_cancel_s=pa.array(patience, mask=~left),
        patience_censored=~left,
        observed_status=np.where(left, "cancelled", "ok"),
        observed_e2e_s=pa.array(service, mask=left),
    ), patience


def test_drawn_patience_has_the_true_law_and_leaves_tell_only_of_the_impatient() -> None:
    log, truth = impatient()
    replayed, drawn = uncensored(log, seed=5)
    moments = np.quantile(truth, [0.05, 0.1, 0.25, 0.5, 0.75])
    true = shares_longer(truth, moments)
    again, naive = (shares_longer(column(t, "user_cancel_s"), moments) for t in (replayed, log))
    assert (np.abs(again - true) < 3.0 * sampling_error(true, N)).all()
    assert (naive - true > 0.2).any()
    assert drawn.patience == replayed.num_rows - replayed["user_cancel_s"].null_count - int(
        (~column(log, "patience_censored").astype(bool)).sum()
    )


def test_a_slower_service_loses_as_many_users_as_the_truth_says() -> None:
    log, truth = impatient(seed=7)
    service = 3.0 * np.random.default_rng(8).exponential(10.0, N)
    true = np.mean(truth < service)
    found = np.mean(column(uncensored(log, seed=2)[0], "user_cancel_s") < service)
    naive = np.mean(column(log, "user_cancel_s") < service)
    assert found == pytest.approx(true, abs=0.01)
    assert abs(naive - true) > 0.1


def test_who_was_served_is_not_drawn_to_leave_before() -> None:
    log, _ = impatient()
    drawn = column(uncensored(log, seed=1)[0], "user_cancel_s")
    served = np.asarray(log["observed_e2e_s"].is_valid())
    assert (drawn[served] > column(log, "observed_e2e_s")[served]).all()
    assert np.array_equal(drawn[~served], column(log, "user_cancel_s")[~served])


def test_nobody_is_drawn_to_leave_later_than_users_were_seen_to() -> None:
    left = np.arange(1.0, 21.0)
    n = 500
    log = calls_of(
        user_cancel_s=pa.array(np.append(left, np.zeros(n)), mask=np.append(np.zeros(20, bool), np.ones(n, bool))),
        patience_censored=np.append(np.zeros(20, bool), np.ones(n, bool)),
        observed_e2e_s=pa.array(np.full(n + 20, 20.0), mask=np.append(np.ones(20, bool), np.zeros(n, bool))),
    )
    replayed, drawn = uncensored(log, seed=0)
    assert replayed["user_cancel_s"].null_count == n
    assert drawn == Drawn()


def test_a_log_in_which_hardly_anybody_leaves_says_nothing_of_patience() -> None:
    log, _ = impatient()
    few = np.flatnonzero(np.asarray(log["user_cancel_s"].is_valid()))[: LEAVERS_LEAST - 1]
    stays = np.flatnonzero(np.asarray(log["user_cancel_s"].is_null()))[:200]
    part = log.take(np.sort(np.append(few, stays)))
    part = put(part, "call_id", pa.array(np.arange(part.num_rows)))
    assert uncensored(part, seed=0)[0].equals(part)


def test_a_client_that_timed_out_is_known_to_have_waited_so_long() -> None:
    log, _ = impatient()
    gave_up = np.arange(N) % 2 == 0
    log = put(
        log,
        "user_cancel_s",
        pa.array(column(log, "user_cancel_s"), mask=gave_up | ~np.isfinite(column(log, "user_cancel_s"))),
    )
    log = put(log, "patience_censored", pa.array(np.asarray(log["user_cancel_s"].is_null())))
    log = put(
        log,
        "observed_e2e_s",
        pa.array(column(log, "observed_e2e_s"), mask=gave_up | ~np.isfinite(column(log, "observed_e2e_s"))),
    )
    log = put(log, "observed_status", pa.array(np.where(gave_up, "timeout", "ok")))
    log = put(log, "client_timeout_s", pa.array(np.full(N, 15.0)))
    drawn = column(uncensored(log, seed=1)[0], "user_cancel_s")[gave_up]
    assert (drawn > 15.0).all()
    assert np.isfinite(drawn).any()


def test_beyond_the_longest_whole_output_the_law_goes_on_exponentially() -> None:
    random = np.random.default_rng(4)
    truth = np.ceil(random.exponential(200.0, N))
    limit = 150  # of a gateway that stops every stream there
    cut = truth > limit
    log = calls_of(output_tokens=np.where(cut, limit, truth).astype(np.int64), output_censored=cut)
    replayed, drawn = uncensored(log, seed=1)
    assert drawn.outputs == drawn.outputs_in_tail == cut.sum()
    assert column(replayed, "output_tokens").mean() == pytest.approx(truth.mean(), rel=0.03)


def test_an_output_is_not_drawn_beyond_the_limit_of_its_client() -> None:
    log, _ = cut_outputs()
    seen = column(log, "output_tokens")
    log = put(log, "max_tokens", pa.array(np.maximum(seen, 100.0).astype(np.int32)))
    assert (column(uncensored(log, seed=1)[0], "output_tokens") <= np.maximum(seen, 100.0)).all()


def test_a_log_without_a_whole_output_keeps_its_bounds_and_says_so() -> None:
    log = calls_of(output_tokens=np.arange(1, 11), output_censored=np.ones(10, bool))
    assert uncensored(log, seed=0) == (log, Drawn(outputs_kept=10))


def test_longer_prompts_than_any_with_a_whole_output_are_drawn_like_the_longest() -> None:
    prompt = np.append(np.full(400, 100), np.full(40, 9_000))
    log = calls_of(
        prompt_tokens=prompt, output_tokens=np.append(np.arange(1, 401), np.full(40, 5)), output_censored=prompt > 100
    )
    drawn = column(uncensored(log, seed=0)[0], "output_tokens")[400:]
    assert (drawn > 5).all()
    assert drawn.mean() == pytest.approx(200.0, rel=0.3)


def test_a_trace_without_bounds_is_replayed_as_it_is() -> None:
    calls = synthetic.calls("high_cancel_rate", calls=200)
    assert uncensored(calls, seed=9) == (calls, Drawn())


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**50))
def test_a_draw_depends_on_seed_purpose_and_call_alone(seed: int, purpose: int, call: int) -> None:
    def mixed(x: int) -> int:
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    golden = 0x9E3779B97F4A7C15
    x = mixed((golden + seed) % 2**64)
    for part in (purpose, call, 0):
        x = mixed((x + part * golden) % 2**64)
    (among,) = uniform(seed, purpose, np.array([7, call]))[1:]
    assert among == ((x >> 11) + 0.5) * 2.0**-53


def test_seeds_draw_apart_and_equal_seeds_alike() -> None:
    log, _ = cut_outputs()
    assert uncensored(log, seed=1)[0].equals(uncensored(log, seed=1)[0])
    assert not uncensored(log, seed=1)[0].equals(uncensored(log, seed=2)[0])


def test_a_call_is_drawn_alike_whatever_is_around_it() -> None:
    numbers = np.arange(10)
    assert np.array_equal(uniform(3, 101, numbers)[4:], uniform(3, 101, numbers[4:]))


def test_the_estimate_is_that_of_the_textbook() -> None:
    # Remission times of the 6-MP group, Freireich et al. (1963), as in Kalbfleisch and Prentice, section 1.1.
    times = np.array([6, 6, 6, 7, 10, 13, 16, 22, 23, 6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35], dtype=np.float64)
    whole = np.arange(21) < 9
    law = Survival.estimated(times, whole)
    assert law.times.tolist() == [6, 7, 10, 13, 16, 22, 23]
    assert law.share == pytest.approx([0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448], abs=5e-4)
