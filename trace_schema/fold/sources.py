"""Where what a call says is from: how its attempts were joined, and who counted its prompt."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trace_schema.attempts import CERTAINTIES
from trace_schema.columns import is_empty
from trace_schema.fold.groups import Groups, at
from trace_schema.fold.joins import Joined, Words
from trace_schema.fold.units import Ints, Mask

NAMED = ("source_file", "source_row", "source_format", "source_request_id", "engine_request_id")
"""By what an attempt is found again in its log."""


def how_joined(groups: Groups, joined: Joined) -> dict[str, pa.Array]:
    """Of each call: the rule of its least certain retry, and how certain that is."""
    if joined.source is None or joined.certainty is None or not (groups.size > 1).any():
        return {}
    retry = np.flatnonzero(groups.number > 0)
    place, call = groups.order[retry], groups.call[retry]
    ranks = {word: rank for rank, word in enumerate(CERTAINTIES)}
    rank = np.array([ranks[word] for word in joined.certainty[place]])
    rising = np.lexsort((rank, call))
    least = rising[np.flatnonzero(np.diff(call[rising], append=-1))]
    single = np.ones(len(groups.size), bool)
    single[call[least]] = False
    columns = {}
    for name, words in (("retry_source", joined.source), ("retry_certainty", joined.certainty)):
        said = np.full(len(groups.size), None, object)
        said[call[least]] = words[place[least]]
        columns[name] = texts(said, single)
    return columns


def texts(words: Words, hidden: Mask) -> pa.Array:
    """Words, but for the hidden ones."""
    return pa.array(words, pa.string(), mask=hidden)


def prompt_sources(attempts: pa.Table, groups: Groups, estimated: Mask) -> pa.Array:
    """Where each call's prompt length is from: its first attempt's source, or an estimate."""
    source = attempts["prompt_token_source"]
    if is_empty(source) and not estimated.any():
        return pa.nulls(len(groups.size), pa.string())
    first = at(attempts.select(["prompt_token_source"]), groups.first)["prompt_token_source"]
    return pc.if_else(pa.array(estimated), pc.fill_null(first, "estimate"), first)


def with_calls(attempts: pa.Table, given: pa.Table, groups: Groups, joined: Joined, call: Ints) -> pa.Table:
    """`attempts` in `groups` order with their calls; `given`: the same in the log's order."""
    order, of = pa.array(groups.order), call[groups.order]
    columns = {
        "call_id": pa.array(of, mask=of < 0),
        "attempt": pa.array(groups.number),
        **{name: attempts[name] for name in attempts.column_names},
        **{name: given[name].take(order) for name in NAMED if name in given.column_names},
    }
    if joined.source is not None and joined.certainty is not None:
        first = groups.number == 0
        columns["retry_source"] = texts(joined.source[groups.order], first)
        columns["retry_certainty"] = texts(joined.certainty[groups.order], first)
    return pa.table(columns)
