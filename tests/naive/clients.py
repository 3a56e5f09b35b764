"""Clients, in plain Python: they send, wait, hedge, give up, try again, leave."""

from __future__ import annotations

import math
from typing import Any

from replay.policies.knobs import Policy
from tests.naive.budgets import Bucket
from tests.naive.replica import Execution
from tests.naive.things import Attempt, Call, draw


class Clients:
    """The part of the world that users have in their hands."""

    policy: Policy
    seed: int
    now: float
    cg: float
    ge: float
    attempts: list[Attempt]
    buckets: dict[Any, Bucket]

    def post(self, delay: float, kind: str, argument: Any) -> None:
        raise NotImplementedError

    def post_at(self, time: float, kind: str, argument: Any) -> None:
        raise NotImplementedError

    def bucket(self, call: Call) -> Bucket:
        return self.buckets.setdefault(call.bucket, Bucket(self.policy.budget, self.policy.throttle))

    def call_arrives(self, call: Call) -> None:
        call.arrival, call.waits = self.now, False
        if self.policy.budget is not None and self.policy.budget.deposit_per_call:
            self.bucket(call).put(self.now, self.policy.budget.deposit_per_call)
        if call.too_long:
            attempt = self.new_attempt(call)
            attempt.status, attempt.end = "rejected", self.now
            self.end_call(call, "rejected:too_long")
            return
        self.send(call)
        if call.patience < math.inf:
            self.post_at(self.now + call.patience, "user_leaves", call)
        if self.policy.client.deadline_s is not None:
            self.post_at(self.now + self.policy.client.deadline_s, "deadline_passes", call)

    def new_attempt(self, call: Call) -> Attempt:
        attempt = Attempt(len(self.attempts), call, call.attempts, self.now)
        self.attempts.append(attempt)
        call.attempts += 1
        return attempt

    def send(self, call: Call) -> None:
        bucket = self.bucket(call)
        if self.policy.throttle is not None:
            lot = draw(self.seed, 4, call.id, call.attempts)
            if lot < bucket.excess(self.now):
                attempt = self.new_attempt(call)
                bucket.count(self.now, False)
                attempt.status, attempt.end = "rejected", self.now
                self.retry_is_over(call)
                self.retry_or_give_up(call, "rejected", "rejected:throttled")
                return
        attempt = call.open_attempt = self.new_attempt(call)
        self.set_off(attempt)
        if self.policy.client.hedge_after_s is not None:
            self.post_at(self.now + self.policy.client.hedge_after_s, "hedge_is_sent", attempt)

    def set_off(self, attempt: Attempt) -> None:
        self.bucket(attempt.call).active += 1
        if attempt.call.timeout < math.inf:
            self.post_at(self.now + attempt.call.timeout, "times_out", attempt)
        self.post(self.cg, "attempt_at_gateway", attempt)

    def retry(self, call: Call) -> None:
        if call.status == "live":
            self.send(call)

    def hedge_is_sent(self, attempt: Attempt) -> None:
        call = attempt.call
        silent = attempt.status == "open" and self.first_token_at(attempt) > self.now
        if not silent or call.hedge is not None or call.attempts >= self.policy.client.max_attempts:
            return
        if self.may_retry(call, timed_out=False):
            call.hedge = self.new_attempt(call)
            self.set_off(call.hedge)

    def first_token_at(self, attempt: Attempt) -> float:
        x = attempt.execution
        if x is None or x.first_output is None:
            return math.inf
        return max(x.first_output + self.ge, attempt.start + self.cg) + self.cg

    def end_attempt(self, attempt: Attempt, status: str) -> None:
        attempt.status, attempt.end = status, self.now
        first, call = self.first_token_at(attempt), attempt.call
        attempt.first_token = first if first <= self.now else None
        if call.open_attempt is attempt:
            call.open_attempt = call.hedge
        call.hedge = None
        self.settle_budget(call, status)
        if attempt.execution is not None and attempt in attempt.execution.waiters:
            attempt.execution.waiters.remove(attempt)

    def settle_budget(self, call: Call, status: str) -> None:
        bucket, budget = self.bucket(call), self.policy.budget
        bucket.count(self.now, status == "ok")
        if budget is None:
            return
        bucket.active -= 1
        self.retry_is_over(call)
        if status in ("timeout", "rejected"):
            bucket.put(self.now, -budget.cost_per_failure)
        elif status == "ok":
            refund = budget.refunds and call.last_cost > 0
            amount = call.last_cost if refund else budget.deposit_per_success
            if amount:
                bucket.put(self.now, amount)

    def retry_is_over(self, call: Call) -> None:
        if call.retrying:
            call.retrying = False
            self.bucket(call).retrying -= 1

    def abandon(self, attempt: Attempt, status: str) -> None:
        self.end_attempt(attempt, status)
        self.post(self.cg, "disconnect", attempt)

    def end_call(self, call: Call, status: str) -> None:
        call.status, call.end = status, self.now
        self.retry_is_over(call)
        if call.following is not None:
            self.post_at(self.now + call.following.think, "call_arrives", call.following)

    def times_out(self, attempt: Attempt) -> None:
        if attempt.status != "open":
            return
        call, client = attempt.call, self.policy.client
        heard = self.first_token_at(attempt) <= self.now
        if call.stream is not False and heard and client.timeout_kind == "first_token":
            return
        if call.stream is not False and heard and client.timeout_kind == "idle" and call.timeout > 0:
            x = attempt.execution
            assert x is not None
            due = self.now + call.timeout
            if x.state in ("waiting", "running") and x.silent_since is not None:
                due = max(x.silent_since + self.ge + self.cg, attempt.start) + call.timeout
            if due > self.now:
                self.post_at(due, "times_out", attempt)
                return
        self.abandon(attempt, "timeout")
        if call.open_attempt is not None:
            return
        begun = {"always": False, "before_first_token": attempt.first_token is not None, "never": True}
        if call.stream and begun[client.streams_retried]:
            self.end_call(call, "stream_not_retried")
        else:
            self.retry_or_give_up(call, "timeout", "retries_exhausted")

    def retry_or_give_up(self, call: Call, status: str, reason: str) -> None:
        client, told = self.policy.client, None
        if status == "rejected" and reason != "rejected:throttled" and client.heeds_retry_after:
            told = self.policy.admission.retry_after_s
        too_long = told is not None and client.retry_after_most_s is not None and told > client.retry_after_most_s
        refused = status == "rejected" and (too_long or not client.retries_rejections)
        if call.attempts >= client.max_attempts or refused:
            self.end_call(call, reason)
        elif not self.may_retry(call, timed_out=status == "timeout"):
            self.end_call(call, "budget_exhausted")
        else:
            self.post_at(self.now + (self.backoff(call) if told is None else told), "retry", call)

    def may_retry(self, call: Call, timed_out: bool) -> bool:
        if self.policy.budget is None:
            return True
        bucket = self.bucket(call)
        if not bucket.allows(self.now, timed_out):
            return False
        call.last_cost = bucket.cost(timed_out)
        bucket.put(self.now, -call.last_cost)
        if not call.retrying:
            call.retrying = True
            bucket.retrying += 1
        return True

    def backoff(self, call: Call) -> float:
        client, n = self.policy.client, call.attempts
        terms = [client.backoff_factor**k for k in range(n)]
        grown = sum(terms) if client.backoff_grows == "by_sum" else terms[-1]
        floor = client.backoff_floor_s
        most = max(min(client.backoff_base_s * grown, client.backoff_cap_s), floor)
        return floor + (most - floor) * (1 - client.backoff_jitter * draw(self.seed, 1, call.id, n))

    def user_leaves(self, call: Call) -> None:
        if call.status == "live":
            self.hang_up(call, "cancelled")
            self.end_call(call, "left")

    def read_enough(self, attempt: Attempt) -> None:
        if attempt.status == "open":
            self.user_leaves(attempt.call)

    def deadline_passes(self, call: Call) -> None:
        if call.status == "live":
            self.hang_up(call, "timeout")
            self.end_call(call, "deadline_exceeded")

    def hang_up(self, call: Call, status: str) -> None:
        while call.open_attempt is not None:
            self.abandon(call.open_attempt, status)

    def refused(self, x: Execution) -> None:
        if not x.waiters:
            return
        attempt = x.waiters[-1]
        call = attempt.call
        self.end_attempt(attempt, "rejected")
        if call.open_attempt is None:
            self.retry_or_give_up(call, "rejected", x.refused)
        self.post_at(self.now, "refused", x)

    def answer(self, attempt: Attempt) -> None:
        if attempt.status != "open":
            return
        call = attempt.call
        self.end_attempt(attempt, "ok")
        self.hang_up(call, "superseded")
        self.end_call(call, "delivered")
        call.first_token = attempt.first_token
        call.delivered_by = attempt.execution

    def deliver(self, x: Execution) -> None:
        if x.waiters:
            self.answer(x.waiters[-1])
            if x.waiters:
                self.post_at(self.now, "deliver", x)

    def somebody_has_read_enough(self, x: Execution) -> None:
        """After a step: users who have read what they wanted of a stream will leave when they see it."""
        if x.state != "running" or x.first_output is None or x.silent_since is not None:
            return
        for attempt in x.waiters:
            call = attempt.call
            reads = call.stream and 0 < call.leaves_tokens < x.output and not attempt.leaving
            if reads and x.outputs >= call.leaves_tokens:
                attempt.leaving = True
                self.post_at(self.now + self.ge + self.cg, "read_enough", attempt)
