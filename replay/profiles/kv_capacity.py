"""How many KV blocks fit on a GPU beside the model."""

from __future__ import annotations

GIB = 1 << 30
MEMORY_GIB = {"h100-sxm": 79.1}
"""Memory that the driver reports, by GPU: less than the nominal size."""
UTILIZATION = 0.9
"""vLLM's default `gpu_memory_utilization`."""
OTHER_GIB = 1.2
"""Activations, graphs and the rest: fits four logs of vLLM on H100 within 1.5%."""


def num_blocks(
    memory_gib: float,
    weights_gib: float,
    kv_bytes_per_token: int,
    block_size: int,
    *,
    utilization: float = UTILIZATION,
    other_gib: float = OTHER_GIB,
) -> int:
    """Blocks of `block_size` tokens in what weights and the rest leave of the memory that the engine may use.

    `floor((utilization * memory - weights - other) / (block_size * bytes per token))`. Raises ValueError when nothing
    is left.
    """
    left = (utilization * memory_gib - weights_gib - other_gib) * GIB
    blocks = int(left // (block_size * kv_bytes_per_token))
    if blocks < 2:
        raise ValueError(f"{weights_gib:g} GiB of weights leave no room for KV blocks in {memory_gib:g} GiB")
    return blocks
