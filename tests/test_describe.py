"""What a trace holds, in words and in figures."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from replay.describe import as_dict, describe
from replay.ingest import About, Trace, ingest, read_trace
from replay.phases import Phase
from replay.report.trace_plot import trace_png
from trace_schema.calls import CALLS
from trace_schema.check import conform

INCIDENT = "examples/overload-incident/cancel.attempts.jsonl"


def test_the_incident_is_described_as_it_was() -> None:
    description = describe(ingest([INCIDENT]))
    assert (description.calls, description.attempts) == (287, 1565)
    assert description.outcomes == {"timeout": 151, "ok": 136}
    before, during, after = description.phases
    assert (during.start_s, during.end_s) == (20.0, 40.0)
    rates = [before.delivered_call_rate, during.delivered_call_rate, after.delivered_call_rate]
    assert rates == pytest.approx([1.0, 0.219, 0.511], abs=0.001)
    client = description.client
    assert (client.timeout_s, client.max_attempts, client.backoff_base_s) == (8.0, 7, 0.5)
    assert (client.backoff_factor, client.backoff_jitter) == (2.0, 0.25)


def test_the_text_says_what_the_log_cannot_show() -> None:
    text = describe(ingest([INCIDENT])).text()
    assert "not in the log  aborts" in text
    assert max(map(len, text.splitlines())) <= 120


def made(**columns: Any) -> Trace:
    """A trace of calls with these columns."""
    n = len(columns["arrival_s"])
    usual = {"call_id": np.arange(n), "content_id": np.arange(n), "prompt_tokens": [10] * n, "output_tokens": [5] * n}
    usual |= {"priority": [0] * n, "output_censored": [False] * n, "patience_censored": [False] * n}
    calls = conform(pa.table({**usual, "observed_attempts": [1] * n, **columns}), CALLS)
    return Trace(calls, About(phases=[Phase("all", 0.0)]))


def test_blocks_that_came_before_are_what_an_endless_cache_would_hit() -> None:
    hashes = pa.array([[1, 2, 3], [1, 2, 4], [9], None], pa.list_(pa.uint64()))
    found = describe(made(arrival_s=[0.0, 1.0, 2.0, 3.0], block_hashes=hashes, hash_block_tokens=[2] * 4)).sharing
    assert found is not None
    assert (found.calls, found.blocks, found.seen_before, found.block_tokens) == (3, 7, 2, 2)
    assert found.reusable_prompt_share == pytest.approx(4 / 30)
    assert (found.calls_with_a_known_prefix, found.commonest_prefix_calls) == (1, 2)


def test_sessions_have_turns_and_gaps() -> None:
    found = describe(made(arrival_s=[0.0, 1.0, 4.0, 5.0], session_id=["a", "b", "a", None])).conversations
    assert found is not None
    assert (found.sessions, found.calls, found.turns.max) == (2, 3, 2)
    assert found.gap_s is not None
    assert found.gap_s.mean == 4.0


def test_a_poisson_process_has_a_dispersion_of_one_at_every_scale() -> None:
    arrivals = np.cumsum(np.random.default_rng(1).exponential(0.05, 40_000))
    description = describe(made(arrival_s=arrivals))
    assert set(description.dispersion) == {"0.1", "1", "10", "60", "600"}
    assert description.dispersion["1"] == pytest.approx(1.0, abs=0.1)
    assert description.dispersion["10"] == pytest.approx(1.0, abs=0.25)
    assert description.gap_cv == pytest.approx(1.0, abs=0.05)


def test_bursts_have_a_larger_one() -> None:
    arrivals = np.sort(np.concatenate([np.arange(0, 600, 5.0), np.repeat(np.arange(50.0, 600.0, 100.0), 40)]))
    description = describe(made(arrival_s=arrivals))
    assert description.dispersion["1"] > 10
    assert description.gap_cv is not None
    assert description.gap_cv > 1.3


def test_every_episode_of_overload_is_found_with_its_reason() -> None:
    arrivals = np.sort(np.concatenate([np.arange(0, 1000, 0.5), np.arange(200, 260, 0.1), np.arange(600, 660, 0.1)]))
    status = np.where((arrivals > 800) & (arrivals < 850), "timeout", "ok")
    description = describe(made(arrival_s=arrivals, observed_status=status))
    spans = [(e.start_s, e.end_s, e.busy, e.failing) for e in description.episodes]
    assert spans == [(180.0, 270.0, True, False), (600.0, 660.0, True, False), (780.0, 870.0, False, True)]


def test_what_changes_the_meaning_of_a_replay_is_said() -> None:
    quiet = describe(made(arrival_s=[0.0, 1.0]))
    assert [c.name for c in quiet.caveats] == ["nobody_is_impatient", "few_calls"]
    patient = describe(made(arrival_s=np.arange(200.0), client_timeout_s=[5.0] * 200))
    assert not patient.caveats
    bins = describe(ingest(["tests/fixtures/traces/mooncake.jsonl"]))
    assert {"nobody_is_impatient", "only_successes"} <= {c.name for c in bins.caveats}


def test_the_page_is_a_picture_and_equal_traces_give_equal_ones() -> None:
    trace = ingest([INCIDENT])
    page = trace_png(trace, describe(trace), "incident")
    assert page.startswith(b"\x89PNG")
    assert page == trace_png(trace, describe(trace), "incident")


@pytest.mark.parametrize("name", ["synthetic:bursty_disconnects", "synthetic:overload"])
def test_a_trace_without_outcomes_has_a_page_too(name: str) -> None:
    trace = read_trace(name)
    assert trace_png(trace, describe(trace), name).startswith(b"\x89PNG")


def test_a_trace_of_one_call_has_a_page_too() -> None:
    trace = made(arrival_s=[0.0])
    assert trace_png(trace, describe(trace), "one").startswith(b"\x89PNG")


def test_the_figures_are_json() -> None:
    json.dumps(as_dict(describe(ingest([INCIDENT]))), allow_nan=False)
