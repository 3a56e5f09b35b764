"""Profiles by name, from a file, or guessed; and settings laid over them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from replay.errors import BadConfig, BadInput
from replay.files import write_whole
from replay.profiles.forms import plain_form
from replay.profiles.guess import profile_of
from replay.profiles.kv_capacity import num_blocks
from replay.profiles.named import measured, named_profile
from replay.profiles.presets import as_in_vllm, preset
from replay.profiles.profile import EngineSettings, Profile
from replay.settings import converted


def find_profile(name: str) -> Profile:
    """The profile called `name`, of those shipped, or in the file of that name; else one guessed from the nearest.

    `GPU/MODEL/tpN/DTYPE/ENGINE` may be written with any name that people give its parts. Raises BadConfig when there
    is none and nothing near, and BadInput for a file that holds none.
    """
    if name in measured():
        return named_profile(name)
    if name.endswith(".json") or Path(name).is_file():
        return load_profile(name)
    return profile_of(name)


def load_profile(path: str) -> Profile:
    """The profile in a JSON file, in any form of step times. Raises BadInput that names the key."""
    try:
        content = msgspec.json.decode(Path(path).read_bytes())
        if isinstance(content, dict):
            content = plain_form(content, path)
        return converted(content, Profile, path)
    except BadConfig as error:
        raise BadInput(str(error)) from error
    except OSError as error:
        raise BadConfig(f"{path}: cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise BadInput.at(path, f"is not an engine profile: {error}") from error


def save_profile(profile: Profile, path: str) -> None:
    """Write a profile as JSON, whole or not at all. Raises BadConfig when `path` cannot be written."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(profile), indent=2) + b"\n")


def with_settings(profile: Profile, settings: Mapping[str, Any], where: str = "settings") -> Profile:
    """`profile` with `settings` of its engine in the place of its own.

    `preset` names an engine whose settings stand below the others. With another share of the memory or other blocks,
    the pool has as many blocks as fit then, unless `settings` say `num_blocks`. Raises BadConfig for a setting that is
    wrong, or a pool that nobody can size.
    """
    settings = dict(settings)
    if "preset" in settings:
        settings = {**as_in_vllm(), **preset(str(settings.pop("preset"))).settings, **settings}
    together = {**msgspec.to_builtins(profile.engine), **settings}
    engine = converted(together, EngineSettings, where, "engine.")
    if "num_blocks" not in settings:
        if profile.memory is not None:
            if {"gpu_memory_utilization", "block_size"} & settings.keys():
                engine = sized(profile, engine, where)
        elif "gpu_memory_utilization" in settings:
            raise BadConfig(
                f"{where}: engine.gpu_memory_utilization: profile {profile.name} does not know the memory of its GPU; "
                "give engine.num_blocks"
            )
    return msgspec.structs.replace(profile, engine=engine)


def sized(profile: Profile, engine: EngineSettings, where: str) -> EngineSettings:
    """`engine` with the blocks that fit beside the model. Raises BadConfig."""
    assert profile.memory is not None
    try:
        blocks = num_blocks(profile.memory, engine.gpu_memory_utilization, engine.block_size)
    except ValueError as error:
        raise BadConfig(f"{where}: engine.gpu_memory_utilization: {error}") from error
    return msgspec.structs.replace(engine, num_blocks=blocks)
