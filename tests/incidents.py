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


@dataclass(frozen=True)
class Proxied:
    """A proxy that tries again by itself, and writes one line a call: when it came, and how it ended."""

    seed: int = 0
    calls: int = 200
    rate_per_s: float = 3.0
    timeout_s: float = 5.0
    tries: int = 3
    slow_share: float = 0.4
    engine_clock_s: float = 0.0


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
    prompt = size[0]
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
    name_of_engine = incident.id_of_engine.format(id=name.hex, uuid=name, noise=rng.bytes(4).hex())
    ran = execution(size, start + lag + incident.engine_clock_s, end - start - lag + rng.uniform(0.0, 0.01), answered)
    engine = {**ran, "source_request_id": name_of_engine}
    return gateway, engine


def tell_proxied(proxy: Proxied) -> Told:
    """Lets a proxy try. A failed line is as long as its first try; only an answered one has an id of the engine's."""
    rng = np.random.default_rng(proxy.seed)
    told = Told()
    engine: list[tuple[float, int, dict[str, Any]]] = []
    for call, arrival in enumerate(np.cumsum(rng.exponential(1.0 / proxy.rate_per_s, proxy.calls)).tolist()):
        size = int(rng.lognormal(7.0, 0.4)) + 1, int(rng.integers(5, 120))
        start, name = arrival, rng.bytes(8).hex()
        answered = False
        for n in range(proxy.tries):
            slow = rng.random() < proxy.slow_share
            needed = proxy.timeout_s * (rng.uniform(1.1, 3.0) if slow else rng.uniform(0.1, 0.9))
            answered = needed < proxy.timeout_s
            lag, lasted = rng.uniform(0.005, 0.06), min(needed, proxy.timeout_s)
            row = execution(size, start + lag + proxy.engine_clock_s, lasted - lag + rng.uniform(0.0, 0.03), answered)
            engine.append((start + lag, call, {**row, "source_request_id": f"chatcmpl-{name}-{rng.bytes(4).hex()}"}))
            if answered:
                break
            start, name = start + lasted + rng.uniform(0.4, 1.0) * 2.0**n, rng.bytes(8).hex()
        told.prompts.append(size[0])
        told.outcomes.append("ok" if answered else "timeout")
        told.gateway.append(
            {
                "arrival_s": EPOCH_S + arrival,
                "e2e_s": start + lasted - arrival + 0.005 if answered else proxy.timeout_s + 0.004,
                "status": told.outcomes[-1],
                "cancel_reason": None if answered else "gateway_timeout",
                "source_request_id": f"chatcmpl-{name}" if answered else f"call-{call:06}",
                "retry_group": f"group-{call:06}",
                "retry_index": 0,
                "prompt_tokens": size[0] if answered else None,
                "max_tokens": size[1],
                "request_bytes": 3 * size[0] + 200,
            }
        )
    for _, call, row in sorted(engine, key=lambda one: one[0]):
        told.engine.append(row)
        told.call.append(call)
    return told


def execution(size: tuple[int, int], start: float, lasted: float, answered: bool) -> dict[str, Any]:
    """What an engine logs of a request."""
    return {
        "arrival_s": EPOCH_S + start,
        "e2e_s": max(lasted, 0.0),
        "status": "ok" if answered else "cancelled",
        "cancel_reason": None if answered else "client_disconnect",
        "prompt_tokens": size[0],
        "max_tokens": size[1],
        "output_tokens": size[1] if answered else None,
        "received_tokens": size[1] if answered else 0,
    }
