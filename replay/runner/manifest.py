"""What a run directory holds, and what is still missing in it."""

from __future__ import annotations

import msgspec

from replay.errors import BadConfig
from replay.runner.store import Store

NAME = "manifest.json"
BENEATH = "beneath"
"""Directory of a run in which runs lie that it rests on."""


class Manifest(msgspec.Struct, kw_only=True):
    """Kept up to date after each cell, so that a run that was broken off goes on where it stopped."""

    version: str
    trace_sha256: str
    settings: str
    """Digest of every setting that decides the results."""
    cells: list[str]
    done: dict[str, float] = {}
    """Seconds that each finished cell took."""
    failed: dict[str, str] = {}
    """Why a cell failed."""

    def missing(self) -> list[str]:
        """Cells that are not done."""
        return [key for key in self.cells if key not in self.done]

    def save(self, store: Store) -> None:
        store.write(NAME, msgspec.json.format(msgspec.json.encode(self), indent=1))


def open_manifest(store: Store, fresh: Manifest) -> Manifest:
    """The directory's manifest if it was made by the same run, else `fresh`.

    Raises BadConfig when the directory holds another run.
    """
    content = store.read(NAME)
    if content is None:
        if any(entry.name != BENEATH for entry in store.root.iterdir()):
            raise BadConfig(f"{store.root}: holds files that are not a run's; name another directory")
        return fresh
    try:
        found = msgspec.json.decode(content, type=Manifest)
    except msgspec.DecodeError as error:
        raise BadConfig(f"{store.root / NAME}: is not a manifest: {error}") from error
    for what, ours, theirs in (
        ("of another trace", fresh.trace_sha256, found.trace_sha256),
        ("with other settings", fresh.settings, found.settings),
        ("of another version", fresh.version, found.version),
    ):
        if ours != theirs:
            raise BadConfig(f"{store.root}: holds a run {what}; name another directory, or remove it")
    found.failed = {}
    return found
