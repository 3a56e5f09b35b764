"""Drives a scheduler of vLLM, or one that looks like it, through a scenario on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa


@dataclass
class Clock:
    """Seconds that pass when they are told to."""

    now: float = 0.0

    def read(self) -> float:
        return self.now

    def put_into(self, module: ModuleType, sleep: Callable[[float], None]) -> None:
        module.time = SimpleNamespace(monotonic=self.read, time=self.read, sleep=sleep)  # type: ignore[attr-defined]


@dataclass
class Drive:
    """The loop of vLLM's engine core: with async scheduling two steps are in flight, else one.

    `durations`: seconds of each step. `make`: a request from a row of a scenario's requests. `ready`: whether there is
    something to schedule. `outputs`: what the model gives for a step.
    """

    scheduler: Any
    requests: pa.Table
    durations: list[float]
    clock: Clock
    make: Callable[[dict[str, Any]], Any]
    ready: Callable[[float], bool]
    outputs: Callable[[Any], Any]
    aborted: Any
    depth: int = 1
    name: Callable[[int], str] = str
    """A request's id, from its number in the scenario."""
    seen: list[dict[str, int]] = field(default_factory=list)
    """Tokens by request, of each step."""

    def run(self) -> list[dict[str, int]]:
        rows = self.requests.to_pylist()
        self.arrivals = sorted(rows, key=lambda row: (row["arrival"], row["request"]))
        self.cancels = sorted((row for row in rows if row["cancel"] is not None), key=lambda row: row["cancel"])
        self.added: set[int] = set()
        queue: list[tuple[float, Any, Any]] = []
        last_end = 0.0
        while True:
            self.admit()
            if len(queue) < self.depth and self.ready(self.clock.now):
                output = self.scheduler.schedule()
                if output.num_scheduled_tokens:
                    last_end = max(last_end, self.clock.now) + self.durations[len(self.seen)]
                    self.seen.append({str(k): v for k, v in output.num_scheduled_tokens.items()})
                    queue.append((last_end, output, self.outputs(output)))
                    continue
            if queue:
                self.clock.now, output, outputs = queue.pop(0)
                self.cancel()
                self.scheduler.update_from_output(output, outputs)
            elif self.arrivals:
                self.clock.now = max(self.clock.now, self.arrivals[0]["arrival"])
            else:
                return self.seen

    def admit(self) -> None:
        while self.arrivals and self.arrivals[0]["arrival"] <= self.clock.now:
            row = self.arrivals.pop(0)
            self.added.add(row["request"])
            self.scheduler.add_request(self.make(row))
        self.cancel()

    def cancel(self) -> None:
        while self.cancels and self.cancels[0]["cancel"] <= self.clock.now:
            if self.cancels[0]["request"] not in self.added:
                return
            self.scheduler.finish_requests([self.name(self.cancels.pop(0)["request"])], self.aborted)
