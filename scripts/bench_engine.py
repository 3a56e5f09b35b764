"""Speed of `simulate`, whole: clients, ledger, Arrow in and out. CPU seconds of one process, compile excluded.

`python scripts/bench_engine.py [--calls N] [--case NAME]... [--json]` prints a row for each case: prompts U[512, 2000],
outputs U[100, 300]; 27,000 blocks, 256 slots, 2,048 tokens a step; 10 calls/s is calm, 40/s overloaded. With `clients`
they time out after 30 s and try twice more. With `prefix` caching is on, and half of the prompts share one of 64
prefixes of 512 tokens.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np
import pyarrow as pa

from replay.engine import Results, simulate
from replay.policies.knobs import Client, Policy
from replay.profiles.profile import EngineSettings, Profile, StepTime

CASES = {
    "calm": (10.0, False, False),
    "calm_prefix": (10.0, True, False),
    "overload_clients": (40.0, False, True),
    "overload_clients_prefix": (40.0, True, True),
}
"""By name: calls per second, prefix caching, clients that time out."""
REPEATS = 3
"""Runs of each case, of which the fastest counts: the first one also pays for fresh memory."""
PREFIX_BLOCKS, PREFIXES, BLOCK = 32, 64, 16


def calls_table(n: int, rate: float, prefix: bool) -> pa.Table:
    """`n` Poisson calls."""
    rng = np.random.default_rng(1)
    columns = {
        "call_id": pa.array(np.arange(n)),
        "content_id": pa.array(np.arange(n)),
        "arrival_s": pa.array(np.cumsum(rng.exponential(1.0 / rate, n))),
        "prompt_tokens": pa.array(rng.integers(512, 2001, n).astype(np.int32)),
        "output_tokens": pa.array(rng.integers(100, 301, n).astype(np.int32)),
    }
    if prefix:
        lengths = np.where(rng.random(n) < 0.5, PREFIX_BLOCKS, 0)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        hashes = np.repeat(rng.integers(0, PREFIXES, n), lengths) * PREFIX_BLOCKS + place
        values = pa.array(hashes.astype(np.uint64))
        columns["block_hashes"] = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
        columns["hash_block_tokens"] = pa.array(np.full(n, BLOCK, np.int32))
    return pa.table(columns)


def profile(prefix: bool) -> Profile:
    """An 8B model on one large GPU, roughly."""
    engine = EngineSettings(
        max_num_seqs=256, max_num_batched_tokens=2048, block_size=BLOCK, num_blocks=27_000, prefix_caching=prefix
    )
    token_s = 21.5e-6
    step = StepTime(
        knots_tokens=(1, 2), knots_s=(token_s, 2 * token_s), decode_s=0.5e-6 - token_s, kv_token_s=4e-8, overhead_s=6e-3
    )
    return Profile(name="bench", engine=engine, step_time=step)


def policy(clients: bool) -> Policy:
    """Clients that wait for ever, or 30 s and then twice more."""
    if not clients:
        return Policy(name="patient", client=Client(max_attempts=1))
    return Policy(name="cancel", client=Client(timeout_s=30.0, max_attempts=3, backoff_base_s=1.0))


def measure(case: str, n: int) -> dict[str, object]:
    """One case: calls and steps per CPU second, and the memory that the process needed at most."""
    rate, prefix, clients = CASES[case]
    simulate(calls_table(10, rate, prefix), policy(clients), profile(prefix))
    calls = calls_table(n, rate, prefix)
    seconds = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        results: Results = simulate(calls, policy(clients), profile(prefix))
        seconds = min(seconds, time.process_time() - began)
    return {
        "case": case,
        "calls": n,
        "calls_per_cpu_s": round(n / seconds),
        "steps_per_cpu_s": round(int(np.asarray(results.replicas["steps"]).sum()) / seconds),
        "attempts": results.attempts.num_rows,
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    rows = [measure(case, arguments.calls) for case in arguments.case or CASES]
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'case':26}{'calls':>12}{'calls/CPU s':>14}{'steps/CPU s':>14}{'attempts':>12}{'peak MB':>10}")
    for row in rows:
        figures = f"{row['calls']:>12,}{row['calls_per_cpu_s']:>14,}{row['steps_per_cpu_s']:>14,}"
        print(f"{row['case']:26}{figures}{row['attempts']:>12,}{row['peak_mb']:>10,}")


if __name__ == "__main__":
    main()
