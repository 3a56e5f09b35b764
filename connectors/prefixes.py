"""Block hashes of prompts: whether they can be of blocks of a size, and what they say of a prompt's beginning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

CONTEXT_TOKENS_MOST = 10_000_000
"""A longer context is a mistake."""
NO_BLOCKS = np.zeros(0, np.uint64)
ODD = np.uint64(0x9E3779B97F4A7C15)


def misfits(prompt_tokens: pa.ChunkedArray, hashes: pa.ChunkedArray, block_tokens: int) -> npt.NDArray[np.bool_]:
    """Prompts that cannot have as many blocks of `block_tokens` as they have hashes; the last block may be partial."""
    blocks = pc.divide(prompt_tokens.cast(pa.float64()), float(block_tokens))
    count = pc.list_value_length(hashes)
    wrong = pc.or_(pc.less(count, pc.floor(blocks)), pc.greater(count, pc.ceil(blocks)))
    return np.asarray(pc.fill_null(pc.and_(pc.greater(blocks, 0), wrong), False))


def chained(hashes: pa.ListArray) -> pa.ListArray:
    """Hashes of blocks each as hashes of everything up to the block's end: equal where all blocks up to it are.

    h[k] = mix(h[k-1] * odd + hash[k]) in 64 bits, mix being the finalizer of splitmix64 (Steele et al., Fast splittable
    pseudorandom number generators, OOPSLA 2014).
    """
    lengths = np.asarray(pc.fill_null(pc.list_value_length(hashes), 0), dtype=np.int64)
    values = np.asarray(hashes.flatten()).astype(np.uint64)
    first = np.cumsum(lengths) - lengths
    state = np.zeros(len(lengths), np.uint64)
    by_length = np.argsort(-lengths, kind="stable")
    longest = -lengths[by_length]
    for place in range(int(lengths.max(initial=0))):
        rows = by_length[: np.searchsorted(longest, -place, side="left")]
        at = first[rows] + place
        state[rows] = values[at] = mixed(state[rows] * ODD + values[at])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=hashes.is_null())


def mixed(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The finalizer of splitmix64: each bit of the result depends on every bit of `x`."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def lists_of(hashes: Sequence[npt.NDArray[np.uint64] | None]) -> pa.ListArray:
    """Lists of hashes as a column."""
    offsets = np.cumsum([0, *(0 if one is None else len(one) for one in hashes)], dtype=np.int32)
    values = np.concatenate([NO_BLOCKS, *(one for one in hashes if one is not None)])
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.array(values), mask=pa.array([one is None for one in hashes], pa.bool_())
    )


class Contexts:
    """Block hashes of sessions whose log says how much of the context before each prompt begins with."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.known: dict[str, npt.NDArray[np.uint64]] = {}
        self.unused = 0
        """The smallest number that no block has."""

    def blocks(
        self, session: str | None, kept: float | None, prompt: float | None, output: float | None
    ) -> npt.NDArray[np.uint64] | None:
        """Hashes of a prompt's full blocks, of which the first `kept` tokens stand in the session already.

        None where a length is no length. The response becomes part of what the next prompt may begin with.
        """
        if session is None or kept is None or prompt is None or output is None:
            return None
        if not all(0.0 <= size <= CONTEXT_TOKENS_MOST for size in (kept, prompt, output)):
            return None
        in_blocks, in_prompt, in_all = (int(size) // self.block_tokens for size in (kept, prompt, prompt + output))
        before = self.known.get(session, NO_BLOCKS)[:in_blocks]
        fresh = np.arange(self.unused, self.unused + max(in_all - len(before), 0), dtype=np.uint64)
        self.unused += len(fresh)
        self.known[session] = np.concatenate([before, fresh])
        return self.known[session][:in_prompt]
