"""Memory for large arrays: it costs nothing before it is written to, and is given back piece by piece."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

MAPPED_FROM = 2**19
"""Bytes from which on an array has a mapping of its own."""
ROWS_AT_ONCE = 65_536
"""Rows of an array that are moved elsewhere before they are given back."""
LINE, SKEW_LINES = 64, 5
"""Bytes of a cache line, and lines between two columns: were all to start at the same place of a page, the lines of one
row would compete for the same places of the cache."""
PAGE = 2 * 2**20
"""Bytes of a large page: fewer of them are faster to get, and less is given back in vain."""


def zeros(rows: int, dtype: Any) -> npt.NDArray[Any]:
    """`rows` records of zeros. Those that are never written to take no memory, however many they are."""
    size = rows * np.dtype(dtype).itemsize
    if size < MAPPED_FROM or not hasattr(mmap, "MADV_DONTNEED"):
        return np.zeros(rows, dtype)
    mapping = mmap.mmap(-1, (size + PAGE - 1) // PAGE * PAGE + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapping, dtype, rows, offset=first_page(mapping))


def counted(rows: int) -> npt.NDArray[np.int64]:
    """0, 1, 2, ..."""
    numbers = zeros(rows, np.int64)
    for first in range(0, rows, ROWS_AT_ONCE):
        part = numbers[first : first + ROWS_AT_ONCE]
        part[:] = np.arange(first, first + len(part))
    return numbers


def first_page(mapping: mmap.mmap) -> int:
    """Where the first large page of a mapping begins: what lies before it would be had in small ones."""
    return -np.frombuffer(mapping, np.uint8).ctypes.data % PAGE


def release(array: npt.NDArray[Any], first: int = 0, end: int | None = None) -> None:
    """Give back what the rows from `first` to `end` take, and nobody will read again; those before are gone too."""
    mapping = getattr(array.base, "obj", None)
    if not isinstance(mapping, mmap.mmap):
        return  # it is small, or a view of another array
    rows = (first, len(array) if end is None else end)
    begin, stop = (min(row * array.itemsize // PAGE * PAGE, len(mapping) - PAGE) for row in rows)
    if end is None:
        stop = len(mapping) - PAGE
    if stop > begin:
        mapping.madvise(mmap.MADV_DONTNEED, first_page(mapping) + begin, stop - begin)
