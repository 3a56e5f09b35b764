"""Who is behind the calls: sessions and their turns, and the largest models, tenants and clients."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.describe.spread import Spread
from trace_schema.columns import is_empty

NAMED_MOST = 5
"""Of each kind, the names with the most calls that are told."""


class Conversations(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions of the log."""

    sessions: int
    calls: int
    """Calls that belong to one."""
    turns: Spread
    """Calls of a session."""
    gap_s: Spread | None
    """From the arrival of a turn to that of the next one."""


def conversations(calls: pa.Table) -> Conversations | None:
    """The sessions of the calls (in order of arrival); None where the log has none."""
    if is_empty(calls["session_id"]):
        return None
    named = np.asarray(pc.is_valid(calls["session_id"]))
    codes = np.asarray(pc.dictionary_encode(calls["session_id"]).combine_chunks().indices.fill_null(0))[named]
    arrivals = np.asarray(calls["arrival_s"])[named]
    order = np.argsort(codes, kind="stable")
    same = np.diff(codes[order]) == 0
    return Conversations(
        sessions=len(np.unique(codes)),
        calls=int(named.sum()),
        turns=Spread.of(np.unique(codes, return_counts=True)[1]) or Spread(0, 0, 0, 0, 0),
        gap_s=Spread.of(np.diff(arrivals[order])[same]),
    )


class Share(msgspec.Struct, frozen=True):
    name: str
    calls: int


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """How many models, tenants or others there are, and the largest of them."""

    count: int
    largest: list[Share]


def names(calls: pa.Table) -> dict[str, Names]:
    """The models, deployments, tenants and clients that the log tells."""
    found = {}
    for column in ("model", "deployment", "tenant", "client"):
        if is_empty(calls[column]):
            continue
        counts = pc.value_counts(calls[column].drop_null()).to_pylist()
        counts.sort(key=lambda c: (-c["counts"], c["values"]))
        largest = [Share(c["values"], c["counts"]) for c in counts[:NAMED_MOST]]
        found[column] = Names(count=len(counts), largest=largest)
    return found
