"""The state of a run as the inner functions take it: of each array where it lies and how long it is, and no more.

Numba passes a tuple of arrays by value, with seven words or more for each array. At some fifty arrays and as many
functions, to build and to optimize those calls is most of the time to compile. `slim` takes from the tuple what cannot
be told from its type; an attribute of the result is the array again.
"""

from __future__ import annotations

import hashlib
from typing import Any

from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic
from numba.np.arrayobj import make_array, populate_array


def built(function: Any) -> Any:
    """A function whose code is built instruction by instruction: see numba's `intrinsic`."""
    return intrinsic(function)


class Slim(types.Type):
    """Of a tuple with names, `whole`. Its own name is short, as a part of the names of all functions that take it."""

    def __init__(self, whole: Any) -> None:
        self.whole = whole
        digest = hashlib.sha256(whole.name.encode()).hexdigest()[:8]
        super().__init__(name=f"slim({digest})")


@register_default(Slim)
class SlimModel(models.StructModel):
    """A pointer for each record; a pointer and a shape for each array; and where in memory all of it lies, too."""

    def __init__(self, manager: Any, slim: Any) -> None:
        members: list[tuple[str, Any]] = [("place", types.voidptr)]
        for name, kind in zip(slim.whole.fields, slim.whole.types, strict=True):
            if isinstance(kind, types.Array):
                shape = types.UniTuple(types.intp, kind.ndim)
                members += [(name, types.CPointer(kind.dtype)), (f"{name} shape", shape)]
            else:
                members.append((name, kind))
        super().__init__(manager, slim, members)


@infer_getattr
class SlimAttribute(AttributeTemplate):
    """An attribute has the type that it has in the tuple."""

    key = Slim

    def generic_resolve(self, slim: Any, name: str) -> Any:  # type: ignore[override]
        if name in slim.whole.fields:
            return slim.whole.types[slim.whole.fields.index(name)]
        return None


@lower_getattr_generic(Slim)
def attribute(context: Any, builder: Any, slim: Any, value: Any, name: str) -> Any:
    """The record, or an array made of its pointer and its shape: rows lie one after the other."""
    kind = slim.whole.types[slim.whole.fields.index(name)]
    parts = cgutils.create_struct_proxy(slim)(context, builder, value=value)
    if not isinstance(kind, types.Array):
        return getattr(parts, name)
    shape = cgutils.unpack_tuple(builder, getattr(parts, f"{name} shape"), kind.ndim)
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides = [itemsize]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length, flags=("nsw",)))
    array = make_array(kind)(context, builder)
    populate_array(array, getattr(parts, name), shape, strides, itemsize, None)
    return array._getvalue()


@built
def slim(_: Any, whole: Any) -> Any:
    """The state, as inner functions take it."""
    to = Slim(whole)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        parts = cgutils.create_struct_proxy(to)(context, builder)
        for k, (name, kind) in enumerate(zip(whole.fields, whole.types, strict=True)):
            value = builder.extract_value(arguments[0], k)
            if isinstance(kind, types.Array):
                array = make_array(kind)(context, builder, value)
                setattr(parts, f"{name} shape", array.shape)
                value = array.data
            setattr(parts, name, value)
        place = cgutils.alloca_once(builder, parts._be_type)
        parts.place = builder.bitcast(place, cgutils.voidptr_t)
        builder.store(parts._getvalue(), place)
        return parts._getvalue()

    return to(whole), code


class Place(types.Type):
    """Where a slim state lies in memory."""

    def __init__(self, slim: Slim) -> None:
        self.slim = slim
        super().__init__(name=f"place of {slim.name}")


@register_default(Place)
class PlaceModel(models.OpaqueModel):
    """A pointer."""


@built
def place_of(_: Any, value: Any) -> Any:
    """Where a slim state lies: what is passed to functions that are called."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return cgutils.create_struct_proxy(value)(context, builder, value=arguments[0]).place

    return Place(value)(value), code


@built
def slim_at(_: Any, place: Any) -> Any:
    """The slim state that lies there, read word by word: those that a function does not use are not read."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = context.get_value_type(place.slim)
        return words(builder, builder.bitcast(arguments[0], kind.as_pointer()))

    return place.slim(place), code


def words(builder: Any, pointer: Any) -> Any:
    """The value at `pointer`, made of its words."""
    kind = pointer.type.pointee
    if not hasattr(kind, "elements") or not kind.elements:
        return builder.load(pointer)
    value = cgutils.get_null_value(kind)
    for k in range(len(kind.elements)):
        value = builder.insert_value(value, words(builder, cgutils.gep_inbounds(builder, pointer, 0, k)), k)
    return value
