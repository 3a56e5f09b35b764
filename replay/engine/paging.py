"""How many KV blocks tokens fill, and where in its block the replica's clock stands.

A division takes longer than anything else of a step. One by a number that is known beforehand is a multiplication by
2^shift / number, rounded up, which is exact for fewer than 2^30 tokens if 2^shift is at least 2^30 times the number
(Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994).
"""

from __future__ import annotations

from replay.engine.kernel import hot
from replay.engine.state import Replica, State

TOKENS_MOST = 1 << 30
"""More tokens than a sequence may have."""


def reciprocal(block_tokens: int) -> tuple[int, int]:
    """What tokens are multiplied by, and the bits that are then shifted out, to divide them by `block_tokens`."""
    shift = (TOKENS_MOST - 1).bit_length() + (block_tokens - 1).bit_length()
    return -(-(1 << shift) // block_tokens), shift


@hot
def full_blocks(S: State, tokens: int) -> int:
    """Blocks that so many tokens fill."""
    return tokens * S.settings.block_reciprocal >> S.settings.block_shift


@hot
def blocks_for(S: State, tokens: int) -> int:
    """Blocks that so many tokens need."""
    return full_blocks(S, tokens + S.settings.block_size - 1)


@hot
def tick(S: State, rep: Replica, steps: int, residue: int) -> None:
    """The replica's clock advances, to where it leaves `residue` when it is divided by the block size."""
    rep.clock += steps
    rep.residue = residue


@hot
def next_residue(S: State, residue: int) -> int:
    """What the next number leaves."""
    return residue + 1 if residue + 1 < S.settings.block_size else 0


@hot
def residue_of(S: State, rep: Replica, computed: int) -> int:
    """What the clock leaves at the steps in which a request needs a block that has `computed` tokens now."""
    size = S.settings.block_size
    residue = rep.residue - (computed - full_blocks(S, computed) * size)
    return residue if residue >= 0 else residue + size
