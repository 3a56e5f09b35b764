"""How many KV blocks fit on a GPU beside the model."""

from __future__ import annotations

from replay.profiles.profile import Memory

GIB = 1 << 30


def num_blocks(memory: Memory, utilization: float, block_size: int) -> int:
    """Blocks of `block_size` tokens in what weights and the rest leave of the memory that the engine may use.

    `floor((utilization * memory - weights - other) / (block_size * bytes per token))`. `Memory.other_gib` is 1.2 GiB
    by default, which fits four logs of vLLM on H100 within 1.5%; it is what is least known, so that a small pool is
    least certain. Raises ValueError when nothing is left.
    """
    left = (utilization * memory.gpu_gib - memory.weights_gib - memory.other_gib) * GIB
    blocks = int(left // (block_size * memory.kv_bytes_per_token))
    if blocks < 2:
        raise ValueError(
            f"{memory.weights_gib:g} GiB of weights leave no room for KV blocks in {utilization:g} of the "
            f"{memory.gpu_gib:g} GiB of a GPU"
        )
    return blocks
