"""Random schedules of vLLM's own scheduler, from version 0.12 on: no model and no GPU, but a virtual clock.

`python scripts/record_schedules.py FOLDER [--scenarios N] [--seed S] [--set KEY=VALUE]...`, where vLLM is installed and
this repository is on PYTHONPATH, writes a folder for each scenario, laid out as those of tests/fixtures/golden.
`REPLAY_SCHEDULES=FOLDER pytest tests/engine/test_golden.py`, where the package is installed, holds the engine to them.

Requests arrive, and are aborted when a step has ended or, when none is in flight, at once. A step lasts
`base + prefill * P + decode * D + ctx * C` seconds, with P prefill tokens, D decoding requests, and C the context of
all rows after it. With asynchronous scheduling two steps are in flight.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import random
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import bench_step_log as bench
import pyarrow as pa
import pyarrow.parquet as pq

from replay.profiles.versions import scheduler_rules, version_in

REQUESTS = pa.schema(
    {
        "request": pa.int32(),
        "arrival": pa.float64(),
        "prompt_tokens": pa.int32(),
        "output_tokens": pa.int32(),
        "priority": pa.int32(),
        "cancel": pa.float64(),
        "block_hashes": pa.list_(pa.int64()),
        "content": pa.int32(),
    }
)
LONGEST = 2048
"""Most tokens of a sequence."""
ROUNDS_MOST = 60_000
"""Rounds after which a scenario has no end: vLLM preempts a request for ever that fits by its prompt alone."""
VOCABULARY = 30_000


def drawn_engine(rng: random.Random) -> dict[str, Any]:
    """Small pools and budgets, in which requests get into each other's way."""
    seqs = rng.choice([1, 2, 3, 4, 8, 16, 24])
    longest = rng.choice([LONGEST, LONGEST, LONGEST, 60, 200])
    return {
        "mode": rng.choice(["sync", "async"]),
        "policy": rng.choice(["fcfs", "fcfs", "priority"]),
        "max_model_len": longest,
        "max_num_seqs": seqs,
        "max_num_batched_tokens": max(seqs, rng.choice([16, 24, 40, 64, 128, 256, 512, 2048])),
        "block_size": rng.choice([8, 16, 16, 32]),
        "num_blocks": rng.choice([12, 16, 24, 24, 32, 40, 60, 90, 160, 400]),
        "prefix_caching": rng.random() < 0.55,
        "long_prefill_token_threshold": min(rng.choice([0, 0, 0, 10, 30, 64, 100, 200]), longest),
        "watermark": rng.choice([0.0, 0.0, 0.0, 0.01, 0.05, 0.1]),
    }


def drawn_step_time(rng: random.Random) -> dict[str, float]:
    """Seconds, as in the golden scenarios, or with terms that are small."""
    return {
        "base": rng.choice([0.0005, 0.004, 0.006236]),
        "prefill": rng.choice([1e-5, 8.3455e-05]),
        "decode": rng.choice([1e-5, 0.000168536]),
        "ctx": rng.choice([0.0, 1.21408e-07]),
    }


def drawn_tokens(rng: random.Random, most: int) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, most))]


def drawn_requests(rng: random.Random, engine: dict[str, Any]) -> list[dict[str, Any]]:
    """Requests in bursts, with their prompts' tokens: some equal an earlier one, some begin alike, some are aborted.

    Any fits into the pool by itself; the longest a sequence may be cuts outputs short.
    """
    room, longest = (engine["num_blocks"] - 1) * engine["block_size"], engine["max_model_len"]
    rate, prompt, output = rng.choice([2, 5, 20, 60, 300]), rng.choice([60, 200, 600]), rng.choice([3, 20, 60, 150])
    beginnings = [drawn_tokens(rng, 300) for _ in range(rng.randint(1, 5))]
    contents: list[tuple[list[int], int]] = []
    rows = []
    now = 0.0
    for number in range(rng.randint(3, 45)):
        if rng.random() < 0.85:
            now += rng.expovariate(rate) * rng.choice([1, 1, 4])
        content = rng.randrange(len(contents)) if contents and rng.random() < 0.35 else len(contents)
        if content == len(contents):
            beginning = rng.choice(beginnings) if rng.random() < 0.5 else []
            outputs = min(rng.randint(1, output), room // 2)
            most = longest - 1 if room > longest else room - outputs - 2
            contents.append(((beginning + drawn_tokens(rng, prompt))[:most], outputs))
        tokens, outputs = contents[content]
        waits = rng.choice([0.001, 0.01, 0.1, 0.5, 2.0]) * rng.random()
        rows.append(
            {
                "request": number,
                "arrival": now,
                "prompt_tokens": len(tokens),
                "output_tokens": outputs,
                "priority": rng.randint(0, 3) if engine["policy"] == "priority" else 0,
                "cancel": now + waits if rng.random() < 0.3 else None,
                "block_hashes": block_hashes(tokens, engine["block_size"]) if engine["prefix_caching"] else [],
                "content": content,
                "tokens": tokens,
            }
        )
    return rows


def block_hashes(tokens: list[int], size: int) -> list[int]:
    """A number for each full block, equal where it and all before it are."""
    found: list[int] = []
    for first in range(0, len(tokens) // size * size, size):
        text = repr((found[-1:], tokens[first : first + size]))
        found.append(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1)
    return found


def name_of(number: int) -> str:
    """A request's id in vLLM, which orders equals by it."""
    return f"{number:06d}"


@cache
def block_hasher(size: int) -> Any:
    """What gives requests their block hashes."""
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher

    return get_request_block_hasher(size, hash_function())


@cache
def hash_function() -> Any:
    """vLLM's own, seeded: once, as older versions draw another seed each time."""
    from vllm.v1.core.kv_cache_utils import init_none_hash

    try:
        from vllm.utils.hashing import sha256
    except ImportError:
        from vllm.utils import sha256
    init_none_hash(sha256)
    return sha256


class NoEnd(Exception):
    """The scheduler goes round in circles."""


@dataclass
class Recorder:
    """vLLM's engine core around its scheduler, and what it writes down of each step and request."""

    engine: dict[str, Any]
    step_time: dict[str, float]
    rows: list[dict[str, Any]]
    now: float = 0.0
    gpu_free: float = 0.0
    flights: list[tuple[float, Any, Any]] = field(default_factory=list)
    """End, decision and outputs of each step that has not ended."""
    requests: dict[str, Any] = field(default_factory=dict)
    """vLLM's own records of those that have arrived, by id."""
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    scheduled: list[dict[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler

        self.depth = 2 if self.engine["mode"] == "async" else 1
        self.scheduler = bench.scheduler(self.engine, AsyncScheduler if self.depth == 2 else Scheduler)
        self.to_come = sorted(self.rows, key=lambda row: (row["arrival"], row["request"]))
        cancelled = [row for row in self.rows if row["cancel"] is not None]
        self.to_abort = sorted(cancelled, key=lambda row: (row["cancel"], row["request"]))

    def run(self) -> None:
        """To the end of all requests. Raises NoEnd."""
        for _ in range(ROUNDS_MOST):
            self.read_arrivals()
            self.read_aborts()
            if self.waiting() or self.scheduler.running:
                has_rows = self.take_step()
                busy = has_rows or self.waiting() or self.scheduler.running
                if len(self.flights) < self.depth and busy:
                    continue
            if self.flights:
                self.end_step()
            elif self.to_come:
                self.now = max(self.now, self.to_come[0]["arrival"])
            else:
                self.scheduler.shutdown()
                return
        raise NoEnd

    def waiting(self) -> int:
        return len(self.scheduler.waiting) + len(getattr(self.scheduler, "skipped_waiting", ()))

    def read_arrivals(self) -> None:
        while self.to_come and self.to_come[0]["arrival"] <= self.now:
            row = self.to_come.pop(0)
            name = name_of(row["request"])
            self.requests[name] = bench.request(
                name, row["tokens"], row["output_tokens"], row["priority"], row["arrival"],
                block_hasher=block_hasher(self.engine["block_size"]) if self.engine["prefix_caching"] else None,
            )  # fmt: skip
            self.outcomes[name] = {
                "request": row["request"], "admitted": None, "first_token": None, "finished": None, "status": None,
                "computed_prompt_tokens": 0, "computed_tokens": 0, "cached_prompt_tokens": 0,
            }  # fmt: skip
            self.scheduler.add_request(self.requests[name])

    def read_aborts(self) -> None:
        """An abort waits until its request has been added, and later ones wait behind it."""
        from vllm.v1.request import RequestStatus

        while self.to_abort and self.to_abort[0]["cancel"] <= self.now:
            name = name_of(self.to_abort[0]["request"])
            if name not in self.requests:
                return
            self.to_abort.pop(0)
            if self.outcomes[name]["status"] is None:
                self.scheduler.finish_requests([name], RequestStatus.FINISHED_ABORTED)
                self.ends(name, "abort")

    def ends(self, name: str, status: str) -> None:
        request = self.requests[name]
        self.outcomes[name] |= {
            "finished": self.now,
            "status": status,
            "preemptions": request.num_preemptions,
            "output_tokens": request.num_output_tokens,
        }

    def take_step(self) -> bool:
        """Let the scheduler decide the next step; returns whether it has any rows."""
        before = {name: request.num_preemptions for name, request in self.requests.items()}
        decision = self.scheduler.schedule()
        tokens = dict(decision.num_scheduled_tokens)
        prefill = decode = context = 0
        for name, n in tokens.items():
            request = self.requests[name]
            computed, prompt = request.num_computed_tokens, request.num_prompt_tokens
            context += computed
            if n == 1 and computed > prompt:
                decode += 1
            else:
                prefill += n
            self.enter_row(name, n, computed, prompt)
        if not tokens:
            self.flights.append((self.now, decision, None))
            return False
        start = max(self.now, self.gpu_free)
        terms = zip(("prefill", "decode", "ctx"), (prefill, decode, context), strict=True)
        duration = self.step_time["base"] + sum(self.step_time[term] * number for term, number in terms)
        self.gpu_free = start + duration
        self.steps.append(
            {
                "step": len(self.steps),
                "scheduled_at": self.now,
                "start": start,
                "duration": duration,
                "prefill_tokens": prefill,
                "decode_tokens": decode,
                "context_tokens": context,
                "running": len(self.scheduler.running),
                "waiting": self.waiting(),
                "free_blocks": self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
                "preempted": sum(self.requests[name].num_preemptions - count for name, count in before.items()),
            }
        )
        self.flights.append((self.gpu_free, decision, bench.outputs(self.scheduler, decision, self.token)))
        return True

    def enter_row(self, name: str, n: int, computed: int, prompt: int) -> None:
        """A request computes `n` tokens in the next step, and has `computed` after it."""
        self.scheduled.append({"step": len(self.steps), "request": int(name), "tokens": n})
        outcome = self.outcomes[name]
        outcome["computed_tokens"] += n
        outcome["computed_prompt_tokens"] += min(computed, prompt) - min(computed - n, prompt)
        if outcome["admitted"] is None:
            outcome |= {"admitted": self.now, "cached_prompt_tokens": computed - n}

    def token(self, request: Any) -> int:
        """What the model puts out for a request: its content and the token's place decide."""
        place = int(request.num_computed_tokens - request.num_prompt_tokens)
        return VOCABULARY + self.rows[int(request.request_id)]["content"] * LONGEST + place

    def end_step(self) -> None:
        """The first step in flight is over: aborts first, unless they are read later, then its outputs."""
        end, decision, outputs = self.flights.pop(0)
        self.now = max(self.now, end)
        if self.engine.get("aborts_read") != "loop_top":
            self.read_aborts()
        if outputs is None:
            return
        self.scheduler.update_from_output(decision, outputs)
        for name, request in self.requests.items():
            outcome = self.outcomes[name]
            if outcome["first_token"] is None and request.num_output_tokens > 0:
                outcome["first_token"] = self.now
            if outcome["status"] is None and request.is_finished():
                self.ends(name, "length")

    def write(self, folder: Path, version: str) -> None:
        """The scenario and its schedule."""
        scenario = {
            "engine": self.engine,
            "step_time": self.step_time,
            "source": f"vllm {version} V1 scheduler, no model, virtual clock",
        }
        folder.mkdir(parents=True)
        (folder / "scenario.json").write_text(json.dumps(scenario, indent=1) + "\n")
        rows = [{key: row[key] for key in REQUESTS.names} for row in self.rows]
        pq.write_table(pa.Table.from_pylist(rows, REQUESTS), folder / "requests.parquet")
        outcomes = [self.outcomes[name] for name in sorted(self.outcomes)]
        for name, records in (("steps", self.steps), ("scheduled", self.scheduled), ("outcome", outcomes)):
            pq.write_table(pa.Table.from_pylist(records), folder / f"{name}.parquet")


def main() -> None:
    import vllm
    from vllm.config import SchedulerConfig

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scenarios", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all engines")
    arguments = parser.parse_args()
    given = {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in arguments.set)}
    version = str(vllm.__version__)
    number = version_in(version)
    rules = scheduler_rules(number) if number else {}
    known = inspect.signature(SchedulerConfig).parameters
    steps = 0
    for seed in range(arguments.seed, arguments.seed + arguments.scenarios):
        rng = random.Random(seed)
        engine = {**drawn_engine(rng), **rules, **given}
        if "watermark" not in known:
            engine["watermark"] = 0.0
        recorder = Recorder(engine, drawn_step_time(rng), drawn_requests(rng, engine))
        recorder.run()
        recorder.write(arguments.folder / f"drawn-{seed}-{engine['mode']}", version)
        steps += len(recorder.steps)
    print(f"vLLM {version}: {arguments.scenarios} scenarios, {steps:,} steps")


if __name__ == "__main__":
    main()
