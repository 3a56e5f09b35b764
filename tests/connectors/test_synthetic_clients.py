"""Clients of a service, each with arrivals and lengths of its own: they follow their laws, and draw apart."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

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
