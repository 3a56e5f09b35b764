"""One replica: queue, batch, and step after step, request by request; one step in flight, or two."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from replay.policies.knobs import Cancellation
from replay.profiles.profile import Profile
from tests.naive.pool import Key, Pool

NOTHING_S = 1e-12
"""What is left of a step of which all rows are gone, but for rounding."""


@dataclass(eq=False)
class Execution:
    """A request in an engine."""

    id: int
    call: Any
    replica: Any
    prompt: int
    output: int
    keys: list[Key]
    priority: int = 0
    queued: float | None = None
    admitted: float | None = None
    first_output: float | None = None
    end: float | None = None
    state: str = "sent"
    outputs: int = 0
    computed: int = 0
    peak: int = 0
    blocks: list[int] = field(default_factory=list)
    hits: int = 0
    cached: int | None = None
    computed_prompt: int = 0
    computed_total: int = 0
    recomputed: int = 0
    preemptions: int = 0
    salvaged_tokens: int = 0
    waiters: list[Any] = field(default_factory=list)
    connected: int = 0
    attempts: int = 0
    abort_sent: bool = False
    orphaned_at: float = -1.0
    entered: float = -1.0
    apart: bool = False
    refused: str = ""
    silent_since: float | None = None
    arrived_in_round: int | None = None
    gone: bool = False
    doomed: bool = False
    prefilled: bool = False
    due_at_round: int | None = None
    first_round: int = 0
    placeholders: int = 0
    published: int = 0
    run: int = 0
    lingers: bool = False
    held_steps: int = 0
    ledger: dict[str, float] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return self.prompt + self.outputs

    @property
    def attended(self) -> bool:
        return bool(self.waiters)

    def charge(self, name: str, seconds: float) -> None:
        self.ledger[name] = self.ledger.get(name, 0.0) + seconds


@dataclass
class Row:
    """A request's part of a step."""

    execution: Execution
    n: int
    before: int
    run: int
    costs: dict[str, float] = field(default_factory=dict)
    gives_output: bool = False

    @property
    def stands(self) -> bool:
        """Whether its request is still in the batch as it was when the step was scheduled."""
        return self.execution.state == "running" and self.execution.run == self.run

    @property
    def decodes(self) -> bool:
        return self.n == 1 and self.before >= self.execution.prompt


@dataclass
class Flight:
    """A step that has been scheduled and has not ended."""

    rows: list[Row]
    start: float
    end: float
    cost: float


class Replica:
    """The scheduler of vLLM V1 with one step in flight, or two."""

    def __init__(self, index: int, profile: Profile, cancellation: Cancellation) -> None:
        self.index, self.engine, self.time = index, profile.engine, profile.timed
        polls = cancellation.detection == "poll"
        self.poll = cancellation.poll_cost_s / cancellation.poll_every_tokens if polls else 0.0
        self.held: list[Execution] = []
        self.lingering: list[Execution] = []
        self.dropped: list[Execution] = []
        self.watched: list[Execution] = []
        self.depth = 2 if self.engine.mode == "async" else 1
        self.flights: list[Flight] = []
        self.gpu_free = 0.0
        self.rounds = 0
        self.token = 0
        self.decodes = True
        self.ready_to_abort: list[Execution] = []
        back = self.engine.freed_blocks_go == "to_the_back"
        self.pool = Pool(self.engine.num_blocks, self.engine.prefix_caching, back)
        self.waiting: list[Execution] = []
        self.running: list[Execution] = []
        self.steps = 0
        self.busy = 0.0
        self.counter_prompt = self.computed_prompt = 0
        self.inbox: list[Execution] = []
        self.outstanding = 0
        self.unstarted = 0
        self.answered: list[Execution] = []
        self.preempted: list[Execution] = []

    def f(self, tokens: int) -> float:
        """f(T) of the step-time model."""
        if tokens == 0:
            return 0.0
        x, y = self.time.knots_tokens, self.time.knots_s
        if len(x) > 1 and tokens > x[-1]:
            return y[-1] + (y[-1] - y[-2]) / (x[-1] - x[-2]) * (tokens - x[-1])
        return float(np.interp(tokens, x, y))

    def enqueue(self, execution: Execution) -> None:
        self.waiting.append(execution)
        self.order()

    def order(self) -> None:
        if self.engine.policy == "priority":
            self.waiting.sort(key=lambda x: (x.priority, x.queued, x.id))

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.engine.block_size)

    def grow(self, x: Execution, n: int) -> None:
        """Blocks for n more tokens; the full ones are published."""
        while len(x.blocks) < self.blocks_for(x.computed + n):
            x.blocks.append(self.pool.take(x))
        self.publish(x, min(x.computed + n, x.tokens))

    def publish(self, x: Execution, known: int) -> None:
        """The blocks that `known` tokens fill can be hit."""
        while x.published < known // self.engine.block_size:
            self.pool.publish(x.blocks[x.published], x.keys[x.published], x)
            x.published += 1

    def let_go(self, x: Execution) -> None:
        self.pool.release(x.blocks, x)
        x.blocks = []
        x.peak = max(x.peak, x.computed)

    def preempt(self, x: Execution) -> None:
        self.running.remove(x)
        self.let_go(x)
        x.computed, x.state, x.placeholders = 0, "waiting", 0
        x.run += 1
        x.prefilled = False
        x.preemptions += 1
        x.silent_since = self.now
        self.waiting.insert(0, x)
        self.order()
        self.preempted.append(x)

    def schedule(self, now: float) -> list[Row]:
        """Decide a step: what each request computes in it."""
        self.now = now
        rows: list[Row] = []
        self.decodes = True
        budget = self.engine.max_num_batched_tokens
        limit = self.engine.long_prefill_token_threshold
        requests = len(self.running) + len(self.waiting)
        if limit and self.engine.long_prefill_token_threshold_adaptive:
            limit = max(limit, budget // max(requests, 1))
        if limit == 0 or (requests <= 1 and self.engine.long_prefill_alone == "whole"):
            limit = budget
        self.preempted = []
        if self.engine.batching == "prefill_first" and (self.waiting or any(not x.prefilled for x in self.running)):
            for x in [x for x in self.running if not x.prefilled]:
                n = min(x.tokens - x.computed, limit, budget)
                if n <= 0 or self.blocks_for(x.computed + n) - len(x.blocks) > len(self.pool.free):
                    break
                self.grow(x, n)
                rows.append(Row(x, n, x.computed, x.run))
                budget -= n
            self.admit(rows, budget, limit, now)
            if rows:
                self.decodes = False
                return rows
        k = 0
        while k < len(self.running) and budget > 0:
            x = self.running[k]
            if x.placeholders > 0 and x.computed + 2 - x.placeholders >= x.prompt + x.output:
                k += 1
                continue
            n = min(x.tokens + x.placeholders - x.computed, limit, budget)
            while self.blocks_for(x.computed + n) - len(x.blocks) > len(self.pool.free):
                victim = self.running[-1]
                if self.engine.policy == "priority":
                    victim = max(self.running, key=lambda q: (q.priority, q.queued))
                elif self.engine.preempts == "fewest_outputs":
                    victim = min(self.running[::-1], key=lambda q: (q.outputs + q.placeholders, -q.prompt))
                passed_over = all(row.execution is not victim for row in rows)
                skips = passed_over and self.engine.eviction_skips and self.engine.policy == "priority"
                if self.running.index(victim) < k and not skips:
                    k -= 1
                for row in [r for r in rows if r.execution is victim]:
                    budget += row.n
                    rows.remove(row)
                self.preempt(victim)
                if victim is x:
                    break
            if x.state == "waiting":
                if self.engine.policy == "priority" and self.engine.self_preempted == "pass_goes_on":
                    continue
                break
            self.grow(x, n)
            rows.append(Row(x, n, x.computed, x.run))
            budget -= n
            k += 1
        if not self.preempted and self.engine.batching == "mixed":
            self.admit(rows, budget, limit, now)
        return rows

    def promise(self, x: Execution) -> int:
        """Blocks that a request is promised at admission."""
        share = self.engine.reserve_share
        wanted = self.blocks_for(x.prompt + int(share * x.call.reserve))
        return min(wanted, self.engine.num_blocks - 1) if share else 0

    def admit(self, rows: list[Row], budget: int, limit: int, now: float) -> None:
        """From the head of the queue, while there is room."""
        size = self.engine.block_size
        while budget > 0 and self.waiting and len(self.running) + len(self.held) < self.engine.max_num_seqs:
            x = self.waiting[0]
            if x.gone:
                self.waiting.pop(0)
                x.state, x.end = "aborted", now
                self.dropped.append(x)
                continue
            hits: list[int] = []
            if self.engine.prefix_caching:
                for j in range((x.tokens - 1) // size):
                    block = self.pool.find(x.keys[j])
                    if block is None:
                        break
                    hits.append(block)
            idle = sum(block in self.pool.free for block in hits)
            reserve = int(self.engine.watermark * self.engine.num_blocks) if self.running else 0
            n = min(x.tokens - len(hits) * size, limit, budget)
            wanted = len(hits) * size + n if self.engine.admission_needs == "chunk" else x.tokens
            promised = sum(map(self.promise, self.running)) + self.promise(x)
            if self.engine.reserve_share and promised > self.engine.num_blocks - 1:
                break
            if self.blocks_for(wanted) - len(hits) + idle + reserve > len(self.pool.free):
                break
            self.waiting.pop(0)
            self.running.append(x)
            x.state, x.first_round, x.published = "running", self.rounds, len(hits)
            for block in hits:
                self.pool.touch(block, x)
            x.blocks, x.hits, x.computed = list(hits), len(hits), len(hits) * size
            if x.admitted is None:
                x.admitted, x.cached = now, x.computed
            self.grow(x, n)
            rows.append(Row(x, n, x.computed, x.run))
            budget -= n

    def duration(self, rows: list[Row], held: int, mixed: bool) -> float:
        """Seconds of a step, added up in the order of the engine: sums that differ in their last bit break ties."""
        t = self.time
        decoding = [row for row in rows if row.decodes]
        chunks = [row for row in rows if not row.decodes]
        count, total = len(rows) + held, sum(row.n for row in rows) + held
        kv = t.kv_token_s * sum(row.before + 1 for row in decoding)
        attention = sum((row.n * (row.before + 0.5 * row.n) for row in chunks), 0.0)
        duration = t.overhead_s + t.sequence_s * count + self.f(total) + t.decode_s * (len(decoding) + held)
        duration += kv * t.mixed_kv_factor if mixed else kv
        context = sum(row.before for row in chunks)
        return duration + (t.prefill_attention_s * attention + t.prefill_context_s * context + self.poll * len(rows))

    def start(self, rows: list[Row], now: float) -> float:
        """Enter a step in the books, and let it go; returns its duration."""
        t = self.time
        held = self.held if self.decodes else []
        count = len(rows) + len(held)
        total = sum(r.n for r in rows) + len(held)
        mixed = any(not r.decodes for r in rows)
        kv = t.kv_token_s * (t.mixed_kv_factor if mixed else 1.0)
        duration = self.duration(rows, len(held), mixed)
        for x in held:
            x.held_steps -= 1
            x.charge("held_slot", self.f(total) / total + t.overhead_s / count + t.sequence_s + t.decode_s)
        for row in rows:
            x = row.execution
            if row.decodes:
                own = t.decode_s + kv * (row.before + 1)
            else:
                own = t.prefill_attention_s * row.n * (row.before + row.n / 2) + t.prefill_context_s * row.before
            charge = self.f(total) * row.n / total + t.overhead_s / count + t.sequence_s + own
            alone = t.overhead_s if count == 1 else 0.0
            again = max(min(row.before + row.n, x.peak) - row.before, 0)
            x.recomputed += again
            who = "attended" if x.attended else "orphan"
            row.costs = {
                "recompute": charge * again / row.n,
                f"{who}_{'decode' if row.decodes else 'prefill'}": charge * (1 - again / row.n),
                "poll": self.poll,
                "marginal": self.f(total) - self.f(total - row.n) + t.sequence_s + own + alone,
            }
            for name, seconds in row.costs.items():
                x.charge(name, seconds)
            prompt = min(row.before + row.n, x.prompt) - min(row.before, x.prompt)
            x.computed_prompt += prompt
            self.computed_prompt += prompt
            x.computed += row.n
            x.computed_total += row.n
            row.gives_output = x.computed >= x.tokens + x.placeholders
            x.prefilled = x.prefilled or row.gives_output
            if self.depth > 1 and row.gives_output:
                x.placeholders += 1
        self.held = [x for x in self.held if x.held_steps > 0]
        start = max(now, self.gpu_free)
        self.gpu_free = start + duration
        self.flights.append(Flight(rows, start, self.gpu_free, duration))
        self.busy += duration
        self.steps += 1
        return duration

    def give_back(self, x: Execution, now: float) -> None:
        """The rest of x's rows in the steps in flight is not computed, and those end earlier."""
        saved = 0.0
        for flight in self.flights:
            flight.start -= saved
            flight.end -= saved
            for row in flight.rows:
                left = flight.end - max(now, flight.start)
                if row.execution is x and row.stands and flight.cost > 0 and left > 0:
                    share = min(left / flight.cost, 1.0)
                    for name, seconds in row.costs.items():
                        x.charge(name, -share * seconds)
                    whole = sum(seconds for name, seconds in row.costs.items() if name != "marginal")
                    less = left if flight.cost - whole < NOTHING_S else min(share * whole, left)
                    flight.cost -= whole
                    flight.end -= less
                    self.busy -= less
                    saved += less
        if self.flights:
            self.gpu_free = self.flights[-1].end

    def remove(self, x: Execution, lingers: bool = False) -> None:
        """Out of the queue or the batch, for good."""
        (self.running if x.state == "running" else self.waiting).remove(x)
        if lingers and x.blocks:
            x.lingers = True
            x.peak = max(x.peak, x.computed)
            self.lingering.append(x)
        else:
            self.let_go(x)

    def read_outputs(self, now: float) -> list[Execution]:
        """The first step in flight is over: its outputs are read. Returns the requests that finish."""
        finished, late = [], []
        self.answered = []
        for row in self.flights.pop(0).rows:
            x = row.execution
            if x.state not in ("running", "waiting") or not row.gives_output:
                continue
            if x.doomed and row.stands:
                self.ready_to_abort.append(x)
                continue
            if x.outputs == 0:
                x.first_output = now
                self.counter_prompt += x.prompt
                self.unstarted -= x.prompt
            x.outputs += 1
            if row.stands:
                x.silent_since = None
                self.answered.append(x)
            if row.stands and self.depth > 1:
                x.placeholders -= 1
                self.publish(x, x.computed - x.placeholders)
            if x.outputs >= x.output:
                (finished if row.stands else late).append(x)
        self.rounds += 1
        return finished + late[::-1]

    def finish(self, x: Execution, now: float) -> None:
        """Credit the producers of what it reused, and remove it."""
        for j, block in enumerate(x.blocks[: x.hits] if x.attended else []):
            producer = self.pool.producer.get(block)
            if producer is None or producer is x:
                continue
            if (j + 1) * self.engine.block_size <= producer.prompt:
                producer.salvaged_tokens += self.engine.block_size
            self.pool.producer[block] = None
        self.remove(x)
        x.state, x.end = "finished", now
