"""Calls that a coarse clock put into one tick, spread within it: on demand, since nobody observed where they were."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.synthetic.draws import stream
from trace_schema.columns import is_empty


def spread_within(calls: pa.Table, tick_s: float, seed: int) -> pa.Table:
    """`calls` (schema CALLS), each sent up to `tick_s` later, in their new order; a session's calls keep theirs.

    All that is counted from a call's arrival stays as it is.
    """
    count = calls.num_rows
    later_s = stream(seed, "jitter").random(count) * tick_s
    if not is_empty(calls["session_id"]):
        codes = calls["session_id"].combine_chunks().dictionary_encode().indices
        known = np.asarray(codes.is_valid())
        later_s[known] = later_s[np.asarray(codes.fill_null(0))[known]]
    arrivals = np.asarray(calls["arrival_s"]) + later_s
    order = np.argsort(arrivals, kind="stable")
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    moved = calls.take(pa.array(order))
    previous = moved["previous_call_id"]
    changed = {"call_id": np.arange(count), "arrival_s": arrivals[order]}
    if not is_empty(previous):
        changed["previous_call_id"] = pc.take(pa.array(place), previous.combine_chunks())
    for name, values in changed.items():
        moved = moved.set_column(moved.column_names.index(name), moved.schema.field(name), pa.chunked_array([values]))
    return moved
