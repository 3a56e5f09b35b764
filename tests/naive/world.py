"""Clients, gateway and replicas under one clock: events in order of (time, priority, posting)."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from replay.engine.simulate import linear_step_time
from replay.policies.knobs import Client, Fleet, Gateway, Policy
from replay.profiles.profile import EngineSettings, Profile
from tests.naive.replica import Execution, Replica

PRIORITY = {
    "abort_arrives": 0, "cancel_is_seen": 0,
    "step_ends": 1, "deliver": 2, "answer": 2, "times_out": 3, "user_leaves": 4, "call_arrives": 5,
    "retry": 6, "attempt_at_gateway": 7, "disconnect": 7, "orphan_expires": 7, "kv_released": 7, "execution_arrives": 8,
    "schedule": 9,
}  # fmt: skip
U64 = (1 << 64) - 1


def scatter(place: int) -> int:
    """A large number for a session's place among the sessions."""
    x = place + 1
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & U64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & U64
    x ^= x >> 31
    return ((x - (1 << 64)) if x >> 63 else x) >> 1


def draw(seed: int, purpose: int, call: int, attempt: int) -> float:
    """SplitMix64 over the arguments."""

    def mix(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & U64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & U64
        return x ^ (x >> 31)

    golden = 0x9E3779B97F4A7C15
    x = mix((seed + golden) & U64)
    for value in (purpose, call, attempt):
        x = mix((x + value * golden) & U64)
    return (x >> 11) * 2.0**-53


@dataclass(eq=False)
class Call:
    id: int
    arrival: float
    prompt: int
    output: int
    content: Any
    priority: int
    key: Any
    bucket: Any
    timeout: float
    leaves_at: float
    stream: bool | None
    session: int | None
    reserve: int
    keys: list[Any]
    too_long: bool
    status: str = "live"
    end: float | None = None
    first_token: float | None = None
    delivered_by: Execution | None = None
    open_attempt: Any = None
    attempts: int = 0


@dataclass(eq=False)
class Attempt:
    id: int
    call: Call
    number: int
    start: float
    status: str = "open"
    end: float | None = None
    first_token: float | None = None
    execution: Execution | None = None
    joined: bool = False


@dataclass(eq=False)
class EndOf:
    """That a replica's first step in flight ends; void when the replica has been told otherwise since."""

    replica: Replica
    token: int

    @property
    def index(self) -> int:
        return self.replica.index


@dataclass
class World:
    calls: list[Call]
    policy: Policy
    engines: list[Profile]
    seed: int
    until: float = math.inf
    now: float = 0.0
    posted: int = 0
    heap: list[Any] = field(default_factory=list)
    soon: deque[Any] = field(default_factory=deque)
    attempts: list[Attempt] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    by_key: dict[Any, Execution] = field(default_factory=dict)
    budgets: dict[Any, float] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cancellation = self.policy.cancellation
        self.detection = self.cancellation.detection or self.engines[0].engine.disconnect
        self.profile = self.engines[0]
        self.replicas = [Replica(r, profile, self.cancellation) for r, profile in enumerate(self.engines)]
        self.sent: dict[Any, int] = {}
        self.cg = self.policy.network.client_gateway_s
        self.ge = self.policy.network.gateway_engine_s + self.profile.api_server_s / 2
        self.books_time = 0.0
        self.stranded_block_s = 0.0
        self.pending: set[int] = set()
        for call in self.calls:
            self.post_at(call.arrival, "call_arrives", call)

    # -------------------------------------------------------------- events
    def post_at(self, time: float, kind: str, argument: Any) -> None:
        self.posted += 1
        place = self.posted
        if isinstance(argument, (Replica, EndOf)):
            place = argument.index
        heapq.heappush(self.heap, (time, PRIORITY[kind], place, self.posted, kind, argument))

    def post(self, delay: float, kind: str, argument: Any) -> None:
        if delay > 0:
            self.post_at(self.now + delay, kind, argument)
        else:
            self.soon.append((kind, argument))

    def run(self) -> None:
        while self.heap and self.heap[0][0] <= self.until:
            time, _, _, _, kind, argument = heapq.heappop(self.heap)
            self.keep_books(time)
            self.now = time
            getattr(self, kind)(argument)
            while self.soon:
                kind, argument = self.soon.popleft()
                getattr(self, kind)(argument)
        if self.until < math.inf:
            self.keep_books(self.until)

    def keep_books(self, time: float) -> None:
        """Integrate what is held, and what is stranded, up to `time`."""
        span = time - self.books_time
        self.books_time = time
        for replica in self.replicas:
            for x in [*replica.running, *replica.lingering]:
                x.charge("kv_block", span * len(x.blocks))
                if not x.attended:
                    x.charge("stranded_kv", span)
            held = [holders for holders in replica.pool.holders.values() if holders]
            self.stranded_block_s += span * sum(not any(x.attended for x in holders) for holders in held)

    # -------------------------------------------------------------- clients
    def call_arrives(self, call: Call) -> None:
        budget = self.policy.budget
        if budget is not None:
            left = self.budgets.get(call.bucket, budget.initial)
            self.budgets[call.bucket] = min(left + budget.deposit_per_call, budget.cap)
        if call.too_long:
            attempt = self.new_attempt(call)
            attempt.status, attempt.end = "rejected", self.now
            call.status, call.end = "rejected:too_long", self.now
            return
        self.send(call)
        if call.leaves_at < math.inf:
            self.post_at(call.leaves_at, "user_leaves", call)

    def new_attempt(self, call: Call) -> Attempt:
        attempt = Attempt(len(self.attempts), call, call.attempts, self.now)
        self.attempts.append(attempt)
        call.attempts += 1
        return attempt

    def send(self, call: Call) -> None:
        attempt = call.open_attempt = self.new_attempt(call)
        if call.timeout < math.inf:
            self.post_at(self.now + call.timeout, "times_out", attempt)
        self.post(self.cg, "attempt_at_gateway", attempt)

    def retry(self, call: Call) -> None:
        if call.status == "live":
            self.send(call)

    def first_token_at(self, attempt: Attempt) -> float:
        x = attempt.execution
        if x is None or x.first_output is None:
            return math.inf
        return max(x.first_output + self.ge, attempt.start + self.cg) + self.cg

    def end_attempt(self, attempt: Attempt, status: str) -> None:
        attempt.status, attempt.end = status, self.now
        first = self.first_token_at(attempt)
        attempt.first_token = first if first <= self.now else None
        attempt.call.open_attempt = None
        if attempt.execution is not None and attempt in attempt.execution.waiters:
            attempt.execution.waiters.remove(attempt)

    def times_out(self, attempt: Attempt) -> None:
        if attempt.status != "open":
            return
        wants_first = self.policy.client.timeout_kind == "first_token" and attempt.call.stream is not False
        if wants_first and self.first_token_at(attempt) <= self.now:
            return
        self.end_attempt(attempt, "timeout")
        self.post(self.cg, "disconnect", attempt)
        call, client, budget = attempt.call, self.policy.client, self.policy.budget
        if call.attempts >= client.max_attempts:
            call.status, call.end = "retries_exhausted", self.now
            return
        if budget is not None:
            if self.budgets[call.bucket] < budget.cost_per_retry:
                call.status, call.end = "budget_exhausted", self.now
                return
            self.budgets[call.bucket] -= budget.cost_per_retry
        n = call.attempts
        wait = min(client.backoff_base_s * client.backoff_factor ** (n - 1), client.backoff_cap_s)
        self.post(wait * (1 - client.backoff_jitter * draw(self.seed, 1, call.id, n)), "retry", call)

    def user_leaves(self, call: Call) -> None:
        if call.status != "live":
            return
        if call.open_attempt is not None:
            attempt = call.open_attempt
            self.end_attempt(attempt, "cancelled")
            self.post(self.cg, "disconnect", attempt)
        call.status, call.end = "left", self.now

    def answer(self, attempt: Attempt) -> None:
        if attempt.status != "open":
            return
        call = attempt.call
        self.end_attempt(attempt, "ok")
        call.status, call.end, call.first_token = "delivered", self.now, attempt.first_token
        call.delivered_by = attempt.execution

    def deliver(self, x: Execution) -> None:
        for attempt in list(x.waiters):
            self.answer(attempt)

    # -------------------------------------------------------------- gateway
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
        index = self.route(call)
        x = Execution(len(self.executions), call, index, call.prompt, call.output, call.keys, call.priority)
        self.executions.append(x)
        self.replicas[index].outstanding += 1
        self.by_key[call.key] = x
        self.attach(attempt, x)
        self.post(self.ge, "execution_arrives", x)

    def route(self, call: Call) -> int:
        """The replica for a new execution of the call."""
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
            known = [key for key in call.keys if key[0] == "hash"] if self.profile.engine.prefix_caching else []
            matched = next((j for j, key in enumerate(known) if key not in self.sent), len(known))
            share = (
                1.0 if ("whole", call.content) in self.sent else matched * self.profile.engine.block_size / call.prompt
            )
            home = self.sent.get(("whole", call.content), self.sent[known[matched - 1]] if matched else None)
            uneven = max(busy) - min(busy) > gateway.balance_gap and max(busy) > gateway.balance_ratio * min(busy)
            if home is None or share < gateway.affinity_min_share or uneven:
                home = idlest
            for key in [("whole", call.content), *known]:
                self.sent[key] = home
            return home
        return len(self.executions) % n

    def attach(self, attempt: Attempt, x: Execution) -> None:
        attempt.execution = x
        x.attempts += 1
        x.connected += 1
        if attempt.status == "open":
            x.waiters.append(attempt)

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
        self.post(self.ge + self.policy.network.cancel_s, "abort_arrives", x)

    # -------------------------------------------------------------- engines
    def await_end(self, replica: Replica) -> None:
        replica.token += 1
        end = max(replica.flights[0].end, self.now)
        self.post_at(end, "step_ends", EndOf(replica, replica.token))

    def wake(self, replica: Replica) -> None:
        replica.token += 1
        if replica.index not in self.pending:
            self.pending.add(replica.index)
            self.post_at(self.now, "schedule", replica)

    def execution_arrives(self, x: Execution) -> None:
        replica = self.replicas[x.replica]
        x.queued, x.state = self.now, "waiting"
        x.arrived_in_round = replica.rounds if replica.flights else None
        replica.enqueue(x)
        if not replica.flights:
            self.wake(replica)

    def abort_arrives(self, x: Execution | int) -> None:
        replica = self.replicas[0 if isinstance(x, int) else x.replica]
        if self.detection == "never":
            return
        if self.detection == "timer":
            assert not isinstance(x, int)
            self.post_at(self.next_look(x), "cancel_is_seen", x)
            return
        if self.detection in ("poll", "oracle") or (self.detection == "next_token" and x.state != "running"):  # type: ignore[union-attr]
            assert not isinstance(x, int)
            if self.detection != "oracle":
                self.cancel_lies_ready(replica, x)
            elif x.state == "sent":
                x.gone = True
            elif x.state in ("waiting", "running"):
                if x.state == "running":
                    replica.give_back(x, self.now)
                self.abort(replica, x)
                if replica.flights and replica.index not in self.pending:
                    self.await_end(replica)
            return
        self.push_arrives(replica, x)

    def next_look(self, x: Execution) -> float:
        """The next multiple of the engine's timer since the request came."""
        engine, own = self.profile.engine, self.cancellation.detection == "timer"
        streaming = x.call.stream is not False and x.first_output is not None
        timer = engine.disconnect_timer_streaming_s if streaming else engine.disconnect_timer_s
        timer = self.cancellation.timer_s if own else timer
        if timer <= 0 or x.queued is None:
            return self.now
        return x.queued + (math.floor((self.now - x.queued) / timer) + 1) * timer

    def cancel_is_seen(self, x: Execution) -> None:
        self.push_arrives(self.replicas[x.replica], x)

    def push_arrives(self, replica: Replica, x: Execution | int) -> None:
        replica.inbox.append(x)  # type: ignore[arg-type]
        if not replica.flights:
            self.read_inbox(replica)

    def read_inbox(self, replica: Replica, at_end: bool = False) -> None:
        while replica.inbox:
            x = replica.inbox[0]
            if isinstance(x, int):
                if x >= len(self.executions):
                    return
                x = self.executions[x]
            if x.state == "sent":
                return
            if at_end and x.arrived_in_round == replica.rounds:
                return
            replica.inbox.pop(0)
            if x.state in ("waiting", "running"):
                self.abort(replica, x)

    def abort(self, replica: Replica, x: Execution) -> None:
        ran = x.state == "running"
        if ran and self.profile.engine.prefill_runs_on and self.detection != "oracle" and not x.prefilled:
            x.doomed = x.gone = True
            return
        replica.remove(x, lingers=ran and self.cancellation.kv_release_delay_s > 0)
        x.state, x.end = "aborted", self.now
        replica.outstanding -= 1
        if x.lingers:
            self.post(self.cancellation.kv_release_delay_s, "kv_released", x)
        if ran and not self.cancellation.repack:
            x.held_steps = x.output - x.outputs
            replica.held.append(x)

    def kv_released(self, x: Execution) -> None:
        replica = self.replicas[x.replica]
        replica.lingering.remove(x)
        replica.pool.release(x.blocks, x)
        x.blocks = []
        if not replica.flights and replica.waiting:
            self.wake(replica)

    def cancel_lies_ready(self, replica: Replica, x: Execution) -> None:
        x.gone = True
        if x.state == "running":
            k = self.cancellation.poll_every_tokens
            coming = replica.rounds + bool(replica.flights)
            if self.cancellation.poll_lag == "phase":
                k -= (coming - x.first_round) % k
            x.due_at_round = coming + k
            replica.watched.append(x)
        elif x.state == "waiting" and not replica.flights:
            self.wake(replica)

    def step_ends(self, end: EndOf) -> None:
        replica = end.replica
        if end.token != replica.token:
            return
        if self.profile.engine.aborts_read == "step_end":
            self.read_inbox(replica, at_end=True)
        due = [x for x in replica.watched if x.due_at_round == replica.rounds + 1 and x.state == "running"]
        for x in due:
            self.abort(replica, x)
        finished = replica.read_outputs(self.now)
        in_batch = [x for x in finished if x.state == "running"]
        for x in in_batch + replica.ready_to_abort[::-1] + [x for x in finished if x not in in_batch]:
            if x.doomed:
                x.doomed = False
                self.abort(replica, x)
                continue
            replica.finish(x, self.now)
            replica.outstanding -= 1
            self.post(self.ge + self.cg, "deliver", x)
        replica.ready_to_abort.clear()
        if replica.running or replica.waiting or replica.inbox:
            self.wake(replica)
        elif replica.flights:
            self.await_end(replica)
        else:
            replica.held.clear()

    def schedule(self, replica: Replica) -> None:
        self.pending.discard(replica.index)
        self.read_inbox(replica)
        if not (replica.running or replica.waiting):
            if replica.flights:
                self.await_end(replica)
            else:
                replica.held.clear()
            return
        rows = replica.schedule(self.now)
        while replica.dropped:
            replica.outstanding -= 1
            replica.dropped.pop()
        if not rows and not replica.held:
            if replica.flights:
                self.await_end(replica)
            elif not replica.lingering:
                self.wake(replica)
            return
        duration = replica.start(rows, self.now)
        self.trace(replica, rows, duration)
        if len(replica.flights) < replica.depth:
            self.wake(replica)
        else:
            self.await_end(replica)

    def trace(self, replica: Replica, rows: list[Any], duration: float) -> None:
        decode = sum(row.decodes for row in rows)
        self.steps.append(
            {
                "step": len(self.steps),
                "scheduled_at": self.now,
                "duration": duration,
                "prefill_tokens": sum(row.n for row in rows) - decode,
                "decode_tokens": decode,
                "context_tokens": sum(row.before + row.n for row in rows),
                "running": len(replica.running),
                "waiting": len(replica.waiting),
                "free_blocks": len(replica.pool.free),
                "preempted": len(replica.preempted),
            }
        )
        step = len(self.steps) - 1
        self.rows += [{"step": step, "request": row.execution.id, "tokens": row.n} for row in rows]


def block_keys(row: Mapping[str, Any], block_size: int, blocks: int) -> list[Any]:
    """Identity of each block of a call's sequence."""
    hashes, size = row.get("block_hashes") or [], row.get("hash_block_tokens") or block_size
    full = min(len(hashes), row["prompt_tokens"] // size)
    keys: list[Any] = []
    for j in range(blocks):
        last = (j + 1) * block_size - 1
        if last < min(full * size, row["prompt_tokens"]):
            keys.append(("hash", hashes[last // size], last % size))
        else:
            keys.append(("content", row["content_id"], j))
    return keys


def call_of(row: Mapping[str, Any], policy: Policy, engine: EngineSettings) -> Call:
    prompt, wanted = row["prompt_tokens"], row["output_tokens"]
    longest = min(prompt + wanted, engine.max_model_len) - 1
    leaves = row.get("user_cancel_s")
    timeout = policy.client.timeout_s if policy.client.timeout_s is not None else row.get("client_timeout_s")
    named = row.get("idempotency_key")
    scope = policy.budget.scope if policy.budget is not None else "global"
    return Call(
        id=row["call_id"],
        arrival=row["arrival_s"],
        prompt=prompt,
        output=max(min(wanted, engine.max_model_len - prompt), 1),
        content=row["content_id"],
        priority=row.get("priority") or 0,
        key=("named", named) if named is not None else (row.get("tenant"), row.get("model"), row["content_id"]),
        bucket=None if scope == "global" else row.get(scope),
        timeout=math.inf if timeout is None else timeout,
        leaves_at=math.inf if leaves is None else row["arrival_s"] + leaves,
        stream=row.get("stream"),
        session=row.get("session_place"),
        reserve=min(row.get("max_tokens") or wanted, max(engine.max_model_len - prompt, 1)),
        keys=block_keys(row, engine.block_size, longest // engine.block_size + 2),
        too_long=prompt + 1 > engine.max_model_len or -(-longest // engine.block_size) > engine.num_blocks - 1,
    )


def simulate(
    calls: pa.Table,
    policy: Policy,
    profile: Profile | list[Profile],
    fleet: Fleet | None = None,
    seed: int = 0,
    until_s: float | None = None,
) -> World:
    """The world after the calls have been replayed in it."""
    engines = [profile] * (fleet or Fleet()).size if isinstance(profile, Profile) else profile
    smallest = {name: min(getattr(p.engine, name) for p in engines) for name in ("max_model_len", "num_blocks")}
    table, sessions = calls.to_pylist(), []
    for row in table:
        if row.get("session_id") is not None:
            if row["session_id"] not in sessions:
                sessions.append(row["session_id"])
            row["session_place"] = sessions.index(row["session_id"])
    rows = [call_of(row, policy, replace(engines[0].engine, **smallest)) for row in table]
    world = World(rows, policy, engines, seed, math.inf if until_s is None else until_s)
    world.run()
    return world


def schedule_requests(requests: pa.Table, engine: Mapping[str, Any], step_time: Mapping[str, float]) -> World:
    """The world after `requests`, which nobody retries, have run on one replica."""
    settings = msgspec.convert(dict(engine), EngineSettings)
    profile = Profile(name="given", engine=settings, step_time=linear_step_time(step_time))
    policy = Policy(name="none", client=Client(max_attempts=1), gateway=Gateway(orphan_ttl_s=None))
    rows = [
        {**r, "call_id": r["request"], "arrival_s": r["arrival"], "content_id": r["content"]}
        for r in requests.to_pylist()
    ]
    world = World([call_of(row, policy, settings) for row in rows], policy, [profile], 0)
    cancels = [(r["cancel"], r["request"]) for r in rows if r.get("cancel") is not None]
    for time, request in sorted(cancels):
        world.post_at(time, "abort_arrives", request)
    world.run()
    return world
