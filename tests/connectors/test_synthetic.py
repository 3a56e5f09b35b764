"""Synthetic traffic: each law is what docs/synthetic.md says, each draw stands alone, nothing passes as observed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import replay
from connectors import synthetic
from connectors.synthetic.laws import LAWS, law_of
from connectors.synthetic.options import explained, read, written
from replay.cli import cli
from replay.config import layered, log_settings
from replay.describe import describe
from replay.ingest import ingest, lay_users, read_trace, write_trace
from replay.policies.catalogue import resolve
from replay.policies.knobs import Client, Policy
from replay.profiles.loader import find_profile
from replay.runner import make_plan
from scripts.synthetic_page import synthetic_page
from trace_schema.check import check_calls
from trace_schema.errors import BadConfig, UnknownName

N = 50_000
H100 = "h100-sxm/llama-3.1-8b/tp1/bf16/vllm"
BENCHMARK = {
    "low_cancel_rate": 0.06,
    "moderate_cancel_rate": 0.18,
    "high_cancel_rate": 0.35,
    "long_output_cancel_heavy": 0.25,
    "kv_pressure_cancel_heavy": 0.22,
    "bursty_disconnects": 0.20,
}
"""Its workloads and their cancel rates, as it publishes them."""


def arrivals(name: str = "poisson", **options: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(synthetic.calls(name, **{"calls": N, **options})["arrival_s"])


def column(name: str, **options: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(synthetic.calls("poisson", **{"calls": N, **options})[name], dtype=np.float64)


def dispersion(times: np.ndarray[Any, Any], window_s: float) -> float:
    """Variance over mean of the counts in whole windows."""
    counts = np.bincount((times / window_s).astype(np.int64))[:-1]
    return float(counts.var() / counts.mean())


@pytest.mark.parametrize("cv", [0.0, 0.4, 1.0, 3.0])
def test_gaps_have_the_rate_and_the_cv_asked_for(cv: float) -> None:
    gaps = np.diff(arrivals(rate_per_s=20.0, arrival_cv=cv))
    assert gaps.mean() == pytest.approx(0.05, rel=1e-9 + 5 * cv / N**0.5)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05, abs=1e-9)


def test_counts_of_a_poisson_process_are_dispersed_as_their_mean_and_of_others_as_their_cv_squared() -> None:
    assert dispersion(arrivals(rate_per_s=20.0), 1.0) == pytest.approx(1.0, abs=0.1)
    crowded = [dispersion(arrivals(rate_per_s=20.0, arrival_cv=3.0, seed=s), 20.0) for s in range(8)]
    assert np.mean(crowded) == pytest.approx(9.0, rel=0.2)
    assert dispersion(arrivals(rate_per_s=20.0, arrival_cv=0.3), 10.0) < 0.2


@pytest.mark.parametrize("cv", [0.0, 1.0, 5.0])
def test_the_rate_holds_from_the_first_second_on(cv: float) -> None:
    counts = [np.searchsorted(arrivals(calls=400, rate_per_s=20.0, arrival_cv=cv, seed=s), 0.5) for s in range(300)]
    assert np.mean(counts) == pytest.approx(10.0, abs=0.1 + 4 * cv * (10 / 300) ** 0.5)


def test_an_overload_multiplies_the_rate_and_is_a_phase_of_the_trace() -> None:
    options = {"calls": 20_000, "rate_per_s": 12.0, "seed": 3, "overload_s": 50.0, "overload_factor": 3.0}
    trace = ingest(["synthetic:overload"], options=options | {"overload_start_s": 80.0, "recovery_factor": 0.5})
    before, during, after = trace.phases
    assert [(p.name, p.start_s, p.end_s) for p in trace.phases] == [
        ("before", 0.0, 80.0),
        ("during", 80.0, 130.0),
        ("after", 130.0, None),
    ]
    times = np.asarray(trace.calls["arrival_s"])
    for phase, per_s, seconds in ((before, 12.0, 80.0), (during, 36.0, 50.0), (after, 6.0, times[-1] - 130.0)):
        assert phase.holds(times).sum() / seconds == pytest.approx(per_s, abs=5 * (per_s / seconds) ** 0.5)


def test_bursts_come_when_they_are_said_to_and_multiply_the_rate() -> None:
    bursts = {"burst_every_s": 20.0, "burst_s": 4.0, "burst_factor": 5.0}
    times = arrivals(rate_per_s=10.0, **bursts)
    inside = times % 20.0 >= 16.0
    periods = times[-1] / 20.0
    assert inside.sum() / (4.0 * periods) == pytest.approx(50.0, rel=0.03)
    assert (~inside).sum() / (16.0 * periods) == pytest.approx(10.0, rel=0.03)
    assert (arrivals(rate_per_s=10.0, quiet_factor=0.0, **bursts) % 20.0 >= 16.0 - 1e-9).all()


def test_random_bursts_have_the_mean_rate_of_periodic_ones_and_crowd_more() -> None:
    bursts = {"burst_every_s": 10.0, "burst_s": 2.0, "burst_factor": 6.0, "rate_per_s": 10.0}
    periodic, random = arrivals(**bursts), arrivals(burst_law="random", **bursts)
    assert N / periodic[-1] == pytest.approx(20.0, rel=0.02)
    assert N / random[-1] == pytest.approx(20.0, rel=0.15)
    assert dispersion(random, 10.0) > 5.0 * dispersion(periodic, 10.0)


def test_states_take_their_share_of_time_and_have_their_rate() -> None:
    times = arrivals(rate_per_s=10.0, states="1@40,6@10,0@20")
    rate = N / times[-1] / 10.0
    assert rate == pytest.approx((1 * 40 + 6 * 10) / 70, rel=0.1)
    assert dispersion(times, 20.0) > 20.0
    gaps = np.diff(times)
    silent = gaps[gaps > 3.0]
    assert silent.mean() - 3.0 == pytest.approx(20.0, rel=0.25)


def test_an_mmpp_crowds_as_its_formula_says() -> None:
    # Index of dispersion of a two-state MMPP over long windows (Fischer and Meier-Hellstern, 1993, eq. 4).
    low, high, calm_s, burst_s = 10.0, 50.0, 8.0, 2.0
    into, out = 1.0 / calm_s, 1.0 / burst_s
    limit = 1.0 + 2.0 * (low - high) ** 2 * into * out / ((into + out) ** 2 * (low * out + high * into))
    seen = [dispersion(arrivals(rate_per_s=10.0, states="1@8,5@2", seed=s), 100.0) for s in range(12)]
    assert np.mean(seen) == pytest.approx(limit, rel=0.2)


def test_a_day_has_its_peak_and_its_trough_where_they_are_said_to_be() -> None:
    day = {"daily_swing": 0.8, "daily_period_s": 1_000.0, "daily_peak_s": 300.0}
    times = arrivals(rate_per_s=20.0, calls=None, duration_s=3_000.0, **day) % 1_000.0
    counts = np.histogram(times, 20, (0.0, 1_000.0))[0]
    middles = np.arange(25.0, 1_000.0, 50.0)
    expected = 1.0 + 0.8 * np.cos(2.0 * np.pi * (middles - 300.0) / 1_000.0)
    assert counts / counts.mean() == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(
    ("law", "share"),
    [
        ("exponential:30", lambda t: np.exp(-t / 30.0)),
        ("weibull:mean=30,shape=2", lambda t: np.exp(-((t * (np.pi / 4.0) ** 0.5 / 30.0) ** 2))),
        ("lognormal:mean=30,cv=1", lambda t: stats.lognorm(np.log(2.0) ** 0.5, scale=30.0 / 2.0**0.5).sf(t)),
        (
            "mixture:0.8*exponential:10+0.2*exponential:110",
            lambda t: 0.8 * np.exp(-t / 10.0) + 0.2 * np.exp(-t / 110.0),
        ),
    ],
)
def test_patience_follows_its_law(law: str, share: Any) -> None:
    leaves = synthetic.calls("poisson", calls=N, patience_s=law)["user_cancel_s"].to_numpy()
    assert stats.kstest(leaves, lambda t: 1.0 - share(t)).pvalue > 0.01


def test_users_leave_with_so_many_tokens_of_a_stream_and_wait_for_what_comes_at_once() -> None:
    options = {"user_cancel_rate": 0.4, "user_cancel_tokens": "geometric:30", "stream_share": 0.5}
    calls = synthetic.calls("poisson", calls=N, **options)
    leaves = np.asarray(calls["user_cancel_tokens"].is_valid())
    streamed = np.asarray(calls["stream"])
    assert not leaves[~streamed].any()
    assert leaves[streamed].mean() == pytest.approx(0.4, abs=0.02)
    assert pc.mean(calls["user_cancel_tokens"]).as_py() == pytest.approx(30.0, rel=0.05)
    assert calls["user_cancel_s"].null_count == N
    said = synthetic.make("poisson", options).added.says
    assert "40% of the users leave, with geometric:mean=30 tokens of a stream" in said


def test_a_duration_ends_the_trace_and_the_same_calls_begin_it() -> None:
    whole = arrivals(rate_per_s=20.0)
    cut = arrivals(rate_per_s=20.0, calls=None, duration_s=100.0)
    assert cut[-1] < 100.0
    assert len(cut) == pytest.approx(2_000, abs=5 * 2_000**0.5)
    assert np.array_equal(cut, whole[: len(cut)])


LAW_MOMENTS = [
    ("350", 350.0, 0.0),
    ("uniform:low=100,high=500", 300.0, 400.0 / 12**0.5),
    ("exponential:mean=400", 400.0, 400.0),
    ("geometric:mean=60", 60.0, (60.0 * 59.0) ** 0.5),
    ("lognormal:mean=1200,cv=0.8", 1200.0, 960.0),
    ("lognormal:1200,0.8", 1200.0, 960.0),
    ("weibull:mean=400,shape=2", 400.0, 400.0 * (4.0 / np.pi - 1.0) ** 0.5),
    ("discrete:100=3,500=1", 200.0, 30_000**0.5),
    ("mixture:3*100+1*uniform:400,600", 200.0, (0.25 * 200**2 / 12 + 0.75 * 100**2 + 0.25 * 300**2) ** 0.5),
    ("quantiles:0=0,0.5=100,1=500", 175.0, (0.5 * 100**2 / 3 + 0.5 * (500**3 - 100**3) / 1200 - 175**2) ** 0.5),
]


@pytest.mark.parametrize(("law", "mean", "deviation"), LAW_MOMENTS)
def test_lengths_have_the_mean_and_the_deviation_of_their_law(law: str, mean: float, deviation: float) -> None:
    for name in ("prompt_tokens", "output_tokens"):
        lengths = column(name, **{name: law})
        assert lengths.mean() == pytest.approx(mean, abs=0.5 + 5 * deviation / N**0.5)
        assert lengths.std() == pytest.approx(deviation, rel=0.04, abs=0.5)


def test_lengths_are_whole_at_least_one_and_cut_at_their_maximum() -> None:
    lengths = column("output_tokens", output_tokens="exponential:mean=2", output_tokens_max=5)
    assert set(lengths) == {1.0, 2.0, 3.0, 4.0, 5.0}
    assert set(column("output_tokens", output_tokens="geometric:mean=1")) == {1.0}


@given(st.sampled_from(sorted(LAWS)), st.lists(st.floats(1.0, 1e6), min_size=3, max_size=3))
def test_a_law_is_read_as_it_is_written(name: str, numbers: list[float]) -> None:
    low, high, more = sorted(numbers)
    text = {
        "constant": f"{low!r}",
        "uniform": f"uniform:low={low!r},high={high!r}",
        "lognormal": f"lognormal:{high!r},{min(low, 100.0)!r}",
        "weibull": f"weibull:{high!r},{min(low, 100.0)!r}",
        "discrete": f"discrete:{low!r}={more!r},{high + 1.0!r}=0,{more + 2.0!r}=1e+3",
        "mixture": f"mixture:{low!r}*exponential:{high!r}+1e+3*uniform:low={low!r},high={more!r}+2*7",
        "quantiles": f"quantiles:0={low!r},0.25={high!r},1={more!r}",
    }.get(name, f"{name}:mean={low!r}")
    once = law_of(text)
    again = law_of(str(once))
    assert type(once) is type(again) is LAWS[name]
    draws = [law.draw(np.random.default_rng(0), 10) for law in (once, again)]
    assert draws[0] == pytest.approx(draws[1], rel=1e-9)


def test_equal_options_give_equal_bytes_and_another_seed_gives_another_trace(tmp_path: Path) -> None:
    options = {"user_cancel_rate": 0.2, "prefixes": 5, "burst_every_s": 10, "burst_law": "random", "stream_share": 0.5}
    for name, seed in (("a", 4), ("b", 4), ("c", 5)):
        write_trace(ingest(["synthetic:poisson"], options=options | {"seed": seed}), str(tmp_path / name))
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b
    assert a != c


ALONE = {
    "rate_per_s": (30.0, {"arrival_s"}),
    "arrival_cv": (2.0, {"arrival_s"}),
    "prompt_tokens": ("uniform:10,90", {"prompt_tokens"}),
    "output_tokens": ("uniform:10,90", {"output_tokens"}),
    "user_cancel_rate": (0.4, {"user_cancel_s"}),
    "user_cancel_s": ("uniform:1,4", {"user_cancel_s"}),
    "patience_s": (20, {"user_cancel_s"}),
    "client_timeout_s": (9.0, {"client_timeout_s"}),
    "stream_share": (0.7, {"stream"}),
    "prefix_share": (0.2, {"prompt_tokens", "block_hashes"}),
    "prefixes": (9, {"block_hashes"}),
}


@pytest.mark.parametrize("option", ALONE)
def test_another_law_leaves_every_other_draw_alone(option: str) -> None:
    base = {
        "calls": 5_000,
        "user_cancel_rate": 0.2,
        "user_cancel_s": "exponential:5",
        "prefixes": 4,
        "stream_share": 0.5,
    }
    value, moved = ALONE[option]
    before, after = synthetic.calls(**base), synthetic.calls(**{**base, option: value})
    assert {name for name in before.column_names if not before[name].equals(after[name])} == moved


def test_a_higher_rate_adds_users_who_leave_and_moves_none_of_those_before() -> None:
    few, many = (synthetic.calls("poisson", calls=N, user_cancel_rate=p)["user_cancel_s"] for p in (0.1, 0.3))
    leaves = np.asarray(few.is_valid())
    assert np.asarray(many.is_valid())[leaves].all()
    assert few.filter(pa.array(leaves)).equals(many.filter(pa.array(leaves)))


@pytest.mark.parametrize("rate", [0.0, 0.06, 0.5, 1.0])
def test_users_leave_with_the_probability_asked_for(rate: float) -> None:
    calls = synthetic.calls("poisson", calls=N, user_cancel_rate=rate, user_cancel_s="exponential:7")
    leaves = calls["user_cancel_s"].drop_null()
    assert len(leaves) == pytest.approx(N * rate, abs=5 * (N * rate * (1 - rate)) ** 0.5)
    if rate:
        assert pc.mean(leaves).as_py() == pytest.approx(7.0, rel=5 / len(leaves) ** 0.5)
    assert not pc.any(calls["patience_censored"]).as_py()


def test_a_disconnect_takes_the_share_of_those_who_came_just_before() -> None:
    calls = synthetic.calls("poisson", calls=N, disconnect_every_s=20.0, disconnect_window_s=3.0, disconnect_share=0.6)
    arrival = np.asarray(calls["arrival_s"])
    leaves = calls["user_cancel_s"].to_numpy()
    near = arrival % 20.0 >= 17.0
    assert np.isnan(leaves[~near]).all()
    assert np.mean(~np.isnan(leaves[near])) == pytest.approx(0.6, abs=0.03)
    moments = (arrival + leaves)[~np.isnan(leaves)] / 20.0
    assert moments == pytest.approx(np.round(moments))


def test_patience_makes_every_user_leave_at_the_earlier_of_his_reasons() -> None:
    alone = synthetic.calls("poisson", calls=2_000, user_cancel_rate=0.5, user_cancel_s="exponential:7")
    both = synthetic.calls(
        "poisson", calls=2_000, user_cancel_rate=0.5, user_cancel_s="exponential:7", patience_s="exponential:9"
    )
    first = alone["user_cancel_s"].fill_null(float("inf")).to_numpy()
    leaves = both["user_cancel_s"].to_numpy()
    assert (leaves <= first).all()
    assert leaves.mean() == pytest.approx(0.5 * 9.0 + 0.5 / (1 / 7 + 1 / 9), rel=0.15)


@pytest.mark.parametrize("name", BENCHMARK)
def test_the_benchmarks_workloads_cancel_at_its_rates_while_the_response_is_written(name: str) -> None:
    assert synthetic.workload(name).options["user_cancel_rate"] == BENCHMARK[name]
    calls = synthetic.calls(name)
    results = replay.simulate(calls, resolve("no_cancel", Policy(name="base")), find_profile(H100))
    leaves = np.asarray(calls["arrival_s"]) + calls["user_cancel_s"].fill_null(np.inf).to_numpy()
    executions = results.executions.sort_by("call_id")
    first, end = (executions[key].to_numpy() for key in ("first_output_s", "end_s"))
    left = np.isfinite(leaves)
    assert np.mean((first < leaves) & (leaves < end), where=left) > 0.8
    most = pc.max(results.timeline["used_blocks"]).as_py() / find_profile(H100).engine.num_blocks
    preempted = pc.sum(executions["preemptions"]).as_py()
    assert (most > 0.99, preempted > 0) == ((True, True) if name == "kv_pressure_cancel_heavy" else (False, False))


def test_the_overload_is_one_that_cancellation_alone_does_not_survive() -> None:
    made = synthetic.make("overload", {})
    base = Policy(name="base", client=Client(max_attempts=made.added.max_attempts or 1))
    after = pc.greater(made.calls["arrival_s"], 200.0)
    shares = {}
    for policy in ("cancel", "coalesce"):
        outcome = replay.simulate(made.calls, resolve(policy, base), find_profile(H100)).calls["outcome"]
        shares[policy] = np.mean(np.asarray(pc.equal(outcome.filter(after), "delivered")))
    assert shares["cancel"] < 0.2
    assert shares["coalesce"] > 0.95


def test_shared_prefixes_are_found_in_the_engines_cache() -> None:
    calls = synthetic.calls("poisson", calls=300, prefixes=3, prefix_tokens=520, prefix_share=0.5, rate_per_s=2.0)
    results = replay.simulate(calls, resolve("cancel", Policy(name="base")), find_profile(H100))
    cached = results.executions.sort_by("call_id")["cached_prompt_tokens"].to_numpy()
    shares = np.asarray(calls["block_hashes"].is_valid())
    assert shares.mean() == pytest.approx(0.5, abs=0.15)
    assert set(cached[~shares]) == {0}
    assert set(cached[shares]) == {0, 512}
    assert (cached[shares] == 0).sum() <= 6


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A log of lengths and times alone, as public traces are."""
    path = tmp_path / "public.csv"
    rows = (f"{0.5 * k},{100 + 7 * k % 300},{5 + k % 40}" for k in range(2_000))
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(rows))
    return str(path)


LAID = {"user_cancel_rate": 0.1, "client_timeout_s": 30, "max_attempts": 3, "seed": 1}


def test_users_laid_over_a_log_change_nothing_else(log: str, tmp_path: Path) -> None:
    plain, laid = ingest([log]), ingest([log], synthetic=LAID)
    mine = ["user_cancel_s", "client_timeout_s", "patience_censored"]
    assert laid.calls.drop_columns(mine).equals(plain.calls.drop_columns(mine))
    assert laid.report == plain.report
    assert laid.client == plain.client
    assert len(laid.calls["user_cancel_s"].drop_null()) == pytest.approx(200, abs=60)
    assert set(laid.calls["client_timeout_s"].to_pylist()) == {30.0}
    write_trace(laid, str(tmp_path / "trace.parquet"))
    again = read_trace(str(tmp_path / "trace.parquet"))
    assert again.about == laid.about
    assert lay_users(plain, again.about.added.options).calls.equals(again.calls)  # type: ignore[union-attr]


def test_what_is_synthetic_is_said_and_never_passes_as_the_logs_own(log: str, profile_file: str) -> None:
    trace = ingest([log], synthetic=LAID)
    text = describe(trace).text()
    assert "synthetic       users: made with seed 1, not observed" in text
    assert "10% of the users leave, exponential:mean=10 s after they ask" in text
    shown = log_settings(trace.client, trace.about.added)
    assert shown == {"client": {"max_attempts": 3}}
    asked = {"profile": profile_file, "policies": ["cancel"], "as_logged": "cancel"}
    experiment, sources = layered([("log", shown), ("argument", asked)])
    assert sources["client.max_attempts"] == (3, "log")
    plan = make_plan(experiment, sources, trace)
    assert plan.experiment.as_logged is None
    assert "cancel cannot be compared with a log: users of this trace are synthetic" in plan.notes


def test_a_log_with_retries_is_not_held_against_a_run_with_synthetic_users(log_file: str) -> None:
    plain, laid = ingest([log_file]), ingest([log_file], synthetic={"user_cancel_rate": 0.1})
    assert log_settings(plain.client, plain.about.added)["as_logged"] == "cancel"
    assert "as_logged" not in log_settings(laid.client, laid.about.added)


def test_what_the_log_shows_is_not_overlaid_unless_asked(log_file: str) -> None:
    for option, words in (("client_timeout_s", "how long its clients wait"), ("max_attempts", "15 retries")):
        with pytest.raises(BadConfig, match=f"the log shows {words} already; leave that out, or put replace=true"):
            ingest([log_file], synthetic={option: 5})
    replaced = ingest([log_file], synthetic={"client_timeout_s": 5, "replace": True})
    assert set(replaced.calls["client_timeout_s"].to_pylist()) == {5.0}
    twice = ingest([log_file], synthetic={"user_cancel_rate": 0.5})
    with pytest.raises(BadConfig, match=r"shows \d+ users who leave already"):
        lay_users(twice, {"patience_s": 5})


def test_a_trace_made_from_nothing_has_no_report_and_no_outcomes(tmp_path: Path) -> None:
    trace = ingest(["synthetic:poisson"], options={"calls": 500, "duration_s": None})
    assert trace.report is None
    assert trace.calls["observed_status"].null_count == 500
    assert [p.name for p in trace.phases] == ["all"]
    text = describe(trace).text()
    assert "synthetic       workload poisson: made with seed 0, not observed" in text
    assert "Poisson arrivals at 20 /s" in text
    assert "attempts" not in text
    assert read_trace("synthetic:poisson").calls.num_rows == 2_000


HOSTILE = [
    ({"cals": 3}, "unknown key 'cals'; did you mean calls"),
    ({"calls": 3, "duration_s": 4}, "calls and duration_s contradict each other"),
    ({"user_cancel_s": 3, "user_cancel_share": 0.5}, "user_cancel_s and user_cancel_share contradict each other"),
    ({"calls": None}, "give calls or duration_s"),
    ({"calls": 0}, "calls: expected `int` >= 1"),
    ({"calls": 10**12}, "calls: expected `int` <= 100000000"),
    ({"calls": True}, "calls: expected `int"),
    ({"calls": "many"}, "calls: expected `int"),
    ({"calls": {}}, "calls: expected `int"),
    ({"rate_per_s": 0}, "rate_per_s: expected `float` > 0.0"),
    ({"rate_per_s": "nan"}, "rate_per_s: expected `float` > 0.0"),
    ({"rate_per_s": float("nan")}, "rate_per_s: is not a number"),
    ({"rate_per_s": "inf"}, "rate_per_s: expected `float` <= 1000000.0"),
    ({"user_cancel_rate": 1.2}, "user_cancel_rate: expected `float` <= 1.0"),
    ({"seed": -1}, "seed: expected `int` >= 0"),
    ({"prompt_tokens": "lognorm:3"}, "prompt_tokens: unknown law 'lognorm'; did you mean lognormal"),
    ({"prompt_tokens": "lognormal:3"}, "prompt_tokens: lognormal needs cv"),
    ({"prompt_tokens": "lognormal:mean=3,cv=1,sd=2"}, "unknown parameter of lognormal 'sd'"),
    ({"prompt_tokens": "lognormal:mean=3,mean=4"}, "lognormal takes mean and cv, each once"),
    ({"prompt_tokens": "uniform:1,2,3"}, "uniform takes low and high, each once"),
    ({"prompt_tokens": "uniform:5,2"}, "high is 2, and must be from 5"),
    ({"prompt_tokens": "exponential:x"}, "mean: 'x' is not a number"),
    ({"prompt_tokens": "geometric:0.5"}, "mean is 0.5, and must be from 1"),
    ({"prompt_tokens": "quantiles:0=5,0.5=3,1=9"}, "0.5 is 3, and must be from 5"),
    ({"prompt_tokens": "quantiles:0.1=5,1=9"}, "shares must increase from 0 to 1"),
    ({"prompt_tokens": "discrete:9=1,3=1"}, "values must increase, with weights"),
    ({"prompt_tokens": "discrete:9=0"}, "values must increase, with weights"),
    ({"prompt_tokens": "mixture:exponential:3"}, "'exponential:3' has no weight"),
    ({"prompt_tokens": "mixture:0*exponential:3"}, "a mixture needs laws with weights"),
    ({"prompt_tokens": "mixture:"}, "'' has no weight"),
    ({"prompt_tokens": "weibull:9,0"}, "shape is 0, and must be from 0.05"),
    ({"prompt_tokens": "nan"}, "value is nan"),
    ({"prompt_tokens": -3}, "value is -3"),
    ({"prompt_tokens": [1]}, r"prompt_tokens: \[1\] is neither a number nor a law"),
    ({"burst_factor": 3}, "burst_factor says nothing without burst_every_s"),
    ({"user_cancel_s": 3}, "user_cancel_s says nothing without user_cancel_rate"),
    ({"burst_every_s": 2}, "burst_s is 3, and must be less than burst_every_s, 2"),
    ({"overload_s": 5, "overload_start_s": 1e6}, "before the overload ends"),
    ({"duration_s": 1e-9}, "no call arrives in 1e-09 s"),
    ({"duration_s": 1e9, "rate_per_s": 1e6}, "calls would arrive"),
    ({"burst_every_s": 1e-3, "burst_s": 1e-4, "duration_s": 1e6, "rate_per_s": 0.1}, "bursts, at most"),
    ({"user_cancel_s": 3, "user_cancel_tokens": 9}, "user_cancel_s and user_cancel_tokens contradict each other"),
    ({"states": "1@60"}, "two states at least"),
    ({"states": "1@60,2"}, "is not FACTOR@SECONDS for each state"),
    ({"states": "0@60,0@2"}, "no call ever arrives"),
    ({"states": "1@60,2@0"}, "seconds above 0"),
    ({"daily_peak_s": 3}, "daily_peak_s says nothing without daily_swing"),
    ({"daily_swing": 1.1}, "daily_swing: expected `float` <= 1.0"),
    ({"client_skew": 1}, "client_skew says nothing without clients"),
    ({"think_time_s": 1}, "think_time_s says nothing without session_turns"),
    ({"token_s": 1}, "token_s says nothing without user_cancel_share or session_turns"),
    ({"clients": 0}, "clients: expected `int` >= 1"),
    ({"burst_law": "often", "burst_every_s": 20}, "burst_law: invalid enum value 'often'"),
]


@pytest.mark.parametrize(("options", "message"), HOSTILE, ids=lambda x: str(x)[:40])
def test_what_cannot_be_is_refused_in_a_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=f"^(synthetic:poisson: )?.*{message}"):
        ingest(["synthetic:poisson"], options=options)


def test_misplaced_requests_are_told_where_they_belong(log: str) -> None:
    with pytest.raises(UnknownName, match="unknown workload 'overlod'; did you mean overload"):
        ingest(["synthetic:overlod"])
    with pytest.raises(BadConfig, match="cannot be read together with others"):
        ingest([log, "synthetic:overload"])
    with pytest.raises(BadConfig, match="takes no --synthetic: say users with --option too"):
        ingest(["synthetic:overload"], synthetic={"user_cancel_rate": 0.1})
    with pytest.raises(BadConfig, match=r"lay users over a log with --synthetic user_cancel_rate=0\.1"):
        ingest([log], options={"user_cancel_rate": 0.1})
    with pytest.raises(BadConfig, match="synthetic: nothing is added"):
        ingest([log], synthetic={"seed": 3})
    with pytest.raises(BadConfig, match="did you mean user_cancel_rate"):
        ingest([log], synthetic={"cancel_rate": 0.1})


shares = st.floats(0.0, 1.0)
OPTIONS = st.fixed_dictionaries(
    {"calls": st.integers(1, 400), "seed": st.integers(0, 2**40), "rate_per_s": st.floats(1e-3, 1e5)},
    optional={
        "arrival_cv": st.floats(0.0, 20.0),
        "burst_every_s": st.floats(4.0, 1e4),
        "prompt_tokens": st.sampled_from(["lognormal:900,5", "exponential:0", "quantiles:0=1,1=9e8", 7]),
        "user_cancel_rate": shares,
        "patience_s": st.sampled_from(["exponential:3", 0, "uniform:0,1e9"]),
        "disconnect_every_s": st.floats(1e-3, 1e6),
        "stream_share": shares,
        "prefixes": st.integers(1, 10**8),
        "states": st.sampled_from(["1@9,3@2", "0@10,1@1,2@5"]),
        "daily_swing": shares,
        "clients": st.integers(1, 20),
        "client_cv": st.sampled_from(["exponential:2", 0, 30]),
        "session_turns": st.sampled_from(["geometric:3", 0, 4, "uniform:1,300"]),
        "client_timeout_s": st.floats(1e-6, 1e9),
    },
)


@settings(max_examples=150, deadline=None)
@given(OPTIONS)
def test_whatever_is_asked_for_is_a_trace_that_can_be_made_again(options: dict[str, Any]) -> None:
    if "clients" not in options:
        options.pop("client_cv", None)
    made = synthetic.make("poisson", options)
    check_calls(made.calls)
    assert made.calls.num_rows == options["calls"]
    assert synthetic.make("poisson", made.added.options).calls.equals(made.calls)
    as_text = {key: str(value) for key, value in options.items()}
    assert synthetic.make("poisson", as_text).calls.equals(made.calls)


def test_every_option_of_a_workload_is_read_back_as_it_was() -> None:
    for name, workload in synthetic.WORKLOADS.items():
        record = read(workload.options, synthetic.Traffic, name)
        assert read(written(record), synthetic.Traffic, name) == record
    assert all(sentence for kind in (synthetic.Traffic, synthetic.Overlay) for _, _, sentence in explained(kind))


def test_the_page_says_what_the_code_does() -> None:
    page = Path(__file__).parent.parent.parent / "docs" / "synthetic.md"
    assert page.read_text() == synthetic_page()


def test_the_command_line_makes_traces_lays_users_and_says_what_there_is(log: str, tmp_path: Path) -> None:
    def replay_(*arguments: str) -> Any:
        return CliRunner().invoke(cli, list(arguments), standalone_mode=False)

    made, laid = str(tmp_path / "made.parquet"), str(tmp_path / "laid.parquet")
    replay_("ingest", "synthetic:overload", "-o", made, "--option", "calls=20000", "--option", "seed=3")
    assert read_trace(made).calls.equals(synthetic.calls("overload", calls=20_000, seed=3))
    done = replay_("ingest", log, "-o", laid, "--synthetic", "client_timeout_s=30", "--synthetic", "max_attempts=3")
    assert "clients wait 30 s for an attempt" in done.stderr
    assert log_settings(ingest([log]).client, read_trace(laid).about.added) == {"client": {"max_attempts": 3}}
    shown = replay_("formats", "show", "synthetic").stdout
    assert all(name in shown for name in (*synthetic.WORKLOADS, *synthetic.Traffic.__struct_fields__))
    assert "synthetic" in replay_("formats").stdout
    assert isinstance(replay_("formats", "show").exception, BadConfig)
