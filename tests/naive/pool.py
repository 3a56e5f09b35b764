"""The KV pool of one replica: an ordered queue of free blocks, and the blocks that answer to a key."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

Key = tuple[Any, ...]


class Pool:
    """Blocks 1 ... num_blocks - 1. `holders[b]`: executions that hold block b."""

    def __init__(self, num_blocks: int, caching: bool, all_to_the_back: bool = False) -> None:
        self.caching, self.all_to_the_back = caching, all_to_the_back
        self.free: OrderedDict[int, None] = OrderedDict((b, None) for b in range(1, num_blocks))
        self.holders: dict[int, list[Any]] = {b: [] for b in self.free}
        self.key: dict[int, Key] = {}
        self.answers: dict[Key, OrderedDict[int, None]] = {}
        self.producer: dict[int, Any] = {}
        self.allocated = self.released = 0

    def find(self, key: Key) -> int | None:
        """The oldest block with `key`."""
        return next(iter(self.answers.get(key, ())), None)

    def take(self, holder: Any) -> int:
        """The block at the front of the free queue, which forgets what it held."""
        block, _ = self.free.popitem(last=False)
        if block in self.key:
            key = self.key.pop(block)
            del self.answers[key][block]
        self.holders[block].append(holder)
        self.allocated += 1
        return block

    def touch(self, block: int, holder: Any) -> None:
        """Hold a block that a prefix lookup found."""
        self.free.pop(block, None)
        self.holders[block].append(holder)
        self.allocated += 1

    def publish(self, block: int, key: Key, producer: Any) -> None:
        """A full block can be hit from now on."""
        if self.caching:
            self.key[block] = key
            self.answers.setdefault(key, OrderedDict())[block] = None
            self.producer[block] = producer

    def release(self, blocks: list[int], holder: Any) -> None:
        """From the tail to the head; those without a key go to the front of the queue, the others to its back."""
        front, back = [], []
        for block in reversed(blocks):
            self.holders[block].remove(holder)
            self.released += 1
            if not self.holders[block]:
                (back if block in self.key or self.all_to_the_back else front).append(block)
        for block in reversed(front):
            self.free[block] = None
            self.free.move_to_end(block, last=False)
        for block in back:
            self.free[block] = None
