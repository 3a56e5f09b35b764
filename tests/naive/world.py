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
from replay.policies import knobs
from replay.policies.knobs import Fleet, Policy
from replay.profiles.profile import EngineSettings, Profile
from tests.naive.budgets import Bucket
from tests.naive.clients import Clients
from tests.naive.gateway import Gateway
from tests.naive.replica import Execution, Replica
from tests.naive.things import Attempt, Call, Expectation

PRIORITY = {
    "abort_arrives": 0, "cancel_is_seen": 0,
    "step_ends": 1, "deliver": 2, "answer": 2, "refused": 2, "times_out": 3, "deadline_passes": 3, "user_leaves": 4,
    "read_enough": 4, "call_arrives": 5, "retry": 6, "hedge_is_sent": 6, "attempt_at_gateway": 7, "disconnect": 7,
    "orphan_expires": 7, "kv_released": 7, "lets_go": 7, "execution_arrives": 8, "schedule": 9,
}  # fmt: skip


@dataclass(eq=False)
class EndOf:
    """That a replica's first step in flight ends; void when the replica has been told otherwise since."""

    replica: Replica
    token: int

    @property
    def index(self) -> int:
        return self.replica.index


@dataclass
class World(Clients, Gateway):
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
    buckets: dict[Any, Bucket] = field(default_factory=dict)
    line: list[Execution] = field(default_factory=list)
    lets_go_at: float | None = None
    expected_answer: Expectation = field(default_factory=Expectation)
    expected_first_token: Expectation = field(default_factory=Expectation)
    steps: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admission = self.policy.admission
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
        self.begin_codel()
        for call in self.calls:
            if not call.waits:
                self.post_at(call.arrival, "call_arrives", call)

    # -------------------------------------------------------------- events
    def post_at(self, time: float, kind: str, argument: Any) -> None:
        self.posted += 1
        place = self.posted
        if isinstance(argument, (Replica, EndOf)):
            place = argument.index
        elif kind == "read_enough":
            place = (1 << 40) + argument.id
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
        x.queued = self.now
        tokens = sum(other.prompt for other in replica.waiting)
        if self.admission.hold_beyond_steps is None and self.is_full(x, len(replica.waiting), tokens):
            x.state, x.end, x.abort_sent, x.refused = "aborted", self.now, True, "rejected:queue_full"
            self.has_ended(x)
            self.post(self.ge + self.cg, "refused", x)
            return
        x.state = "waiting"
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
        self.has_ended(x)
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
        unstarted = replica.unstarted
        finished = replica.read_outputs(self.now)
        in_batch = [x for x in finished if x.state == "running"]
        for x in in_batch + replica.ready_to_abort[::-1] + [x for x in finished if x not in in_batch]:
            if x.doomed:
                x.doomed = False
                self.abort(replica, x)
                continue
            replica.finish(x, self.now)
            self.has_ended(x)
            self.post(self.ge + self.cg, "deliver", x)
        replica.ready_to_abort.clear()
        for x in replica.answered:
            self.somebody_has_read_enough(x)
        if replica.unstarted < unstarted:
            self.room_was_made()
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
            self.has_ended(replica.dropped.pop())
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
    leaves, reads = row.get("user_cancel_s"), row.get("user_cancel_tokens")
    timeout = policy.client.timeout_s if policy.client.timeout_s is not None else row.get("client_timeout_s")
    named, content = row.get("idempotency_key"), row["content_id"]
    limit = policy.budget or policy.throttle
    scope = (limit.scope if limit is not None else None) or "global"
    keys = {
        "key_or_content": ("named", named) if named is not None else (row.get("tenant"), row.get("model"), content),
        "key": ("named", named) if named is not None else ("call", row["call_id"]),
        "content": (row.get("tenant"), row.get("model"), content),
        "call": row["call_id"],
    }
    return Call(
        id=row["call_id"],
        arrival=row["arrival_s"],
        prompt=prompt,
        output=max(min(wanted, engine.max_model_len - prompt), 1),
        content=row["content_id"],
        priority=row.get("priority") or 0,
        key=keys[policy.gateway.coalesce_by],
        bucket=None if scope == "global" else row.get(scope),
        timeout=math.inf if timeout is None else timeout,
        patience=math.inf if leaves is None else leaves,
        leaves_tokens=reads or 0,
        stream=row.get("stream"),
        session=row.get("session_place"),
        reserve=min(row.get("max_tokens") or wanted, max(engine.max_model_len - prompt, 1)),
        keys=block_keys(row, engine.block_size, longest // engine.block_size + 2),
        too_long=prompt + 1 > engine.max_model_len or -(-longest // engine.block_size) > engine.num_blocks - 1,
    )


def link_sessions(calls: list[Call], table: list[dict[str, Any]]) -> None:
    """Turns that wait for the one before them."""
    for i, row in enumerate(table):
        if row.get("previous_call_id") is None or row.get("think_time_s") is None:
            continue
        before = next((c for c in calls[:i] if c.id == row["previous_call_id"]), None)
        if before is not None and before.following is None:
            before.following = calls[i]
            calls[i].waits, calls[i].think = True, max(row["think_time_s"], 0.0)


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
    link_sessions(rows, table)
    world = World(rows, policy, engines, seed, math.inf if until_s is None else until_s)
    world.run()
    return world


def schedule_requests(requests: pa.Table, engine: Mapping[str, Any], step_time: Mapping[str, float]) -> World:
    """The world after `requests`, which nobody retries, have run on one replica."""
    settings = msgspec.convert(dict(engine), EngineSettings)
    profile = Profile(name="given", engine=settings, step_time=linear_step_time(step_time))
    policy = Policy(name="none", client=knobs.Client(max_attempts=1), gateway=knobs.Gateway(orphan_ttl_s=None))
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
