"""Clients of a service, each with arrivals and lengths of its own: they follow their laws, and draw apart."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from connectors import synthetic
from connectors.synthetic.clients import Client, Lengths, Window, requests
from connectors.synthetic.gaps import Family, Gaps
from connectors.synthetic.laws import law_of

LENGTHS = Lengths(
    start_s=0.0, prompt_tokens=law_of("discrete:60=0.2,128=0.5,4000=0.3"), output_tokens=law_of("geometric:80")
)


def client(*windows: Window, name: str = "a") -> Client:
    return Client(name=name, windows=windows, lengths=[LENGTHS])


def window(start_s: float, rate: float, family: Family = "gamma", cv: float = 1.0) -> Window:
    return Window(start_s=start_s, rate_per_s=rate, gaps=Gaps.of_cv(family, cv))


@pytest.mark.parametrize(
    ("family", "cv"), [("gamma", 0.5), ("gamma", 2.0), ("weibull", 0.5), ("weibull", 1.0), ("weibull", 3.0)]
)
def test_gaps_follow_the_law_of_their_family_and_cv(family: Family, cv: float) -> None:
    found = np.diff(requests(client(window(0.0, 10.0, family, cv)), start_s=0.0, end_s=2_000.0, seed=5).arrival_s)
    shape = Gaps.of_cv(family, cv).shape
    if family == "gamma":
        law = stats.gamma(shape, scale=0.1 / shape)
    else:
        law = stats.weibull_min(shape, scale=0.1 / stats.weibull_min(shape).mean())
    assert law.std() / law.mean() == pytest.approx(cv, rel=1e-6)
    assert stats.kstest(found, law.cdf).pvalue > 0.01


@pytest.mark.parametrize(("family", "cv"), [("gamma", 4.0), ("weibull", 4.0), ("weibull", 0.3)])
def test_a_window_begins_in_the_midst_of_its_arrivals(family: Family, cv: float) -> None:
    gaps = Gaps.of_cv(family, cv)
    counts = [
        np.searchsorted(gaps.arrivals(64, *map(np.random.default_rng, (k, k + 10**6))), 1.0) for k in range(4_000)
    ]
    assert np.mean(counts) == pytest.approx(1.0, abs=4 * np.std(counts) / 4_000**0.5)


def test_each_window_has_its_own_rate_and_a_silent_one_sends_nothing() -> None:
    sent = requests(
        client(window(0.0, 20.0), window(600.0, 0.0), window(1_200.0, 5.0)), start_s=0.0, end_s=1_800.0, seed=1
    )
    counts = np.histogram(sent.arrival_s, [0.0, 600.0, 1_200.0, 1_800.0])[0]
    assert counts[0] == pytest.approx(12_000, abs=5 * 12_000**0.5)
    assert counts[1] == 0
    assert counts[2] == pytest.approx(3_000, abs=5 * 3_000**0.5)
    assert (np.diff(sent.arrival_s) >= 0).all()


def test_lengths_follow_the_clients_pdf_and_change_when_it_does() -> None:
    later = Lengths(start_s=500.0, prompt_tokens=law_of("7"), output_tokens=law_of("uniform:1,1"))
    one = Client(name="a", windows=[window(0.0, 40.0)], lengths=[LENGTHS, later])
    sent = requests(one, start_s=0.0, end_s=1_000.0, seed=2)
    early = sent.arrival_s < 500.0
    values, counts = np.unique(sent.prompt_tokens[early], return_counts=True)
    assert values.tolist() == [60, 128, 4_000]
    assert stats.chisquare(counts, early.sum() * np.array([0.2, 0.5, 0.3])).pvalue > 0.01
    assert set(sent.prompt_tokens[~early]) == {7}
    assert set(sent.output_tokens[~early]) == {1}


def test_a_cut_and_a_later_start_change_nothing_of_what_is_left() -> None:
    windows = [window(600.0 * k, 3.0 + k, "weibull", 2.0) for k in range(4)]
    whole = requests(client(*windows), start_s=0.0, end_s=2_400.0, seed=3)
    part = requests(client(*windows), start_s=700.0, end_s=1_300.0, seed=3)
    kept = (whole.arrival_s >= 700.0) & (whole.arrival_s < 1_300.0)
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        assert np.array_equal(getattr(whole, name)[kept], getattr(part, name))


def test_clients_and_seeds_draw_apart() -> None:
    times = [
        requests(client(window(0.0, 3.0), name=name), start_s=0.0, end_s=100.0, seed=seed).arrival_s
        for name, seed in (("a", 1), ("a", 1), ("b", 1), ("a", 2))
    ]
    assert np.array_equal(times[0], times[1])
    assert not set(times[0]) & set(times[2])
    assert not set(times[0]) & set(times[3])


def test_more_rate_brings_the_arrivals_closer_and_draws_nothing_anew() -> None:
    once, twice = (requests(client(window(0.0, 3.0)), start_s=0.0, end_s=100.0, seed=1, rate=r) for r in (1.0, 2.0))
    n = len(once.arrival_s)
    assert twice.arrival_s[:n] == pytest.approx(once.arrival_s / 2.0)
    assert np.array_equal(twice.prompt_tokens[:n], once.prompt_tokens)


def test_a_workloads_clients_share_the_rate_by_rank_and_send_apart() -> None:
    calls = synthetic.calls("poisson", calls=40_000, clients=20, client_skew=1.0, rate_per_s=50.0)
    counts = {c["values"]: c["counts"] for c in calls["client"].value_counts().to_pylist()}
    weights = 1.0 / np.arange(1, 21)
    expected = 40_000 * weights / weights.sum()
    assert [counts[f"client-{k}"] for k in range(20)] == pytest.approx(expected, rel=0.15)
    assert 40_000 / calls["arrival_s"][-1].as_py() == pytest.approx(50.0, rel=0.03)
    few = synthetic.calls("poisson", duration_s=400.0, clients=3, client_skew=0.0, rate_per_s=3.0)
    more = synthetic.calls("poisson", duration_s=400.0, clients=6, client_skew=0.0, rate_per_s=6.0)
    for name in ("client-0", "client-2"):
        times = [np.asarray(t["arrival_s"])[np.asarray(t["client"]) == name] for t in (few, more)]
        assert times[0] == pytest.approx(times[1])


def test_clients_have_lengths_and_bursts_of_their_own() -> None:
    calls = synthetic.calls(
        "poisson",
        calls=60_000,
        clients=12,
        client_skew=0.0,
        client_spread=0.8,
        client_cv="discrete:0.3=1,4=1",
        prompt_tokens=500,
    )
    whose = np.asarray(calls["client"])
    names = [f"client-{k}" for k in range(12)]
    means = [np.asarray(calls["prompt_tokens"])[whose == name].mean() for name in names]
    assert np.std(means) / np.mean(means) == pytest.approx(0.8, rel=0.5)
    cvs = []
    for name in names:
        gaps = np.diff(np.asarray(calls["arrival_s"])[whose == name])
        cvs.append(gaps.std() / gaps.mean())
    assert {round(cv, 1) if cv < 1 else 4.0 for cv in cvs} == {0.3, 4.0}


def test_the_first_calls_of_many_clients_are_those_of_a_longer_trace() -> None:
    few, many = (synthetic.calls("clients", calls=n) for n in (300, 3_000))
    assert few["arrival_s"].equals(many["arrival_s"].slice(0, 300))
    assert few["client"].equals(many["client"].slice(0, 300))
