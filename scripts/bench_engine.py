"""Speed of `simulate()`, whole: clients, ledger, Arrow in and out; and the memory that it takes.

`python scripts/bench_engine.py [--case NAME]... [--calls N] [--json]` prints a row for each case, measured in a process
of its own: profile h100-sxm/llama-3.1-8b/tp1/bf16/vllm, asynchronous, 27,000 blocks, 256 slots, 2,048 tokens a step;
prompts U[512, 2000], outputs U[100, 300]. Calm is 10 calls/s for each replica, overload 40. With `clients` they time
out after 30 s and try twice more. With `prefix` caching is on, and half of the prompts share one of 64 prefixes of 512
tokens. Cases that end in `1m` have ten times as many calls. Speeds are per CPU second, compiling excluded.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from replay.engine import simulate
from replay.policies.knobs import Client, Fleet, Gateway, Policy
from replay.profiles.loader import find_profile, with_settings
from replay.profiles.profile import Profile

PROFILE = "h100-sxm/llama-3.1-8b/tp1/bf16/vllm"
REPEATS = 3
"""Runs of each case, of which the fastest counts: the first one also pays for fresh memory."""
PREFIX_BLOCKS, PREFIXES, BLOCK = 32, 64, 16


@dataclass(frozen=True, slots=True)
class Case:
    """Traffic and fleet of one measurement."""

    calls_per_s: float
    prefix: bool = False
    clients: bool = False
    replicas: int = 1
    times: int = 1


CASES = {
    "calm": Case(10.0),
    "calm_prefix": Case(10.0, prefix=True),
    "overload_clients": Case(40.0, clients=True),
    "overload_clients_prefix": Case(40.0, prefix=True, clients=True),
    "calm_prefix_1m": Case(10.0, prefix=True, times=10),
    "overload_clients_prefix_1m": Case(40.0, prefix=True, clients=True, times=10),
    "fleet8_prefix": Case(80.0, prefix=True, replicas=8),
}


def calls_table(case: Case, n: int) -> pa.Table:
    """`n` Poisson calls."""
    rng = np.random.default_rng(1)
    columns = {
        "call_id": pa.array(np.arange(n)),
        "content_id": pa.array(np.arange(n)),
        "arrival_s": pa.array(np.cumsum(rng.exponential(1.0 / case.calls_per_s, n))),
        "prompt_tokens": pa.array(rng.integers(512, 2001, n).astype(np.int32)),
        "output_tokens": pa.array(rng.integers(100, 301, n).astype(np.int32)),
    }
    if case.prefix:
        hashes = np.arange(PREFIXES * PREFIX_BLOCKS, dtype=np.uint64)
        ends = np.minimum(np.arange(PREFIXES + 2), PREFIXES) * PREFIX_BLOCKS
        prefixes = pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pa.array(hashes))
        chosen = np.where(rng.random(n) < 0.5, rng.integers(0, PREFIXES, n), PREFIXES)
        columns["block_hashes"] = prefixes.take(pa.array(chosen))
        columns["hash_block_tokens"] = pa.array(np.full(n, BLOCK, np.int32))
    return pa.table(columns)


def engine(case: Case) -> Profile:
    """The profile, with the settings that are measured."""
    settings = {
        "mode": "async",
        "max_num_seqs": 256,
        "max_num_batched_tokens": 2048,
        "block_size": BLOCK,
        "num_blocks": 27_000,
        "prefix_caching": case.prefix,
    }
    return with_settings(find_profile(PROFILE), settings)


def policy(case: Case) -> Policy:
    """Clients that wait for ever, or 30 s and then twice more."""
    gateway = Gateway(routing="prefix_affinity" if case.replicas > 1 else "round_robin")
    client = Client(timeout_s=30.0, max_attempts=3, backoff_base_s=1.0) if case.clients else Client(max_attempts=1)
    return Policy(name="cancel", client=client, gateway=gateway)


def peak_mb() -> float:
    """The most memory that this process has had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)


def resident_mb() -> float:
    """The memory that this process has now; where the system does not say, the most that it has had."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak_mb()
    return pages * resource.getpagesize() / 1024**2


def measure(name: str, n: int) -> dict[str, object]:
    """Calls and steps per CPU second of one case, and the memory that the process needed at most."""
    case = CASES[name]
    pa.set_cpu_count(1)
    arguments = policy(case), engine(case), Fleet(replicas=case.replicas)
    simulate(calls_table(case, 10), *arguments)
    calls = calls_table(case, n * case.times)
    pa.default_memory_pool().release_unused()
    before = resident_mb()
    seconds, steps = float("inf"), 0
    for _ in range(REPEATS):
        began = time.process_time()
        results = simulate(calls, *arguments)
        seconds = min(seconds, time.process_time() - began)
        steps = int(np.asarray(results.replicas["steps"]).sum())
        attempts = results.attempts.num_rows
        del results
    return {
        "case": name,
        "calls": calls.num_rows,
        "calls_per_cpu_s": round(calls.num_rows / seconds),
        "steps_per_cpu_s": round(steps / seconds),
        "attempts": attempts,
        "peak_mb": round(peak_mb()),
        "mb_per_million_calls": round((peak_mb() - before) / calls.num_rows * 1e6),
    }


def measured_apart(name: str, n: int) -> dict[str, object]:
    """`measure` in a fresh process: neither memory nor its fragments are shared between cases."""
    command = [sys.executable, __file__, "--here", "--case", name, "--calls", str(n)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    row: dict[str, object] = json.loads(done.stdout)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this case; may be repeated")
    parser.add_argument("--calls", type=int, default=100_000, help="calls of a case that does not end in 1m")
    parser.add_argument("--json", action="store_true", help="a list of records")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = arguments.case or list(CASES)
    if arguments.here:
        print(json.dumps(measure(names[0], arguments.calls)))
        return
    rows = (measured_apart(name, arguments.calls) for name in names)
    if arguments.json:
        print(json.dumps(list(rows), indent=1))
        return
    columns = ("calls", "calls_per_cpu_s", "steps_per_cpu_s", "attempts", "peak_mb", "mb_per_million_calls")
    print(f"{'case':28}" + "".join(f"{column:>{max(len(column), 10) + 2}}" for column in columns))
    for row in rows:
        figures = "".join(f"{row[column]:>{max(len(column), 10) + 2},}" for column in columns)
        print(f"{row['case']:28}{figures}", flush=True)


if __name__ == "__main__":
    main()
