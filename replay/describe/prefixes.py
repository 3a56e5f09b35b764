"""How much of the prompts has been seen before: what a prefix cache could save, were it never full."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trace_schema.columns import is_empty


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """Prefixes that calls share, by the block hashes of the log."""

    calls: int
    """Calls whose blocks the log tells."""
    block_tokens: int
    """Tokens in a block; 0 where the log's blocks differ."""
    blocks: int
    seen_before: int
    """Blocks that an earlier call had: hashes are chained, so that each is a prefix as well."""
    reusable_prompt_share: float
    """Share of these calls' prompt tokens in such blocks."""
    calls_with_a_known_prefix: int
    """Calls whose first block an earlier call had."""
    commonest_prefix_calls: int
    """Calls that begin with the commonest first block: a system prompt, most likely."""


def sharing(calls: pa.Table) -> Sharing | None:
    """What the calls (in order of arrival) share; None where the log has no block hashes."""
    if is_empty(calls["block_hashes"]):
        return None
    told = calls.select(["block_hashes", "hash_block_tokens", "prompt_tokens"]).filter(
        pc.greater(pc.fill_null(pc.list_value_length(calls["block_hashes"]), 0), 0)
    )
    lists = told["block_hashes"].combine_chunks()
    sizes = np.asarray(pc.list_value_length(lists), np.int64)
    blocks = np.asarray(lists.flatten())
    new = np.zeros(len(blocks), bool)
    new[np.unique(blocks, return_index=True)[1]] = True
    first = np.cumsum(sizes) - sizes
    known = np.add.reduceat(~new, first) if len(first) else np.zeros(0, np.int64)
    tokens = np.asarray(pc.fill_null(told["hash_block_tokens"], 0), np.int64)
    prompts = np.asarray(told["prompt_tokens"], np.int64)
    reusable = np.minimum(known * tokens, prompts)
    _, begin = np.unique(blocks[first], return_counts=True)
    return Sharing(
        calls=told.num_rows,
        block_tokens=int(tokens[0]) if len(tokens) and (tokens == tokens[0]).all() else 0,
        blocks=len(blocks),
        seen_before=int((~new).sum()),
        reusable_prompt_share=float(reusable.sum() / max(int(prompts.sum()), 1)),
        calls_with_a_known_prefix=int((~new[first]).sum()),
        commonest_prefix_calls=int(begin.max(initial=0)),
    )
