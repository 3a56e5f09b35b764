"""Retry budgets and adaptive throttling, after their sources: nothing is shared with the engine's way of counting."""

from __future__ import annotations

from dataclasses import dataclass, field

from replay.policies.knobs import RetryBudget, Throttle


@dataclass
class Window:
    """Finagle's WindowedAdder: ten slices, of which the oldest goes when the present one has lasted its length."""

    length: float
    slices: list[float] = field(default_factory=lambda: [0.0] * 9)
    present: float = 0.0
    began: float = 0.0

    def turn(self, now: float) -> None:
        age = now - self.began
        if age < self.length / 10:
            return
        self.slices = [*self.slices[1:], self.present]
        for _ in range(min(int(age / (self.length / 10) - 1.0), 9)):
            self.slices = [*self.slices[1:], 0.0]
        self.present, self.began = 0.0, now

    def add(self, now: float, amount: float) -> None:
        self.turn(now)
        self.present += amount

    def total(self, now: float) -> float:
        self.turn(now)
        return self.present + sum(self.slices)


class Bucket:
    """What those of one scope may still do."""

    def __init__(self, budget: RetryBudget | None, throttle: Throttle | None) -> None:
        self.budget, self.throttle = budget, throttle
        self.tokens = budget.initial if budget else 0.0
        if budget and budget.ttl_s is None:
            self.tokens = min(self.tokens, budget.cap)
        self.late = Window(budget.ttl_s) if budget and budget.ttl_s is not None else None
        self.requests = Window(throttle.window_s) if throttle else None
        self.accepts = Window(throttle.window_s) if throttle else None
        self.active = self.retrying = 0

    def put(self, now: float, amount: float) -> None:
        assert self.budget is not None
        if self.late is not None:
            self.late.add(now, amount)
        else:
            self.tokens = max(min(self.tokens + amount, self.budget.cap), 0.0)

    def cost(self, timed_out: bool) -> float:
        assert self.budget is not None
        special = self.budget.cost_per_timeout_retry
        return special if timed_out and special is not None else self.budget.cost_per_retry

    def allows(self, now: float, timed_out: bool) -> bool:
        """Whether one more retry is allowed."""
        budget = self.budget
        assert budget is not None
        if budget.share_of_active is not None:
            most = max(budget.share_of_active * self.active, budget.concurrent_retries_min)
            if self.retrying >= most:
                return False
        tokens = self.tokens + (self.late.total(now) if self.late is not None else 0.0)
        if tokens < self.cost(timed_out) - 1e-9:
            return False
        return budget.retry_above is None or tokens > budget.retry_above + 1e-9

    def excess(self, now: float) -> float:
        """Probability of refusing the next attempt."""
        assert self.throttle is not None
        assert self.requests is not None
        assert self.accepts is not None
        requests, accepts = self.requests.total(now), self.accepts.total(now)
        return max(0.0, (requests - self.throttle.multiplier * accepts) / (requests + 1.0))

    def count(self, now: float, accepted: bool) -> None:
        if self.requests is not None and self.accepts is not None:
            self.requests.add(now, 1.0)
            if accepted:
                self.accepts.add(now, 1.0)
