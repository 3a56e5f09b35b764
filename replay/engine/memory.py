"""Memory for large arrays: it costs nothing before it is written to, and is given back piece by piece."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

MAPPED_FROM = 4 * 2**20
"""Bytes from which on an array has a mapping of its own."""
PAGE = 2 * 2**20
"""Bytes of a large page: fewer of them are faster to get, and less is given back in vain."""


def zeros(rows: int, dtype: Any) -> npt.NDArray[Any]:
    """`rows` records of zeros. Those that are never written to take no memory, however many they are."""
    size = rows * np.dtype(dtype).itemsize
    if size < MAPPED_FROM or not hasattr(mmap, "MADV_DONTNEED"):
        return np.zeros(rows, dtype)
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapping, dtype, rows)


def release(array: npt.NDArray[Any], first: int, end: int) -> None:
    """Give back what the rows from `first` to `end` take, and nobody will read again; those before are gone too."""
    mapping = getattr(array.base, "obj", None)
    if not isinstance(mapping, mmap.mmap):
        return
    begin, stop = (min(row * array.itemsize, len(mapping)) // PAGE * PAGE for row in (first, end))
    if stop > begin:
        mapping.madvise(mmap.MADV_DONTNEED, begin, stop - begin)
