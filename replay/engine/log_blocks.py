"""Keys of an engine's prompt blocks, from the numbers of a log's blocks."""

from __future__ import annotations

from typing import Any

from replay.engine.kernel import entry


@entry
def write_keys(
    numbers: Any,
    first: Any,
    start: Any,
    count: Any,
    log_tokens: Any,
    block_tokens: int,
    grain: int,
    span: int,
    keys: Any,
) -> None:
    """For each call, `count` keys of blocks of `block_tokens`, from place `start` of `keys`.

    `numbers`, from place `first`, are those of its log blocks of `log_tokens` each. A key is the number of the log
    block that holds the last token, and that token's place in it, of `span` places that are `grain` tokens apart.
    """
    for c in range(len(count)):
        for k in range(count[c]):
            last_token = (k + 1) * block_tokens - 1
            block = last_token // log_tokens[c]
            place = (last_token - block * log_tokens[c]) // grain
            keys[start[c] + k] = numbers[first[c] + block] * span + place
