"""What a run rests on, and how it was made: the lower part of the page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from queries import run_sql
from replay.errors import BadInput
from replay.report.answer import cut_short, too_long
from replay.report.scenes import Found, Rows
from replay.report.tables import text
from replay.report.verdict import AGREES, doubt
from replay.report.words import spread

NO_FILE = ("default", "log")
"""Sources of settings that a command need not repeat."""
TYPED = ("flag", "environment", "argument")
"""Sources of settings that are no file."""
LISTS = {"policies": "--policy", "profile": "--profile"}
"""Flags that are given once for each value."""


def resolved(run: str) -> Mapping[str, Mapping[str, Any]]:
    """Each setting of a run with its value and source. Raises BadInput."""
    path = Path(run) / "config.resolved.yaml"
    try:
        return yaml.safe_load(path.read_text()) or {} if path.exists() else {}
    except (OSError, yaml.YAMLError) as error:
        raise BadInput.at(path, f"cannot be read: {error}") from error


def manifest(run: str) -> Mapping[str, Any]:
    """The manifest of a run, empty where there is none. Raises BadInput."""
    path = Path(run) / "manifest.json"
    try:
        found: Mapping[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    except (OSError, json.JSONDecodeError) as error:
        raise BadInput.at(path, f"cannot be read: {error}") from error
    return found


def settings(run: str) -> list[tuple[str, str, str]]:
    """Each setting, its value as YAML has it, and its source."""
    return [(key, written(s["value"]), str(s["source"])) for key, s in sorted(resolved(run).items())]


def written(value: Any) -> str:
    """A value on one line, as a person writes it."""
    return value if isinstance(value, str) else json.dumps(value)


def command(run: str) -> str:
    """The command that makes the run again; empty where the run does not say how it was made."""
    found = resolved(run)
    if not found:
        return ""
    sources = dict.fromkeys(str(s["source"]) for s in found.values())
    words = ["replay", "run", "TRACE", "-o", "RUN"]
    for source in sources:
        if source not in (*NO_FILE, *TYPED):
            words += ["--config", source]
    for key, setting in sorted(found.items()):
        if setting["source"] in TYPED:
            words += flags(key, setting["value"])
    return shlex.join(words)


def flags(key: str, value: Any) -> list[str]:
    """A setting as flags."""
    if key in LISTS:
        values = value if isinstance(value, list) else [value]
        if all(isinstance(v, str) for v in values):
            return [word for v in values for word in (LISTS[key], v)]
    return ["--set", f"{key}={written(value)}"]


def self_replay(rows: Rows, own: str | None) -> dict[str, Any]:
    """Observed and predicted figures of the log's own policy, each with a verdict."""
    if not rows:
        why = "the log shows no outcomes" if own is not None else "the run does not say which policy the log's own is"
        return {"rows": [], "ok": False, "words": f"It cannot be told: {why}."}
    made = []
    for r in rows:
        name = r["figure"]
        digits = 3 if name.startswith("delivered") else 0 if name == "attempts" else 1
        known = r["predicted"] is not None
        inside = known and r["low"] <= r["observed"] <= r["high"]
        near = known and near_enough(name, r["predicted"] - r["observed"], r["observed"])
        made.append(
            {
                "figure": r["label"],
                "observed": f"{r['observed']:,.{digits}f}",
                "predicted": spread(r["predicted"], r["low"], r["high"], digits),
                "ok": inside or near,
                "word": "within its range" if inside else "near" if near else "off",
            }
        )
    off = [r["figure"] for r in made if not r["ok"]]
    limit = f"Off is a share that differs by more than {AGREES:g}, or another figure by more than {AGREES:.0%}."
    words = f"{len(off)} of {len(made)} figures are off: {', '.join(off)}." if off else "All figures agree."
    return {"rows": made, "ok": not off, "words": f"{words} {doubt([dict(r) for r in rows], own)} {limit}"}


def near_enough(figure: str, off: float, observed: float) -> bool:
    """Whether a prediction outside its own range is near all the same."""
    return abs(off) <= AGREES * (1.0 if figure.startswith("delivered") else abs(observed))


def assumptions(run: str, found: Found, seeds: int) -> list[tuple[str, list[str]]]:
    """What a reader must know to believe the page, or not to."""
    (about,) = run_sql(run, "SELECT * FROM run").to_pylist()
    said = [
        arrivals(about.get("closed_turns", 0)),
        ("What the log cannot show", hidden(run, found)),
        ("What the log cut short", cut_short(run) or ["Nothing."]),
        ("Engine", engines(run)),
        ("Clients", clients(resolved(run))),
        ("Seeds", [f"{seeds:,}: the same calls each time, with other random waits of clients."]),
    ]
    cuts = []
    if about["warmup_s"]:
        cuts.append(f"Calls that arrived in the first {about['warmup_s']:g} s are left out of rates and waits.")
    if about["until_s"] is not None:
        cuts.append(f"Simulations end at {about['until_s']:g} s; calls too close to it to have ended are left out.")
    return [*said, ("Cut", cuts or ["None: every simulation ran until its last call had ended."])]


def arrivals(closed_turns: int) -> tuple[str, list[str]]:
    """Whether calls wait for each other."""
    if closed_turns == 0:
        return "Open loop", ["Calls arrive when they arrived in the log, whatever a policy does to the answers before."]
    waits = f"{closed_turns:,} turns of sessions come when the one before has ended, and its user has thought about it."
    return "Closed loop", [waits, "All other calls arrive when they arrived in the log."]


def hidden(run: str, found: Found) -> list[str]:
    """What is missing in the log itself."""
    (row,) = run_sql(
        run,
        "SELECT count(*) AS calls, count(*) FILTER (observed_status IS NULL OR observed_status = 'unknown') AS unknown "
        "FROM observed",
    ).to_pylist()
    said = ["Calls that were turned away before they were logged, and users who gave up without asking again."]
    if row["unknown"]:
        said.append(f"How {row['unknown']:,} of {row['calls']:,} calls ended.")
    fits = too_long([dict(r) for r in found["delivered_by_phase"]]).strip()
    return [*said, f"{fits}."] if fits else said


def engines(run: str) -> list[str]:
    """Each profile: where its step times come from, and how far they are off."""
    said = []
    for row in run_sql(run, "SELECT * FROM profiles ORDER BY profile").to_pylist():
        source = row["source"] or "the profile does not say where its step times come from"
        error = f"; error of a step time {row['error']}" if row["error"] else ""
        pool = f"{row['num_blocks']:,} KV blocks of {row['block_size']} tokens"
        said.append(f"{row['profile']}: {source}{error}; {pool}.")
        if row.get("weakness"):
            said.append(f"Known of it: {row['weakness']}.")
    said.append("It takes the steps that vLLM's scheduler takes; full-attention text models, no speculative decoding.")
    return said


def clients(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """How clients wait and try again, where a policy does not say otherwise."""
    known = {key: s["value"] for key, s in found.items() if key.startswith(("client.", "network."))}
    if not known:
        return ["As the policies say."]
    timeout = known.get("client.timeout_s")
    waits = "as long as the trace says of each call" if timeout is None else f"{text(timeout)} s for an attempt"
    jitter = known.get("client.backoff_jitter", 0)
    return [
        f"Where a policy does not say otherwise, they wait {waits}, and try {known.get('client.max_attempts')} times "
        f"at most; {text(known.get('client.backoff_base_s'))} s before the first retry, times "
        f"{text(known.get('client.backoff_factor'))} before each next one, less up to {jitter:.0%} at random.",
        f"One-way delays: {text(known.get('network.client_gateway_s'))} s from client to gateway, "
        f"{text(known.get('network.gateway_engine_s'))} s from there to the engine.",
    ]
