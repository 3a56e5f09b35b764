"""The state of a run as the inner functions take it: one pointer to all that they share.

Numba passes a tuple of arrays by value, with seven words or more for each array. At some fifty arrays and as many
functions, to build and to optimize those calls is most of the time to compile. `slim` writes down once what cannot be
told from the tuple's type: of each array its address and shape, and its records as they are. An attribute of the result
is the array or the record again.

Addresses and shapes stay what they are while a kernel runs. LLVM is told so (`invariant.load`), which holds for every
function but the one that writes them down: entries make a state slim, and call others with it.
"""

from __future__ import annotations

import hashlib
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic
from numba.np.arrayobj import make_array, populate_array

WORD = ir.IntType(64)
"""What records are made of, and copied by."""


def built(function: Any) -> Any:
    """A function whose code is built instruction by instruction: see numba's `intrinsic`."""
    return intrinsic(function)


class Slim(types.Type):
    """Of a tuple with names, `whole`. Its own name is short, as a part of the names of all functions that take it."""

    def __init__(self, whole: Any) -> None:
        self.whole = whole
        digest = hashlib.sha256(whole.name.encode()).hexdigest()[:8]
        super().__init__(name=f"slim({digest})")

    def members(self) -> list[tuple[str, Any]]:
        """The tuple's names and types."""
        return list(zip(self.whole.fields, self.whole.types, strict=True))


@register_default(Slim)
class SlimModel(models.OpaqueModel):
    """A pointer."""


@infer_getattr
class SlimAttribute(AttributeTemplate):
    """An attribute has the type that it has in the tuple."""

    key = Slim

    def generic_resolve(self, slim: Any, name: str) -> Any:  # type: ignore[override]
        return dict(slim.members()).get(name)


def words(kind: Any) -> ir.Constant:
    """How many words a record has."""
    return ir.Constant(WORD, kind.size // 8)


def layout(context: Any, slim: Slim) -> tuple[ir.LiteralStructType, dict[str, int]]:
    """What is written down, and where in it each member begins: an array's shape follows its address."""
    parts: list[Any] = []
    places: dict[str, int] = {}
    for name, kind in slim.members():
        places[name] = len(parts)
        if isinstance(kind, types.Array):
            parts += map(context.get_value_type, (types.CPointer(kind.dtype), types.UniTuple(types.intp, kind.ndim)))
        else:
            parts.append(ir.ArrayType(WORD, words(kind).constant))
    return ir.LiteralStructType(parts), places


@built
def slim(_: Any, whole: Any) -> Any:
    """The state as inner functions take it, while the function runs that has made it so."""
    to = Slim(whole)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        structure, places = layout(context, to)
        memory = cgutils.alloca_once(builder, structure)
        for (name, kind), value in zip(to.members(), cgutils.unpack_tuple(builder, arguments[0]), strict=True):
            at = cgutils.gep_inbounds(builder, memory, 0, places[name])
            if isinstance(kind, types.Array):
                array = make_array(kind)(context, builder, value)
                builder.store(array.data, at)
                builder.store(array.shape, cgutils.gep_inbounds(builder, memory, 0, places[name] + 1))
            else:
                cgutils.raw_memcpy(builder, at, value, words(kind), 8)
        return builder.bitcast(memory, cgutils.voidptr_t)

    return to(whole), code


@built
def keep(_: Any, whole: Any, slim: Any) -> Any:
    """What was written to the records of a slim state is written to those of the whole one, which remains."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        structure, places = layout(context, slim)
        memory = builder.bitcast(arguments[1], structure.as_pointer())
        for (name, kind), value in zip(slim.members(), cgutils.unpack_tuple(builder, arguments[0]), strict=True):
            if isinstance(kind, types.Record):
                written = cgutils.gep_inbounds(builder, memory, 0, places[name])
                cgutils.raw_memcpy(builder, value, written, words(kind), 8)
        return context.get_dummy_value()

    return types.none(whole, slim), code


@lower_getattr_generic(Slim)
def attribute(context: Any, builder: Any, slim: Any, value: Any, name: str) -> Any:
    """The record, or an array made of its address and its shape: rows lie one after the other."""
    structure, places = layout(context, slim)
    memory = builder.bitcast(value, structure.as_pointer())
    kind = dict(slim.members())[name]
    first = cgutils.gep_inbounds(builder, memory, 0, places[name])
    if not isinstance(kind, types.Array):
        return builder.bitcast(first, context.get_value_type(kind))
    address = unchanged(builder, first)
    lengths = unchanged(builder, cgutils.gep_inbounds(builder, memory, 0, places[name] + 1))
    shape = cgutils.unpack_tuple(builder, lengths)
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides = [itemsize]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length, flags=("nsw",)))
    array = make_array(kind)(context, builder)
    populate_array(array, address, shape, strides, itemsize, None)
    return array._getvalue()


def unchanged(builder: Any, pointer: Any) -> Any:
    """What stands at `pointer`, and stays there while the function runs."""
    read = builder.load(pointer)
    read.set_metadata("invariant.load", builder.module.add_metadata([]))
    return read
