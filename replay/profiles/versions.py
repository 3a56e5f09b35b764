"""Which rules vLLM's scheduler had, by version.

Read from its sources, and held against its own classes step by step (scripts/record_schedules.py): 0.12, 0.13, 0.18,
0.19, 0.21, 0.22, 0.24, and 0.30 to 0.33.
"""

from __future__ import annotations

import re
from typing import Any, Literal

Version = tuple[int, int]

FIRST: Version = (0, 2)
"""Lower numbers are of builds that do not know theirs (0.1.dev1)."""
ASYNC_SINCE: Version = (0, 13)
UNTIL: tuple[tuple[Version, str, Any], ...] = (
    ((0, 12), "aborts_read", "loop_top"),
    ((0, 18), "admission_needs", "chunk"),
    ((0, 22), "freed_blocks_go", "to_the_back"),
    ((0, 27), "eviction_skips", True),
    ((0, 30), "long_prefill_alone", "chunked"),
)
"""The last version in which a setting of `EngineSettings` was other than it is by default."""
SINCE: tuple[tuple[Version, str, Any], ...] = (((0, 33), "self_preempted", "pass_goes_on"),)
"""The first version in which one is."""


def default_mode(version: Version) -> Literal["sync", "async"]:
    """How vLLM schedules in a version unless told otherwise."""
    return "sync" if FIRST <= version < ASYNC_SINCE else "async"


def scheduler_rules(version: Version) -> dict[str, Any]:
    """Settings of `EngineSettings` that vLLM had in a version, where they are not the defaults."""
    old = {name: value for last, name, value in UNTIL if FIRST <= version <= last}
    return old | {name: value for first, name, value in SINCE if version >= first}


def version_in(text: str | None) -> Version | None:
    """Major and minor number of the first version in a text such as "vllm 0.19.1"; None if there is none."""
    found = re.search(r"(\d+)\.(\d+)", text or "")
    return None if found is None else (int(found[1]), int(found[2]))


def versioned(settings: dict[str, Any], version: Version | None) -> dict[str, Any]:
    """`settings` with the rules of a version below them, if it is known."""
    return settings if version is None else {**scheduler_rules(version), **settings}
