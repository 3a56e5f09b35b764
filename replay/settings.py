"""From settings, as files and flags give them, to records: a wrong key or value is named, and what is valid."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from replay.errors import BadConfig, UnknownName

Record = TypeVar("Record")


def converted(settings: Any, kind: type[Record], where: str, prefix: str = "") -> Record:
    """`settings` as a record of `kind`; `prefix` is the key under which they stand.

    Raises BadConfig that names the key, and for one that does not exist the nearest valid ones.
    """
    if isinstance(settings, Mapping):
        check_keys(settings, kind, where, prefix)
    try:
        return msgspec.convert(settings, kind)
    except msgspec.ValidationError as error:
        raise BadConfig(f"{where}: {complaint(error, kind, prefix)}") from error


def check_keys(settings: Mapping[Any, Any], kind: Any, where: str, prefix: str = "") -> None:
    """Raise BadConfig for a key that `kind`, a Struct, does not have, at any depth."""
    valid = {f.name: f.type for f in msgspec.structs.fields(kind)}
    for key, value in settings.items():
        if key not in valid:
            known = [prefix + name for name in valid]
            raise BadConfig(f"{where}: {UnknownName.of('key', f'{prefix}{key}', known)}")
        for inner in structs_in(valid[key])[:1]:
            for place, part in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(part, Mapping):
                    index = f"[{place}]" if isinstance(value, list) else ""
                    check_keys(part, inner, where, f"{prefix}{key}{index}.")


def structs_in(kind: Any) -> list[type[msgspec.Struct]]:
    """The records that a value of type `kind` may hold."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [found for inner in getattr(kind, "__args__", ()) for found in structs_in(inner)]


def complaint(error: msgspec.ValidationError, kind: Any, prefix: str = "") -> str:
    """The words of msgspec about a `kind`, the key first: "fleet.replicas: expected `int` >= 1"."""
    problem, _, place = str(error).partition(" - at `$")
    problem = problem[0].lower() + problem[1:]
    place = place.strip("`.")
    if problem.startswith("invalid enum value"):
        problem += f"; valid: {', '.join(choices_at(kind, place))}"
    key = (prefix + place).strip(".")
    return f"{key}: {problem}" if key else problem


def choices_at(kind: Any, place: str) -> list[str]:
    """The words that a key may have, such as `client.timeout_kind` of a policy."""
    for name in re.sub(r"\[[^]]*\]", "", place).split("."):
        fields = {field.name: field.type for record in structs_in(kind) for field in msgspec.structs.fields(record)}
        kind = fields.get(name, kind)
    return [str(word) for word in words_in(kind)]


def words_in(kind: Any) -> list[Any]:
    """The values of the Literals in a type."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [word for inner in get_args(kind) for word in words_in(inner)]
