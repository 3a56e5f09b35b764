"""Which blocks and contents are the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from replay.engine.identity import block_keys, numbered
from replay.engine.intake import coalescing_keys
from replay.errors import BadInput

Identity = tuple[int, int]


def identities(row: dict[str, object], block_tokens: int) -> list[Identity]:
    """For each engine block that full log blocks cover: the hash over its last token, and how far into that block."""
    hashes, size, prompt = row["block_hashes"], row["hash_block_tokens"] or block_tokens, row["prompt_tokens"]
    assert isinstance(size, int)
    assert isinstance(prompt, int)
    found: list[Identity] = []
    while isinstance(hashes, list):
        last = (len(found) + 1) * block_tokens - 1
        if last >= prompt or last // size >= min(len(hashes), prompt // size):
            break
        found.append((hashes[last // size], last % size))
    return found


@pytest.mark.parametrize("scale", [1, 10**15])
@pytest.mark.parametrize("block_tokens", [16, 24])
def test_blocks_have_equal_keys_where_the_log_says_that_they_are_the_same(scale: int, block_tokens: int) -> None:
    rng = np.random.default_rng(block_tokens)
    rows: list[dict[str, object]] = []
    for _ in range(60):
        hashes = None if rng.random() < 0.2 else [int(h) * scale for h in rng.integers(0, 9, rng.integers(0, 7))]
        size = [8, 16, 32, None][rng.integers(0, 4)]
        rows.append({"prompt_tokens": int(rng.integers(1, 150)), "block_hashes": hashes, "hash_block_tokens": size})
    schema = pa.schema(
        [("prompt_tokens", pa.int32()), ("block_hashes", pa.list_(pa.uint64())), ("hash_block_tokens", pa.int32())]
    )
    keys = block_keys(pa.Table.from_pylist(rows, schema), block_tokens)
    known: dict[Identity, int] = {}
    for row, first, number in zip(rows, keys.first, keys.number, strict=True):
        wanted = identities(row, block_tokens)
        assert number == len(wanted)
        for identity, key in zip(wanted, keys.keys[first : first + number].tolist(), strict=True):
            assert known.setdefault(identity, key) == key
            assert 0 <= key < keys.content_base
    assert len(set(known.values())) == len(known) > 20


def test_numbers_are_equal_for_equal_values_alone() -> None:
    for values in ([5, 0, 5, 3], [10**15, 7, 10**15, -4], ["b", "a", "b", None], [None, None]):
        numbers = numbered(pa.array(values)).tolist()
        assert min(numbers) >= 0
        assert max(numbers) < 1_000
        assert [[a == b for b in values] for a in values] == [[a == b for b in numbers] for a in numbers]


def test_calls_coalesce_by_tenant_model_and_content_or_by_a_key_of_their_own() -> None:
    table = pa.table(
        {
            "content_id": [1, 1, 2, 1, 1, 2],
            "tenant": ["a", "a", "a", "b", None, "a"],
            "idempotency_key": pa.array([None, None, None, None, "k", "k"]),
        }
    )
    keys = coalescing_keys(table).tolist()
    assert keys[0] == keys[1]
    assert keys[4] == keys[5]
    assert len({keys[0], keys[2], keys[3], keys[4]}) == 4


def test_more_different_blocks_than_can_be_told_apart_are_refused() -> None:
    table = pa.table(
        {
            "prompt_tokens": [2**31 - 1] * 3,
            "block_hashes": pa.array([[1], [2], [3]], pa.list_(pa.uint64())),
            "hash_block_tokens": pa.array([2**30] * 3, pa.int32()),
        }
    )
    with pytest.raises(BadInput, match="block_hashes"):
        block_keys(table, 1)
