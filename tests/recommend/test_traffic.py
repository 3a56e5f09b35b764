"""Other traffic of the same kind keeps what belongs together, and gives copies a life of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from replay.phases import Phase, around
from replay.recommend.traffic import block_s, resampled
from trace_schema.calls import CALLS

PHASES = around(20.0, 40.0)
PREVIOUS = [i - 1 if i % 5 else None for i in range(300)]


def trace(n: int = 300, **columns: Any) -> pa.Table:
    """Calls of which five make a session, over 60 s; three times as many in the middle third."""
    rng = np.random.default_rng(3)
    arrivals = np.sort(np.concatenate([rng.uniform(0, 60, 2 * n // 5), rng.uniform(20, 40, n - 2 * n // 5)]))
    given = {
        "call_id": np.arange(n),
        "content_id": np.arange(n) % (n // 2),
        "arrival_s": arrivals,
        "session_id": [f"s{i // 5}" for i in range(n)],
        "idempotency_key": [f"k{i}" for i in range(n)],
        "block_hashes": [[7, 1000 + i] for i in range(n)],
        **columns,
    }
    return pa.table({f.name: pa.array(given.get(f.name, [None] * n), f.type) for f in CALLS.fields})


def session_gaps(calls: pa.Table) -> dict[str, list[float]]:
    """By session, the seconds from its first call to each."""
    found: dict[str, list[float]] = {}
    for name, at in zip(calls["session_id"].to_pylist(), calls["arrival_s"].to_pylist(), strict=True):
        found.setdefault(name, []).append(at)
    return {name: [round(t - times[0], 6) for t in times] for name, times in found.items()}


@given(st.integers(0, 10_000))
def test_a_session_moves_as_a_whole(seed: int) -> None:
    calls = trace()
    before = session_gaps(calls)
    for name, gaps in session_gaps(resampled(calls, PHASES, np.random.default_rng(seed))).items():
        assert gaps == before[name.partition("~")[0]]


@given(st.integers(0, 10_000))
def test_an_overload_stays_where_it_is(seed: int) -> None:
    arrivals = np.asarray(resampled(trace(), PHASES, np.random.default_rng(seed))["arrival_s"])
    inside = ((arrivals >= 20) & (arrivals < 40)).sum()
    assert 0.5 < inside / ((np.asarray(trace()["arrival_s"]) // 20) == 1).sum() < 1.5
    assert np.all(np.diff(arrivals) >= 0)


def test_resampled_traffic_has_as_many_calls_on_average() -> None:
    counts = [resampled(trace(), PHASES, np.random.default_rng(k)).num_rows for k in range(200)]
    assert abs(np.mean(counts) - 300) < 3 * np.std(counts) / np.sqrt(200) + 1
    assert np.std(counts) > 0


def test_a_block_that_comes_twice_brings_other_calls_but_what_others_share() -> None:
    calls = trace(content_id=[0 if i % 50 == 0 else i for i in range(300)], previous_call_id=PREVIOUS)
    made = resampled(calls, PHASES, np.random.default_rng(1))
    n = made.num_rows
    assert len(made["call_id"].unique()) == len(made["idempotency_key"].unique()) == n
    contents = made["content_id"].to_pylist()
    assert len(set(contents)) == n - contents.count(0) + 1
    hashes = made["block_hashes"].to_pylist()
    assert {row[0] for row in hashes} == {7}
    assert len({row[1] for row in hashes}) == n
    session = dict(zip(made["call_id"].to_pylist(), made["session_id"].to_pylist(), strict=True))
    for before, name in zip(made["previous_call_id"].to_pylist(), made["session_id"].to_pylist(), strict=True):
        assert before is None or session[before] == name
    assert made.schema.equals(calls.schema)


def test_without_sessions_every_call_is_its_own() -> None:
    calls = trace(session_id=[None] * 300)
    assert resampled(calls, [Phase("all", 0.0)], np.random.default_rng(0)).num_rows > 200
    assert 60 / 300 < block_s(calls) < 60 / 10
