"""Whether two runs may be held against each other, and in what they differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from queries import run_sql
from replay.errors import BadConfig, BadInput

APART = ("policies", "seeds", "thresholds", "as_logged")
"""Settings in which two runs may differ without a word: what they have in common is compared."""
NOT_SET = "not set"


def different_settings(run: str, other: str) -> list[str]:
    """What differs between two runs beside their results, in words.

    Raises BadConfig when they replay different traces, whose calls cannot be paired, and BadInput.
    """
    ours, theirs = manifest(run), manifest(other)
    if ours["trace_sha256"] != theirs["trace_sha256"]:
        raise BadConfig(f"{run} and {other} replay different traces: their calls cannot be paired")
    found = [] if ours["version"] == theirs["version"] else [f"version: {ours['version']}, then {theirs['version']}"]
    before, after = settings(run), settings(other)
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key, NOT_SET), after.get(key, NOT_SET)
        if old != new and key.split(".")[0] not in APART:
            found.append(f"{key}: {shown(old)}, then {shown(new)}")
    found += different_engines(run, other)
    return [f"the runs differ in {line}" for line in found]


def different_engines(run: str, other: str) -> list[str]:
    """Profiles of one name whose step times come from elsewhere, or whose pools differ."""
    text = "SELECT profile, source, num_blocks, block_size FROM profiles ORDER BY profile"
    before, after = ({row["profile"]: row for row in run_sql(r, text).to_pylist()} for r in (run, other))
    return [
        f"profile {name}: {engine(before[name])}, then {engine(after[name])}"
        for name in before.keys() & after.keys()
        if before[name] != after[name]
    ]


def engine(row: dict[str, Any]) -> str:
    """An engine in few words."""
    return f"{row['source']}, {row['num_blocks']:,} blocks of {row['block_size']} tokens"


def shown(value: Any) -> str:
    """A setting in few characters."""
    return value if isinstance(value, str) else json.dumps(value)


def manifest(run: str) -> dict[str, str]:
    """The manifest of a run. Raises BadInput."""
    path = Path(run) / "manifest.json"
    try:
        content = json.loads(path.read_bytes())
        return {key: content[key] for key in ("version", "trace_sha256")}
    except OSError as error:
        raise BadInput.at(run, "is not a run directory: it has no manifest.json") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput.at(path, "is not a manifest") from error


def settings(run: str) -> dict[str, Any]:
    """The settings of a run by dotted key. Raises BadInput."""
    path = Path(run) / "config.resolved.yaml"
    try:
        return {key: held["value"] for key, held in yaml.safe_load(path.read_text()).items()}
    except OSError as error:
        raise BadInput.at(path, f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise BadInput.at(path, "does not hold the settings of a run") from error
