"""Copying the letters of a word in compiled code: a loop over bytes would take longer than all else of a row."""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types
from numba.np.arrayobj import make_array

from replay.engine.slim import built

LETTERS_MAX = 24
"""Room for the longest word. All of it is copied, and the next word is written over what is too much."""


@built
def copy_letters(_: Any, to: Any, at: Any, spelling: Any, code: Any) -> Any:
    """Copy row `code` of `spelling`, LETTERS_MAX bytes, to `to[at:]`."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        letters, place, spellings, row = arguments
        start = builder.gep(make_array(to)(context, builder, letters).data, [place])
        word = make_array(spelling)(context, builder, spellings).data
        size = context.get_constant(types.intp, LETTERS_MAX)
        first = builder.mul(context.cast(builder, row, code, types.intp), size)
        cgutils.raw_memcpy(builder, start, builder.gep(word, [first]), size, 1)
        return context.get_dummy_value()

    return types.void(to, at, spelling, code), build
