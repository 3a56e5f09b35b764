"""Logs of the same traffic are one: ids within ids, times where they are certain, a proxy's own tries."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.incidents import Incident, Proxied, tell, tell_proxied
from tests.trace_schema.test_joins import log, right_share
from trace_schema.fold import fold
from trace_schema.merge import ids_match, merge
from trace_schema.merge.ids import Finder

NAME = uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")


def request(start: float, lasted: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"arrival_s": 1.8e9 + start, "e2e_s": lasted, "status": "ok", **more}


def without_sizes(*rows: dict[str, Any]) -> pa.Table:
    table = log(*({**row, "prompt_tokens": 1} for row in rows))
    place = table.column_names.index("prompt_tokens")
    return table.set_column(place, table.schema.field("prompt_tokens"), pa.nulls(table.num_rows, pa.int32()))


@pytest.mark.parametrize(
    "other",
    [
        f"cmpl-{NAME.hex}-0-1a2b3c4d",
        f"chatcmpl-{NAME}",
        f"chatcmpl-{NAME}-b162a5c6",
        str(NAME).upper(),
        f"req_{NAME.hex}",
        f"gateway/{NAME.hex}#2",
        f"00-{NAME.hex}-00f067aa0ba902b7-01",
    ],
)
def test_an_id_is_found_within_another(other: str) -> None:
    assert Finder({NAME.hex: [7]}).find(other) == [7]


@pytest.mark.parametrize("other", ["cmpl-0-1", "", "chatcmpl-1234", f"cmpl-{NAME.hex[:-1]}-0"])
def test_other_ids_are_not(other: str) -> None:
    assert Finder({NAME.hex: [7], "1234": [8]}).find(other) == []


def test_an_engines_sizes_complete_a_gateways_outcome() -> None:
    gateway = without_sizes(request(0.0, 2.0, source_request_id="request-77", tenant="u", status="cancelled"))
    engine = log(request(0.1, 1.7, source_request_id="cmpl-request-77-0", prompt_tokens=640, max_tokens=9))
    table, account = merge(gateway, engine, keep_rest=False)
    (row,) = table.to_pylist()
    assert (row["status"], row["tenant"], row["e2e_s"]) == ("cancelled", "u", 2.0)
    assert (row["prompt_tokens"], row["max_tokens"], row["prompt_token_source"]) == (640, 9, "engine")
    assert row["engine_request_id"] == "cmpl-request-77-0"
    assert (account.by_id, account.left_out, account.incomplete) == (1, 0, 0)


@pytest.mark.parametrize(("finish", "status"), [(None, "cancelled"), ("complete", "ok")])
def test_an_engine_that_was_told_to_abort_knows_of_a_client_that_a_gateway_takes_for_served(
    finish: str | None, status: str
) -> None:
    gateway = without_sizes(request(0.0, source_request_id="request-77", finish_reason=finish))
    engine = log(request(0.1, source_request_id="request-77", prompt_tokens=640, status="cancelled"))
    (row,) = merge(gateway, engine, keep_rest=False)[0].to_pylist()
    assert row["status"] == status


def test_an_engines_count_goes_before_a_gateways_guess() -> None:
    gateway = log(
        request(0.0, source_request_id="request-77", prompt_tokens=500, prompt_token_source="client_tokenizer")
    )
    engine = log(request(0.1, source_request_id="request-77", prompt_tokens=640))
    assert merge(gateway, engine, keep_rest=False)[0]["prompt_tokens"].to_pylist() == [640]


def test_trace_ids_match_where_request_ids_do_not() -> None:
    gateway = without_sizes(request(0.0, source_request_id="a-request", trace_id=NAME.hex))
    engine = log(request(0.1, source_request_id="b-request", trace_id=str(NAME), prompt_tokens=640))
    assert merge(gateway, engine, keep_rest=False)[1].by_trace == 1


def test_what_an_engine_ran_for_nobody_in_the_log_is_left_out_and_counted() -> None:
    gateway = without_sizes(request(0.0, source_request_id="request-77"))
    engine = log(
        request(0.1, source_request_id="request-77", prompt_tokens=640),
        request(500.0, source_request_id="warm-up", prompt_tokens=8),
    )
    table, account = merge(gateway, engine, keep_rest=False)
    assert (table.num_rows, account.left_out) == (1, 1)
    table, account = merge(gateway, engine, keep_rest=True)
    assert (table.num_rows, account.added) == (2, 1)


def test_the_answers_of_one_request_are_one_attempt() -> None:
    gateway = without_sizes(request(0.0, 3.0, source_request_id="request-77"))
    engine = log(
        *(request(0.1, 2.0 + n, source_request_id=f"cmpl-request-77-{n}", prompt_tokens=640) for n in range(3))
    )
    table, account = merge(gateway, engine, keep_rest=False)
    assert (table.num_rows, account.beside) == (1, 2)


def test_requests_that_come_at_once_and_are_equally_long_are_not_told_apart_by_time() -> None:
    gateway = without_sizes(*(request(0.0, 1.0, source_request_id=f"name-{n}") for n in range(2)))
    engine = log(*(request(0.02, 1.0, source_request_id=f"other-{n}", prompt_tokens=64) for n in range(2)))
    assert merge(gateway, engine, keep_rest=False)[1].by_time == 0


def test_equal_traffic_has_ids_that_match() -> None:
    told = tell(Incident(calls=30))
    assert ids_match(told.table("gateway"), told.table("engine"))
    assert not ids_match(told.table("gateway"), tell(Incident(seed=1, calls=30)).table("engine"))


@pytest.mark.parametrize("shape", ["cmpl-{id}-0-{noise}", "chatcmpl-{uuid}", "{id}", "x:{uuid}/{noise}"])
@pytest.mark.parametrize("clock", [0.0, 0.7, -7200.25])
def test_every_attempt_has_the_engines_size_whatever_its_id_and_its_clock(shape: str, clock: float) -> None:
    told = tell(Incident(seed=8, id_of_engine=shape, engine_clock_s=clock))
    table, account = merge(told.table("gateway"), told.table("engine"), keep_rest=False)
    assert (account.by_id, account.incomplete) == (table.num_rows, 0)
    assert account.clock_offset_s == pytest.approx(clock, abs=0.1)
    folded = fold(table)
    assert right_share(told, folded) == 1.0
    assert folded.calls["prompt_tokens"].to_pylist() == told.prompts


@pytest.mark.parametrize(
    "incident",
    [
        Incident(seed=9),
        Incident(seed=10, engine_clock_s=95.3),
        Incident(seed=11, timeout_s=30.0, retries=4),
        Incident(seed=12, rate_per_s=15.0, calls=600, users=80),
    ],
    ids=["plain", "clock", "patient", "busy"],
)
def test_without_ids_time_pairs_what_is_certain(incident: Incident) -> None:
    told = tell(incident)
    table, account = merge(told.table("gateway", "source_request_id"), told.table("engine"), keep_rest=False)
    assert account.by_time >= 0.95 * table.num_rows
    pairs = zip(table["prompt_tokens"].to_pylist(), told.call, strict=True)
    right = [prompt is None or prompt == told.prompts[call] for prompt, call in pairs]
    assert np.mean(right) >= 0.98


@pytest.mark.parametrize(
    "proxy",
    [
        Proxied(seed=1),
        Proxied(seed=2, timeout_s=2.0, tries=2),
        Proxied(seed=3, timeout_s=20.0, tries=4, slow_share=0.6),
        Proxied(seed=4, engine_clock_s=-3600.5),
        Proxied(seed=5, rate_per_s=10.0, calls=500),
    ],
    ids=["plain", "short", "patient", "clock", "busy"],
)
def test_a_proxys_own_tries_become_attempts_of_its_calls(proxy: Proxied) -> None:
    told = tell_proxied(proxy)
    table, account = merge(told.table("gateway"), told.table("engine"), keep_rest=False)
    assert account.left_out <= 0.01 * account.rows
    folded = fold(table)
    calls = folded.calls.to_pylist()
    assert len(calls) == proxy.calls
    assert np.mean([c["prompt_tokens"] == prompt for c, prompt in zip(calls, told.prompts, strict=True)]) >= 0.99
    assert [c["observed_status"] for c in calls] == told.outcomes
    tries = np.bincount(told.call, minlength=proxy.calls)
    assert np.mean([c["observed_attempts"] for c in calls] == tries) >= 0.98
    assert folded.client.timeout_s == proxy.timeout_s
    assert folded.client.max_attempts == proxy.tries
