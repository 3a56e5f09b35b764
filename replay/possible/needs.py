"""What it takes at least to deliver a call: tokens that somebody must compute, rows that somebody must run.

Whatever one call can have from another is counted once: a prompt block that several calls have in common is needed by
the first of them alone, and calls that a gateway could answer with one response share what it takes evenly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from replay.engine import state
from replay.engine.identity import BlockKeys, block_keys, content_keys, numbered
from replay.engine.intake import call_records, coalescing_keys
from replay.engine.setup import agreed
from replay.possible.prices import Prices
from replay.profiles.profile import EngineSettings, Profile

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Needs:
    """Of each call of a table, in its order."""

    arrival_s: Floats
    """When the first call arrived with which it could share a response: itself, mostly."""
    shared_by: Ints
    """So many calls could share one response."""
    too_long: npt.NDArray[np.bool_]
    prompt: Ints
    """Tokens, cached or not: all of it must be there when the first output is."""
    outputs: Ints
    """Tokens after the first, each from a step of its own."""
    fresh: Ints
    """Prompt tokens that nobody had to compute before."""
    attention: Floats
    """Pairs of a fresh prompt token and one before it."""
    chunks: Ints
    """Chunks of a prompt at least."""
    chunk_context: Floats
    """Tokens before each chunk, summed."""
    own: Ints
    """Prompt tokens in blocks that no earlier call can hold as well."""

    @property
    def rows(self) -> Ints:
        """Rows at least: its chunks, and one for each output after the first."""
        return self.chunks + self.outputs

    @property
    def held(self) -> Floats:
        """Tokens of context in blocks of its own, summed over its rows: the last chunk's, and each output's."""
        n = self.outputs.astype(np.float64)
        return self.own * (n + 1.0) + 0.5 * n * (n + 1.0)

    def seconds(self, prices: Prices) -> Floats:
        """GPU seconds of each call at least, for its share of the response.

        An output comes from a decoding row; after a preemption it may come from a chunk of two tokens or more. The
        cheaper of both is a concave function of the context, whose sum is no less than the mean of its ends.
        """
        first, last = self.prompt + 1, self.prompt + self.outputs
        ends = [
            np.minimum(
                prices.decode + prices.context * context,
                2.0 * prices.token + 2.0 * prices.attention * (context - 1),
            )
            for context in (first, last)
        ]
        total = (
            prices.token * self.fresh
            + prices.attention * self.attention
            + prices.chunk_context * self.chunk_context
            + prices.row * self.rows
            + prices.held * self.held
            + self.outputs * 0.5 * (ends[0] + ends[1])
        )
        seconds: Floats = np.maximum(total, 0.0) / self.shared_by
        return seconds

    def least_latency_s(self, prices: Prices) -> Floats:
        """Seconds from its start that a call takes at least, on an engine that does nothing else: its steps."""
        alone = (1 + self.outputs) * prices.shortest_step_s
        return np.where(self.shared_by > 1, 0.0, alone)


def needs_of(calls: pa.Table, engines: list[Profile], earliest_s: Floats) -> Needs:
    """What each call of a trace needs on a fleet of `engines`, were it to arrive at `earliest_s`. Raises BadConfig."""
    engine = agreed(engines)
    caching = engine.prefix_caching
    keys = block_keys(calls, engine.block_size) if caching else content_keys(calls.num_rows)
    array, contents = call_records(calls, engine), numbered(calls["content_id"])
    order = np.argsort(earliest_s, kind="stable")
    back = np.argsort(order, kind="stable")
    first, count, same = groups(array[order], contents[order], response_keys(calls)[order])
    first_of, shared_by, alike = order[first][back], count[back], same[back]
    prompt, outputs = array["prompt"].astype(np.int64), array["output"].astype(np.int64) - 1
    largest = max(p.engine.max_num_batched_tokens for p in engines)
    hittable = (prompt - 1) // engine.block_size * engine.block_size
    cached, lonely = np.zeros_like(prompt), np.ones(len(prompt), bool)
    if caching:
        known, alone = shared_blocks(contents[order], keys, order, hittable[order], engine)
        # An execution may be that of any call that shares it: where prompts differ, only what no cache holds counts.
        cached, lonely = np.where(alike, known[back], hittable), alone[back]
    fresh = prompt - cached
    # A chunk may compute blocks of two calls; the row of a prompt's last tokens is the call's alone in any case.
    chunks = np.where(lonely & alike, -(-fresh // largest), 1)
    needs = Needs(
        arrival_s=earliest_s[first_of],
        shared_by=shared_by,
        too_long=array["status"] == state.TOO_LONG,
        prompt=prompt,
        outputs=outputs,
        fresh=fresh,
        attention=0.5 * (prompt.astype(np.float64) ** 2 - cached.astype(np.float64) ** 2),
        chunks=chunks,
        chunk_context=before_chunks(prompt, chunks, largest),
        own=fresh,
    )
    return needs if alike.all() else cheapest_of_groups(needs, first_of, alike)


def response_keys(calls: pa.Table) -> Ints:
    """Equal numbers for calls that some gateway could answer with one response, by key or by content, or by others."""
    by_content = coalescing_keys(calls, "content")
    either = coalescing_keys(calls, "key_or_content")
    if np.array_equal(by_content, either):
        return by_content
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    shift = int(by_content.max(initial=0)) + 1
    size = shift + int(either.max(initial=0)) + 1
    edges = coo_matrix((np.ones(len(either), bool), (by_content, either + shift)), shape=(size, size))
    return np.asarray(connected_components(edges, directed=False)[1], dtype=np.int64)[by_content]


def groups(array: npt.NDArray[Any], contents: Ints, keys: Ints) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """For each call: the first with its key, how many have it, and whether all of those ask the same."""
    _, first, group, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    same = np.ones(len(first), bool)
    for values in (contents, array["prompt"], array["output"]):
        np.logical_and.at(same, group, values == values[first][group])
    return first[group].astype(np.int64), count[group].astype(np.int64), same[group]


def shared_blocks(
    contents: Ints, keys: BlockKeys, rows: Ints, hittable: Ints, engine: EngineSettings
) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Prompt tokens of each call in full blocks that a call before it has as well; and whether no later one has any.

    `contents` are in the order of earliest arrival, `rows` where its calls stand in `keys`, `hittable` what a cache may
    hold of each prompt: all full blocks, but never its last token. Chained blocks are known up to some place, and not
    beyond.
    """
    n = len(contents)
    number = keys.number[rows]
    callers = np.repeat(np.arange(n), number)
    place = np.arange(len(callers)) - np.repeat(np.cumsum(number) - number, number)
    used = keys.keys[np.repeat(keys.first[rows], number) + place]
    first_holder = np.full(keys.content_base + 1, n, np.int64)
    last_holder = np.full(keys.content_base + 1, -1, np.int64)
    first_holder[used[::-1]] = callers[::-1]
    last_holder[used] = callers
    hashed = np.bincount(callers[first_holder[used] < callers], minlength=n) * engine.block_size
    later = np.bincount(callers[last_holder[used] > callers], minlength=n) > 0
    _, first_with, content, times = np.unique(contents, return_index=True, return_inverse=True, return_counts=True)
    repeats = first_with[content] < np.arange(n)  # all blocks of such a prompt are known, with a hash or without
    return np.where(repeats, hittable, np.minimum(hashed, hittable)), ~later & (times[content] == 1)


def before_chunks(prompt: Ints, chunks: Ints, largest: int) -> Floats:
    """Tokens before each of the last `chunks` chunks of a prompt at least, summed: none is larger than `largest`."""
    m = (chunks - 1).astype(np.float64)
    return np.maximum(m * prompt - 0.5 * largest * m * (m + 1.0), 0.0)


def cheapest_of_groups(needs: Needs, first_of: Ints, alike: npt.NDArray[np.bool_]) -> Needs:
    """`needs` where calls of one key that ask for different things each need no more than the least of them."""
    least = {}
    for name in ("prompt", "outputs", "fresh", "attention", "chunks", "chunk_context", "own"):
        values = getattr(needs, name)
        smallest = values.copy()
        np.minimum.at(smallest, first_of, values)
        least[name] = np.where(alike, values, smallest[first_of])
    return replace(needs, **least)
