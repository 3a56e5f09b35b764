"""Profiles by name or from a file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from replay.errors import BadConfig, BadInput, UnknownName
from replay.files import write_whole
from replay.profiles.named import measured
from replay.profiles.profile import Profile
from replay.settings import converted


def find_profile(name: str) -> Profile:
    """The profile called `name`, of those shipped, or in the file of that name.

    Raises UnknownName, and BadInput for a file that holds none.
    """
    known = measured()
    if name in known:
        return known[name].profile()
    if not (name.endswith(".json") or Path(name).exists()):
        raise BadConfig(f"{UnknownName.of('profile', name, known)}; a file is named with .json")
    return load_profile(name)


def load_profile(path: str) -> Profile:
    """The profile in a JSON file. Raises BadInput that names the key."""
    try:
        return converted(msgspec.json.decode(Path(path).read_bytes()), Profile, path)
    except BadConfig as error:
        raise BadInput(str(error)) from error
    except OSError as error:
        raise BadConfig(f"{path}: cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise BadInput.at(path, f"is not an engine profile: {error}") from error


def save_profile(profile: Profile, path: str) -> None:
    """Write a profile as JSON, whole or not at all. Raises BadConfig when `path` cannot be written."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(profile), indent=2) + b"\n")
