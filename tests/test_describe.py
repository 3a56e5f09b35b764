"""What a trace holds, in words and in figures."""

from __future__ import annotations

import json

import pytest

from replay.describe import as_dict, describe
from replay.ingest import ingest

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


def test_the_figures_are_json() -> None:
    json.dumps(as_dict(describe(ingest([INCIDENT]))), allow_nan=False)
