"""Keys of an engine's prompt blocks, from the numbers of a log's blocks."""

from __future__ import annotations

from typing import Any

from replay.engine.kernel import entry


@entry
def count_keys(offsets: Any, prompts: Any, log_tokens: Any, block_tokens: int, ends: Any) -> None:
    """Where the keys of each call end: it has one for each block of `block_tokens` that its full log blocks cover.

    Log blocks `offsets[c]` to `offsets[c + 1]` are those of call c, of `log_tokens[c]` each.
    """
    total = 0
    for c in range(len(ends)):
        log_blocks = min(offsets[c + 1] - offsets[c], prompts[c] // log_tokens[c])
        total += log_blocks * log_tokens[c] // block_tokens
        ends[c] = total


@entry
def write_keys(
    numbers: Any, offsets: Any, ends: Any, log_tokens: Any, block_tokens: int, grain: int, span: int, keys: Any
) -> None:
    """The keys of all calls, one after the other; those of call c up to `ends[c]`.

    `numbers` are those of the log blocks. A key is the number of the log block that holds the last token, and that
    token's place in it, of `span` places that are `grain` tokens apart.
    """
    at = 0
    for c in range(len(ends)):
        size = log_tokens[c]
        block = offsets[c] - offsets[0]
        place = block_tokens - 1
        while at < ends[c]:
            while place >= size:
                place -= size
                block += 1
            keys[at] = numbers[block] * span + place // grain
            place += block_tokens
            at += 1
