"""What the engine does to be fast, where it could go wrong without a word."""

from __future__ import annotations

import gc
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from numba.core import codegen

from replay.engine import lean, memory
from replay.engine.paging import TOKENS_MOST, reciprocal


@given(some.integers(1, 2**20), some.integers(0, TOKENS_MOST - 1))
def test_blocks_are_counted_as_a_division_counts_them(block_tokens: int, tokens: int) -> None:
    factor, shift = reciprocal(block_tokens)
    for number in (tokens, tokens // block_tokens * block_tokens, max(tokens // block_tokens * block_tokens - 1, 0)):
        assert number * factor >> shift == number // block_tokens
        assert number * factor < 2**63


@pytest.mark.parametrize("rows", [1, 100_000, 300_000, 3_000_000])
def test_arrays_are_blank_and_large_ones_begin_at_a_large_page(rows: int) -> None:
    array = memory.zeros(rows, np.int64)
    assert len(array) == rows
    assert not array.any()
    if array.nbytes >= memory.MAPPED_FROM and hasattr(memory.mmap, "MADV_DONTNEED"):
        assert array.ctypes.data % memory.PAGE == 0


def test_what_was_given_back_is_blank_and_the_rest_is_not() -> None:
    array = memory.zeros(3_000_000, np.int64)
    array[:] = 7
    memory.release(array, 0, 1_500_000)
    assert (array[1_500_000:] == 7).all()
    mapped = hasattr(memory.mmap, "MADV_DONTNEED")
    if mapped:
        assert (array[:1_000_000] == 0).all()
    memory.release(array)
    assert (array == 0).all() or not mapped


def test_numba_is_as_it_was_when_an_entry_has_been_compiled() -> None:
    before = [getattr(getattr(module, kind) if kind else module, name) for module, kind, name, _ in lean.PATCHED]
    with suppress(ZeroDivisionError), lean.compiling_once():
        assert not gc.isenabled()
        raise ZeroDivisionError
    assert gc.isenabled()
    after = [getattr(getattr(module, kind) if kind else module, name) for module, kind, name, _ in lean.PATCHED]
    assert before == after


def test_a_numba_with_other_names_inside_compiles_as_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean, "PATCHED", (*lean.PATCHED, (codegen, "NoSuchLibrary", "finalize", lean.link_only)))
    finalize = codegen.JITCodeLibrary.finalize
    with lean.compiling_once():
        assert codegen.JITCodeLibrary.finalize is finalize
