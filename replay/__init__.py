"""Replay production LLM traffic under every cancellation, retry and coalescing policy.

>>> import replay
>>> trace = replay.ingest(["attempts.jsonl"])                           # doctest: +SKIP
>>> results = replay.simulate(trace.calls, policy, profile)             # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_DOORS = {
    "ingest": "replay.ingest",
    "simulate": "replay.engine",
    "run": "replay.runner",
    "Run": "replay.runner",
}

__all__ = ["Run", "ingest", "run", "simulate"]


def __getattr__(name: str) -> Any:
    if name in _DOORS:
        return getattr(import_module(_DOORS[name]), name)
    raise AttributeError(f"module 'replay' has no attribute {name!r}")
