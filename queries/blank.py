"""What columns a query has, before there is a run to ask: it is planned over tables of the right types without rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from queries import bound, connect, load
from trace_schema.results import RESULTS

KEY = "policy=p/profile=p/fleet=1x/seed=0/partition=0"
TABLES = {
    "run": {
        "as_logged": pa.string(),
        "slo_s": pa.float64(),
        "until_s": pa.float64(),
        "warmup_s": pa.float64(),
        "seeds": pa.int32(),
        "replays": pa.int64(),
        "closed_turns": pa.int64(),
        "drawn_outputs": pa.int64(),
        "drawn_outputs_in_tail": pa.int64(),
        "drawn_outputs_kept": pa.int64(),
        "drawn_patience": pa.int64(),
    },
    "policies": {"policy": pa.string(), "position": pa.int32(), "summary": pa.string(), "cuts_steps": pa.bool_()},
    "phases": {"phase": pa.string(), "start_s": pa.float64(), "end_s": pa.float64()},
    "possible": {
        "profile": pa.string(),
        "fleet": pa.string(),
        "seed": pa.int64(),
        "cuts_steps": pa.bool_(),
        "phase": pa.string(),
        "calls": pa.int64(),
        "delivered": pa.int64(),
        "on_time": pa.int64(),
    },
    "profiles": {
        "profile": pa.string(),
        "source": pa.string(),
        "error": pa.string(),
        "weakness": pa.string(),
        "num_blocks": pa.int64(),
        "block_size": pa.int64(),
    },
    "observed": {
        "call_id": pa.int64(),
        "arrival_s": pa.float64(),
        "model": pa.string(),
        "deployment": pa.string(),
        "tenant": pa.string(),
        "client": pa.string(),
        "session_id": pa.string(),
        "observed_attempts": pa.int32(),
        "observed_status": pa.string(),
        "observed_ttft_s": pa.float64(),
        "observed_e2e_s": pa.float64(),
    },
}
"""What a run directory holds beside its cells, and the queries read."""


@contextmanager
def blank_run() -> Iterator[str]:
    """A run directory of which every table is empty."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for name, columns in TABLES.items():
            pq.write_table(pa.schema(list(columns.items())).empty_table(), root / f"{name}.parquet")
        for schema in RESULTS:
            cell = root / schema.name / KEY
            cell.mkdir(parents=True)
            pq.write_table(schema.arrow.empty_table(), cell / "part-0.parquet")
        yield place


def columns(*names: str) -> dict[str, dict[str, str]]:
    """Columns of each query, with their DuckDB types. Raises UnknownName."""
    queries = [load(name) for name in names]
    found = {}
    with blank_run() as run, connect(run) as connection:
        for query in queries:
            relation = connection.sql(query.sql, params=bound(query, {}) or None)
            found[query.name] = dict(zip(relation.columns, map(str, relation.types), strict=True))
    return found
