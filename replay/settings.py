"""From settings, as files and flags give them, to records: a wrong key or value is named, and what is valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

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
        raise BadConfig(f"{where}: {complaint(error, prefix)}") from error


def check_keys(settings: Mapping[Any, Any], kind: Any, where: str, prefix: str = "") -> None:
    """Raise BadConfig for a key that `kind`, a Struct, does not have, at any depth."""
    valid = {f.name: f.type for f in msgspec.structs.fields(kind)}
    for key, value in settings.items():
        if key not in valid:
            known = [prefix + name for name in valid]
            raise BadConfig(f"{where}: {UnknownName.of('key', f'{prefix}{key}', known)}")
        inner = [t for t in (valid[key], *getattr(valid[key], "__args__", ())) if is_struct(t)]
        if inner and isinstance(value, Mapping):
            check_keys(value, inner[0], where, f"{prefix}{key}.")


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def complaint(error: msgspec.ValidationError, prefix: str = "") -> str:
    """The words of msgspec, the key first: "fleet.replicas: expected `int` >= 1"."""
    problem, _, place = str(error).partition(" - at `$")
    problem = problem[0].lower() + problem[1:]
    key = (prefix + place.strip("`.")).strip(".")
    return f"{key}: {problem}" if key else problem
