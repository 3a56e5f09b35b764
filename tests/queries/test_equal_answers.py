"""Equal inputs give equal bytes: invariant 6, for the figures. DuckDB adds in whatever order its threads are done."""

from __future__ import annotations

import random
from typing import Any

import pytest

from queries import answer, bound, connect, load, names
from tests.queries.test_definitions import attempt
from tests.queries.test_engine_figures import sample
from tests.queries.test_figures import Rows, call, execution, replica, write_run

SEEDS, TIMES = 16, 4
CHARGES = ("attended_prefill_ns", "orphan_decode_ns", "recompute_ns", "poll_ns", "kv_block_ns", "stranded_kv_block_ns",
           "marginal_ns", "salvaged_ns")  # fmt: skip


def replayed(seed: int) -> dict[str, Rows]:
    """A replay whose rates are no round numbers."""
    draw = random.Random(seed)
    calls, executions, attempts = [], list[dict[str, Any]](), []
    for i in range(30 + seed):
        arrival, served = 0.9 * i, draw.random() < 0.7
        more = {"attempts": draw.randint(1, 4), "prompt_tokens": 90 + 7 * i}
        late = arrival + draw.random() * 4
        calls.append(call(i, arrival, late if served else None, "delivered" if served else "failed", **more))
        charges = {name: draw.randint(1, 10**9) for name in CHARGES}
        charges |= {"cached_prompt_tokens": draw.randint(0, 70), "computed_prompt_tokens": draw.randint(30, 120)}
        ended = ("delivered", "finished") if served else ("lost", "aborted")
        executions.append(execution(i, *ended, **charges, admitted_s=arrival))
        attempts.append(attempt(i, i, 0, i, late, "ok" if served else "timeout"))
    timeline = [sample(0.1 * k, draw.randint(0, 9), draw.randint(0, 9), draw.randint(0, 90)) for k in range(300)]
    tables = {"calls": calls, "executions": executions, "attempts": attempts, "timeline": timeline}
    return {**tables, "replicas": replica(40 + draw.random())}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    cells = {("p", seed): replayed(seed) for seed in range(SEEDS)}
    return write_run(tmp_path_factory.mktemp("equal") / "run", cells, as_logged="p")


@pytest.mark.parametrize("name", names())
def test_a_query_says_the_same_to_the_last_digit_each_time(name: str, run: str) -> None:
    query = load(name)
    with connect(run) as connection:
        connection.execute("SET threads = 8")
        first, *others = [answer(connection, run, query, bound(query, {})) for _ in range(TIMES)]
    assert first.num_rows > 0
    assert all(other.equals(first) for other in others)
