"""Incidents made from nothing: clients that time out, try again and leave, as gateway and engine log them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from connectors.rows import attempts_of

EPOCH_S = 1.8e9


@dataclass(frozen=True)
class Incident:
    """How the clients of an incident behave, and what is logged of them."""

    seed: int = 0
    calls: int = 300
    rate_per_s: float = 4.0
    timeout_s: float = 5.0
    retries: int = 2
    slow_share: float = 0.5
    """Attempts that take longer than the clients wait."""
    leaving_share: float = 0.1
    users: int = 12
    id_of_engine: str = "cmpl-{id}-0-{noise}"
    engine_clock_s: float = 0.0
    """By how much the engine's clock is ahead."""


@dataclass
class Told:
    """What an incident looks like from each side; `call` is the truth of each gateway row."""

    gateway: list[dict[str, Any]] = field(default_factory=list)
    engine: list[dict[str, Any]] = field(default_factory=list)
    call: list[int] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)

    def table(self, side: str, *without: str) -> pa.Table:
        """The attempts of "gateway" or "engine", but for the columns `without`."""
        rows = self.gateway if side == "gateway" else self.engine
        columns = {name: [row.get(name) for row in rows] for name in rows[0] if name not in without}
        numbers = np.arange(1, len(rows) + 1)
        made = attempts_of(columns, numbers, source_format=side, source_file=side, needed=("arrival_s",))
        return made.attempts


def tell(incident: Incident) -> Told:
    """Lets an incident happen. A client waits `timeout_s`, and 0.5 * 2^n * U(0.75, 1) s before retry n + 1."""
    rng = np.random.default_rng(incident.seed)
    told = Told()
    rows: list[tuple[float, int, dict[str, Any], dict[str, Any]]] = []
    arrivals = np.cumsum(rng.exponential(1.0 / incident.rate_per_s, incident.calls))
    for call, arrival in enumerate(arrivals.tolist()):
        prompt = int(rng.lognormal(7.0, 0.4)) + 1
        output = int(rng.integers(5, 60))
        leaves = rng.exponential(0.5 * incident.timeout_s) if rng.random() < incident.leaving_share else np.inf
        told.prompts.append(prompt)
        told.outcomes.append(one_call(rng, incident, rows, call, arrival, (prompt, output), arrival + leaves))
    rows.sort(key=lambda row: row[0])
    for _, call, gateway, engine in rows:
        told.call.append(call)
        told.gateway.append(gateway)
        told.engine.append(engine)
    return told


def one_call(rng: Any, incident: Incident, rows: list[Any], call: int, arrival: float, size: tuple[int, int],
             leaves: float) -> str:  # fmt: skip
    """The attempts of one call, and how it ended."""
    user = f"u{rng.integers(incident.users)}"
    start = arrival
    for retry in range(incident.retries + 1):
        slow = rng.random() < incident.slow_share
        needed = rng.uniform(1.1, 3.0) * incident.timeout_s if slow else rng.uniform(0.1, 0.9) * incident.timeout_s
        waits = incident.timeout_s + rng.exponential(0.01)
        status = "ok" if needed < waits else "timeout"
        end = start + min(needed, waits)
        if leaves < end:
            status, end = "left", max(leaves, start)
        rows.append((end, call, *both_sides(rng, incident, retry, user, size, start, end, status == "ok")))
        if status != "timeout":
            return status
        start = end + 0.5 * 2.0**retry * rng.uniform(0.75, 1.0)
        if leaves < start:
            return "timeout"
    return "timeout"


def both_sides(rng: Any, incident: Incident, retry: int, user: str, size: tuple[int, int], start: float, end: float,
               answered: bool) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """What the gateway and the engine log of an attempt."""
    prompt, output = size
    name = uuid.UUID(bytes=rng.bytes(16))
    lag = rng.uniform(0.005, 0.06)
    status = "ok" if answered else "cancelled"
    reason = None if answered else "client_disconnect"
    gateway = {
        "arrival_s": EPOCH_S + round(start, 3),
        "e2e_s": round(end - start, 3),
        "status": status,
        "cancel_reason": reason,
        "source_request_id": name.hex,
        "tenant": user,
        "retry_index": retry,
        "request_bytes": 3 * prompt + 200,
        "client_timeout_s": incident.timeout_s,
    }
    engine = {
        "arrival_s": EPOCH_S + start + lag + incident.engine_clock_s,
        "e2e_s": max(end - start - lag + rng.uniform(0.0, 0.01), 0.0),
        "status": status,
        "cancel_reason": reason,
        "source_request_id": incident.id_of_engine.format(id=name.hex, uuid=name, noise=rng.bytes(4).hex()),
        "prompt_tokens": prompt,
        "max_tokens": output,
        "output_tokens": output if answered else None,
        "received_tokens": output if answered else 0,
    }
    return gateway, engine
