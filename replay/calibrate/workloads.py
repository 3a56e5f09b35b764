"""The requests of a benchmark run, made again from what is written of it.

A file of measured points tells of each run's load in a few numbers and words. What is read: an open loop with equal
distances between arrivals, or with Poisson arrivals; a closed loop of so many clients that each send the next request
when they have their answer; a run whose requests are recorded beside the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

RECORDED = "recorded_runs"
"""Directory beside a file of points: `run_GPU_MODEL_requests.jsonl` has the requests of a recorded run."""
SHARED_PROMPTS = 36
"""Distinct prompts of a generator that repeats "a few dozen"."""
WAVES = 10
"""Requests of each client of a closed loop, where nobody says how many there were."""


class Unmodelled(Exception):
    """What a point tells is not enough, or not of a kind that can be replayed: the reason."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in order of sending. In a closed loop of `clients` arrivals are not known: they follow the answers."""

    arrival_s: Floats | None
    prompt_tokens: Ints
    output_tokens: Ints
    content_id: Ints
    clients: int = 0

    def calls(self, arrival_s: Floats) -> pa.Table:
        """The calls, arriving at given times."""
        return pa.table(
            {
                "content_id": self.content_id,
                "arrival_s": arrival_s,
                "prompt_tokens": self.prompt_tokens,
                "output_tokens": self.output_tokens,
                "stream": np.ones(len(arrival_s), bool),
            }
        )


class Recorded(msgspec.Struct, frozen=True):
    """A request of a recorded run, with the engine's own times in seconds."""

    input_toks: int
    output_toks: int
    queued_ts: float


def workload_of(told: Mapping[str, Any], recorded: Path, seed: int) -> Workload:
    """The workload that `told` describes; `recorded` is where its requests would be. Raises Unmodelled."""
    kind = str(told.get("kind", ""))
    if "recorded" in kind:
        return recorded_workload(recorded)
    if "closed" in kind or "concurrency" in told:
        return closed_loop(told, seed)
    if "rate_rps" in told:
        return open_loop(told, kind, seed)
    raise Unmodelled(f"its workload is of a kind that is not known: {kind or 'none is named'}")


def recorded_workload(path: Path) -> Workload:
    """The requests of a recorded run, as the engine received them. Raises Unmodelled."""
    if not path.exists():
        raise Unmodelled(f"its requests are not recorded beside the file ({path.parent.name}/{path.name})")
    try:
        rows = [msgspec.json.decode(line, type=Recorded) for line in path.read_bytes().splitlines() if line.strip()]
    except msgspec.DecodeError as error:
        raise Unmodelled(f"{path.name} cannot be read: {error}") from error
    rows.sort(key=lambda row: row.queued_ts)
    n = len(rows)
    return Workload(
        arrival_s=np.array([row.queued_ts - rows[0].queued_ts for row in rows]),
        prompt_tokens=np.array([row.input_toks for row in rows]),
        output_tokens=np.array([row.output_toks for row in rows]),
        content_id=np.arange(n),
    )


def open_loop(told: Mapping[str, Any], kind: str, seed: int) -> Workload:
    """Arrivals at a rate, whatever becomes of them. Raises Unmodelled."""
    rng = np.random.default_rng(seed)
    rate = float(told["rate_rps"])
    number = told.get("num_prompts") or told.get("n") or round(rate * float(told.get("duration_s", 0)))
    if not number:
        raise Unmodelled("neither its duration nor its number of requests is told")
    n = int(number)
    poisson = "poisson" in kind.lower()
    gaps = rng.exponential(1.0 / rate, n) if poisson else np.full(n, 1.0 / rate)
    repeated = "shared_prefix" in str(told.get("note", ""))
    content = rng.integers(SHARED_PROMPTS, size=n) if repeated else np.arange(n)
    prompt = lengths(told, ("prompt_len", "prompt_tokens", "isl"), int(content.max()) + 1, rng)[content]
    output = lengths(told, ("output_tokens_server", "output_len", "output_tokens", "osl"), n, rng)
    return Workload(np.cumsum(gaps) - gaps[0], prompt, output, content)


def closed_loop(told: Mapping[str, Any], seed: int) -> Workload:
    """Clients that each send their next request when they have their answer. Raises Unmodelled."""
    rng = np.random.default_rng(seed)
    words = str(told.get("methodology", ""))
    clients = int(told.get("concurrency", 0))
    if clients < 1:
        raise Unmodelled("its concurrency is not told")
    waves = re.search(r"num_prompts\s*=\s*(\d+)\s*\*\s*concurrency", words)
    n = int(told.get("num_prompts") or clients * (int(waves[1]) if waves else WAVES))
    spread = re.search(r"uniform in \[([\d.]+),\s*([\d.]+)\]", words)
    low, high = (float(spread[1]), float(spread[2])) if spread else (1.0, 1.0)

    def around(names: tuple[str, ...]) -> Ints:
        whole = lengths(told, names, n, rng)
        return np.maximum(1, rng.integers((whole * low).astype(int), (whole * high).astype(int) + 1))

    prompt = around(("isl", "prompt_len", "prompt_tokens"))
    output = around(("osl", "output_len", "output_tokens"))
    return Workload(None, prompt, output, np.arange(n), min(clients, n))


def lengths(told: Mapping[str, Any], names: tuple[str, ...], n: int, rng: np.random.Generator) -> Ints:
    """n lengths: a number, or drawn evenly around a mean so that none leaves its bounds. Raises Unmodelled."""
    for name in names:
        value = told.get(name)
        if isinstance(value, int | float):
            return np.full(n, round(value), np.int64)
        if isinstance(value, Mapping) and "mean" in value:
            mean = float(value["mean"])
            reach = min(mean - float(value.get("min", mean)), float(value.get("max", mean)) - mean)
            return np.rint(rng.uniform(mean - reach, mean + reach, n)).astype(np.int64)
    raise Unmodelled(f"none of {', '.join(names)} is told")
