"""Attempts that have nothing to do with each other: the cheap way to their calls says what the fold says."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from connectors.rows import attempts_of
from replay.ingest.clock import from_start
from trace_schema.alone import calls_alone, stand_alone
from trace_schema.fold import fold

ROWS = 200


def attempts(seed: int, batches: int = 1, **others: Any) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "arrival_s": rng.integers(0, 60, ROWS) + 1.7e9 * (seed % 2),
        "prompt_tokens": rng.integers(1, 500, ROWS),
        "output_tokens": rng.integers(0, 50, ROWS),
        "status": rng.choice(["ok", "unknown"], ROWS),
        "model": rng.choice(["a", "b"], ROWS),
        "priority": rng.integers(-2, 3, ROWS),
        **others,
    }
    columns = {name: values if isinstance(values, pa.Array) else pa.array(values) for name, values in columns.items()}
    ends = np.linspace(0, ROWS, batches + 1).astype(int)
    tables = [
        attempts_of(
            {name: values[first:end] for name, values in columns.items()},
            np.arange(first, end) + 1,
            source_format="x",
            source_file="y",
        ).attempts
        for first, end in pairwise(ends)
    ]
    return from_start(pa.concat_tables(tables))


def some_null(values: Any) -> list[Any]:
    return [None if k % 3 == 0 else value for k, value in enumerate(values)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "others",
    [
        {},
        {"output_tokens": some_null(range(ROWS))},
        {"output_tokens": [None] * ROWS, "status": ["unknown"] * ROWS},
        {"model": some_null(["m"] * ROWS), "priority": some_null(range(ROWS)), "stream": some_null([True] * ROWS)},
        {
            "block_hashes": pa.array([[k, 2**64 - 1] for k in range(ROWS)], pa.list_(pa.uint64())),
            "hash_block_tokens": [16] * ROWS,
        },
        {"arrival_s": np.arange(ROWS) * 0.5, "max_tokens": np.arange(ROWS)},
    ],
    ids=["plain", "outputs missing", "no outputs", "holes", "hashes", "in order"],
)
def test_attempts_that_stand_alone_are_the_calls_that_the_fold_makes_of_them(seed: int, others: dict[str, Any]) -> None:
    table = attempts(seed, batches=seed + 1, **others)
    assert stand_alone(table)
    expected, found = fold(table).calls, calls_alone(table)
    assert found.schema.equals(expected.schema)
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist(), name


@pytest.mark.parametrize(
    "others",
    [
        {"retry_group": ["g"] * ROWS},
        {"status": ["timeout", "ok"] * (ROWS // 2)},
        {"session_id": ["s"] * ROWS},
        {"body_hash": ["h"] * ROWS},
    ],
    ids=lambda others: next(iter(others)),
)
def test_attempts_that_may_belong_together_do_not_stand_alone(others: dict[str, Any]) -> None:
    assert not stand_alone(attempts(0, **others))


def test_what_is_in_order_is_not_copied() -> None:
    table = attempts(1, arrival_s=np.arange(ROWS) * 0.5)
    calls = calls_alone(table)
    for name in ("arrival_s", "prompt_tokens"):
        assert calls[name].chunk(0).buffers()[1].address == table[name].chunk(0).buffers()[1].address
