"""Compiling once, not at every level: inner functions become machine code only as parts of the entry that calls them.

Numba optimizes and emits each function by itself and then again inside every caller. The engine's inner functions are
called by nothing but each other, so that for them this is half of the time to compile. While an entry is compiled, they
are only linked into their callers, and all of it is optimized once, at the entry.

An inner function is compiled once, with 64 bits for each integer that it is given: callers have fields of all sizes,
and constants, for each of which numba would compile it again.

Loops are neither unrolled nor made into vector code: those of a scheduler turn a few times and branch, so that it would
be for nothing. Python's garbage collector waits: what is alive while numba compiles stays so until it has.

Nor do indices count from the end where they are negative: the engine has none that are, and to look costs at each.

This reaches into numba (`PATCHED`); where its names have changed, functions compile as ever, only longer.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm
from numba.core import codegen, dispatcher, lowering, types
from numba.cpython import slicing

INNER: set[str] = set()
"""Qualified names of the inner functions, which are the names of their libraries."""

CALLED: set[str] = set()
"""Those of them that are called, and not inlined, by `full_name`: another module may inline one of the same name."""


def full_name(module: str, name: str) -> str:
    """A function's module and qualified name."""
    return f"{module}.{name}"


def link_only(finalize: Any) -> Any:
    """`finalize` that leaves the library of an inner function linked with what it calls, and no more."""

    def linked(library: Any) -> None:
        if library.name not in INNER:
            finalize(library)
            return
        for used in dict.fromkeys(library._linking_libraries):
            library._reload_init.update(used._reload_init)
            library._final_module.link_in(used._get_module_for_linking(), preserve=True)
        library._finalize_dynamic_globals()
        library._finalized = True

    return linked


def called_if_cold(setup: Any) -> Any:
    """`setup_function` that forbids to inline what is to be called."""

    def set_up(lowering: Any, description: Any) -> None:
        setup(lowering, description)
        if full_name(description.modname, description.qualname) in CALLED:
            lowering.function.attributes.add("noinline")

    return set_up


def no_pointer(get_pointer: Any) -> Any:
    """`get_pointer_to_function` that knows no machine code of inner functions."""

    def pointer(library: Any, name: str) -> int:
        if library.name not in INNER:
            found: int = get_pointer(library, name)
            return found
        library._ensure_finalized()
        return 0

    return pointer


def if_emitted(set_env: Any) -> Any:
    """`set_env` for functions that were emitted."""

    def environment(self: Any, name: str, env: Any) -> None:
        if self._engine.get_global_value_address(name):
            set_env(self, name, env)

    return environment


def as_it_is(_: Any) -> Any:
    """`fix_index` that takes an index as it is."""

    def index(_builder: Any, index: Any, _size: Any) -> Any:
        return index

    return index


def one_kind_of_integer(get_template: Any) -> Any:
    """`get_call_template` that gives an inner function 64 bits for each integer, whatever the caller has."""

    def wide(kind: Any) -> Any:
        kind = types.unliteral(kind)
        return types.int64 if kind in types.signed_domain else kind

    def template(function: Any, arguments: Any, keywords: Any) -> Any:
        if function.py_func.__qualname__ in INNER:
            arguments = tuple(map(wide, arguments))
        return get_template(function, arguments, keywords)

    return template


def plain_loops(_: Any) -> Any:
    """`create_pass_builder` for code whose loops stay as they are."""

    def builder(machine: Any, opt: int = 2, **_: Any) -> Any:
        options = llvm.create_pipeline_tuning_options(opt)
        options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
        return llvm.create_pass_builder(machine, options)

    return builder


PATCHED = (
    (lowering, "BaseLower", "setup_function", called_if_cold),
    (dispatcher, "_DispatcherBase", "get_call_template", one_kind_of_integer),
    (codegen, "JITCodeLibrary", "finalize", link_only),
    (codegen, "JITCodeLibrary", "get_pointer_to_function", no_pointer),
    (codegen, "JITCPUCodegen", "set_env", if_emitted),
    (codegen, None, "create_pass_builder", plain_loops),
    (slicing, None, "fix_index", as_it_is),
)
"""Module, class, name, and what makes its replacement of the original."""


@contextmanager
def compiling_once() -> Iterator[None]:
    """Entries that are compiled within are compiled so."""
    try:
        owners = [getattr(module, kind) if kind else module for module, kind, _, _ in PATCHED]
        originals = [getattr(owner, name) for owner, (_, _, name, _) in zip(owners, PATCHED, strict=True)]
    except AttributeError:
        yield
        return
    collects = gc.isenabled()
    gc.disable()
    for owner, (_, _, name, make), original in zip(owners, PATCHED, originals, strict=True):
        setattr(owner, name, make(original))
    try:
        yield
    finally:
        if collects:
            gc.enable()
        for owner, (_, _, name, _), original in zip(owners, PATCHED, originals, strict=True):
            setattr(owner, name, original)
