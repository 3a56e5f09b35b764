"""The gateway, in plain Python: who waits for what, where it runs, and whether it may."""

from __future__ import annotations

import math
from typing import Any

from replay.policies.knobs import Admission, Policy
from replay.profiles.profile import Profile
from tests.naive.replica import Execution, Replica
from tests.naive.things import Attempt, Call, Expectation, draw, scatter


class Gateway:
    """The part of the world between clients and engines."""

    policy: Policy
    admission: Admission
    profile: Profile
    seed: int
    now: float
    cg: float
    ge: float
    replicas: list[Replica]
    executions: list[Execution]
    by_key: dict[Any, Execution]
    line: list[Execution]
    sent: dict[Any, int]
    lets_go_at: float | None
    expected_answer: Expectation
    expected_first_token: Expectation

    def post(self, delay: float, kind: str, argument: Any) -> None:
        raise NotImplementedError

    def post_at(self, time: float, kind: str, argument: Any) -> None:
        raise NotImplementedError

    def somebody_has_read_enough(self, x: Execution) -> None:
        raise NotImplementedError

    # -------------------------------------------------------------- attempts and executions
    def finish_known(self, x: Execution) -> bool:
        return x.state == "finished" and x.end is not None and x.end + self.ge <= self.now

    def attempt_at_gateway(self, attempt: Attempt) -> None:
        call, gateway = attempt.call, self.policy.gateway
        if gateway.coalesce and call.key in self.by_key:
            x = self.by_key[call.key]
            if not x.abort_sent:
                if not self.finish_known(x):
                    attempt.joined = True
                    self.attach(attempt, x)
                    return
                assert x.end is not None
                if self.now <= x.end + self.ge + gateway.result_ttl_s:
                    attempt.joined, attempt.execution = True, x
                    x.attempts += 1
                    self.post(self.cg, "answer", attempt)
                    return
        x = Execution(len(self.executions), call, None, call.prompt, call.output, call.keys, call.priority)
        if gateway.retries != "alike" and call.attempts > 1:
            x.apart = True
            x.priority += (1 << 32) if gateway.retries == "last" else -(1 << 32)
        self.executions.append(x)
        self.by_key[call.key] = x
        self.attach(attempt, x)
        self.enter(x)

    def attach(self, attempt: Attempt, x: Execution) -> None:
        attempt.execution = x
        x.attempts += 1
        x.connected += 1
        if attempt.status == "open":
            x.waiters.append(attempt)
            self.somebody_has_read_enough(x)

    def disconnect(self, attempt: Attempt) -> None:
        x, ttl = attempt.execution, self.policy.gateway.orphan_ttl_s
        if x is None:
            return
        x.connected -= 1
        if x.connected or x.abort_sent or self.finish_known(x):
            return
        x.orphaned_at = self.now
        if ttl == 0:
            self.send_abort(x)
        elif ttl is not None:
            self.post(ttl, "orphan_expires", x)

    def orphan_expires(self, x: Execution) -> None:
        ttl = self.policy.gateway.orphan_ttl_s or 0.0
        if not (x.connected or x.abort_sent or self.finish_known(x)) and x.orphaned_at + ttl <= self.now:
            self.send_abort(x)

    def send_abort(self, x: Execution) -> None:
        x.abort_sent = True
        if x in self.line:
            self.line.remove(x)
            x.state, x.end = "aborted", self.now
        else:
            self.post(self.ge + self.policy.network.cancel_s, "abort_arrives", x)

    def has_ended(self, x: Execution) -> None:
        replica = self.replicas[x.replica]
        replica.outstanding -= 1
        if x.state == "finished":
            assert x.end is not None
            assert x.queued is not None
            assert x.first_output is not None
            self.expected_answer.learn(x.end - x.queued + 2 * self.ge)
            self.expected_first_token.learn(x.first_output - x.queued + 2 * self.ge)
        elif x.first_output is None:
            replica.unstarted -= x.prompt
            self.room_was_made()

    # -------------------------------------------------------------- who may wait
    def enter(self, x: Execution) -> None:
        if self.admission.hold_beyond_steps is None:
            self.dispatch(x, self.route(x))
            return
        x.entered = self.now
        if not self.line and any(map(self.has_room, self.replicas)):
            self.codel_above, self.codel_dropping = 0.0, False
            self.dispatch(x, self.place_with_room(x))
        elif self.is_full(x, len(self.line), sum(other.prompt for other in self.line)):
            self.refuse(x, "rejected:queue_full")
        else:
            self.line.append(x)

    def is_full(self, x: Execution, waiting: int, tokens: int) -> bool:
        most, most_tokens = self.admission.max_queued_requests, self.admission.max_queued_tokens
        return (most is not None and waiting >= most) or (most_tokens is not None and tokens + x.prompt > most_tokens)

    def dispatch(self, x: Execution, index: int) -> None:
        x.replica = index
        self.replicas[index].outstanding += 1
        self.replicas[index].unstarted += x.prompt
        self.post(self.ge, "execution_arrives", x)

    def has_room(self, replica: Replica) -> bool:
        steps = self.admission.hold_beyond_steps or 0.0
        most = steps * replica.engine.max_num_batched_tokens
        return replica.unstarted == 0 or replica.unstarted < most

    def place_with_room(self, x: Execution) -> int:
        chosen = self.route(x)
        if self.has_room(self.replicas[chosen]):
            return chosen
        return min((r.outstanding, r.index) for r in self.replicas if self.has_room(r))[1]

    def room_was_made(self) -> None:
        if self.line and self.lets_go_at != self.now:
            self.lets_go_at = self.now
            self.post(self.ge, "lets_go", None)

    def lets_go(self, _: None) -> None:
        self.lets_go_at = None
        if not self.line or not any(map(self.has_room, self.replicas)):
            return
        x = self.next_in_line()
        self.line.remove(x)
        if self.codel_drops(self.now - x.entered) or not self.is_worth_it(x):
            self.refuse(x, "rejected:shed")
        else:
            self.dispatch(x, self.place_with_room(x))
        if self.line:
            self.post_at(self.now, "lets_go", None)

    def next_in_line(self) -> Execution:
        admission, retries = self.admission, self.policy.gateway.retries
        newest = admission.order == "lifo"
        if admission.order == "adaptive_lifo":
            newest = len(self.line) > admission.lifo_above
        preferred = [x for x in self.line if x.apart == (retries == "first")] or self.line
        return preferred[-1 if newest else 0]

    def refuse(self, x: Execution, reason: str) -> None:
        x.state, x.end, x.abort_sent, x.refused = "aborted", self.now, True, reason
        self.post(self.cg, "refused", x)

    def is_worth_it(self, x: Execution) -> bool:
        shed = self.admission.shed
        if shed == "never":
            return True
        if not x.waiters:
            return shed == "call" and x.call.status == "live" and self.in_time(x.call, math.inf)
        return any(self.in_time(a.call, a.start + a.call.timeout) for a in x.waiters)

    def in_time(self, call: Call, ends: float) -> bool:
        client = self.policy.client
        whole = client.timeout_kind == "total" or call.stream is False
        if self.admission.shed == "call":
            ends = call.arrival + client.max_attempts * call.timeout + self.longest_waits()
        if client.deadline_s is not None:
            ends = min(ends, call.arrival + client.deadline_s)
        return self.now + (self.expected_answer if whole else self.expected_first_token).most() + self.cg <= ends

    def longest_waits(self) -> float:
        client, total, waits, least = self.policy.client, 0.0, 0.0, self.policy.client.backoff_floor_s
        told, most = self.admission.retry_after_s, client.retry_after_most_s
        if client.heeds_retry_after and told is not None and (most is None or told <= most):
            least = max(least, told)
        for n in range(1, client.max_attempts):
            total += client.backoff_factor ** (n - 1)
            grown = total if client.backoff_grows == "by_sum" else client.backoff_factor ** (n - 1)
            waits += max(min(client.backoff_base_s * grown, client.backoff_cap_s), least)
        return waits

    # -------------------------------------------------------------- CoDel, as RFC 8289 has it
    def begin_codel(self) -> None:
        self.codel_above = self.codel_next = 0.0
        self.codel_count = self.codel_last = 0
        self.codel_dropping = False

    def codel_drops(self, waited: float) -> bool:
        target, interval = self.admission.codel_target_s, self.admission.codel_interval_s
        if target is None:
            return False
        standing = False
        if waited < target:
            self.codel_above = 0.0
        elif self.codel_above == 0.0:
            self.codel_above = self.now + interval
        else:
            standing = self.now >= self.codel_above
        if not standing:
            self.codel_dropping = False
            return False
        if self.codel_dropping:
            if self.now < self.codel_next:
                return False
            self.codel_count += 1
            self.codel_next += interval / math.sqrt(self.codel_count)
            return True
        delta = self.codel_count - self.codel_last
        recent = self.now - self.codel_next < 16 * interval
        self.codel_count = self.codel_last = delta if delta > 1 and recent else 1
        self.codel_dropping, self.codel_next = True, self.now + interval / math.sqrt(self.codel_count)
        return True

    # -------------------------------------------------------------- where it runs
    def route(self, x: Execution) -> int:
        """The replica for a new execution."""
        call: Call = x.call
        gateway, n = self.policy.gateway, len(self.replicas)
        busy = [replica.outstanding for replica in self.replicas]
        idlest = busy.index(min(busy))
        lots = [int(draw(self.seed, purpose, call.id, call.attempts) * n) for purpose in (2, 3)]
        if n == 1:
            return 0
        if gateway.routing == "least_outstanding":
            return idlest
        if gateway.routing == "random":
            return lots[0]
        if gateway.routing == "power_of_two":
            return min(lots, key=lambda r: busy[r])
        if gateway.routing == "session" and call.session is not None:
            return scatter(call.session) % n
        if gateway.routing == "prefix_affinity":
            return self.where_the_prefix_is(call, busy)
        return x.id % n

    def where_the_prefix_is(self, call: Call, busy: list[int]) -> int:
        """Where the longest known prefix of the call's prompt was last sent, unless the fleet is out of balance."""
        gateway, engine = self.policy.gateway, self.profile.engine
        known = [key for key in call.keys if key[0] == "hash"] if engine.prefix_caching else []
        matched = next((j for j, key in enumerate(known) if key not in self.sent), len(known))
        share = 1.0 if ("whole", call.content) in self.sent else matched * engine.block_size / call.prompt
        home = self.sent.get(("whole", call.content), self.sent[known[matched - 1]] if matched else None)
        uneven = max(busy) - min(busy) > gateway.balance_gap and max(busy) > gateway.balance_ratio * min(busy)
        if home is None or share < gateway.affinity_min_share or uneven:
            home = busy.index(min(busy))
        for key in [("whole", call.content), *known]:
            self.sent[key] = home
        return home
