"""Speed and memory of `replay ingest`, whole: read, check, fold, write; beside DuckDB reading the same file.

`python scripts/bench_ingest.py [--case NAME]... [--rows N] [--file PATH] [--json]` prints a row for each case, measured
in a process of its own on one thread. Files are made with seed 1: `azure` is CSV as in Azure's traces of 2024 (times
with six digits and a zone, two lengths), `azure_10m` has ten times the rows of it; `jsonl` are JSON lines with the
names of docs/schema.md, `gateway` JSON lines of attempts with the call, the caller and the outcome of each, `nginx` an
access log. `--file` measures a log of your own. Speeds are rows per CPU second, of user and system; `peak_mb` is the
most memory that the process had at once, of which about 80 MB are Python and Arrow. DuckDB reads the file and sums up
its numbers.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

ROWS = 1_000_000
WEEK_S = 7 * 86_400.0
MONDAY_US = 1_715_299_200_000_000
"""2024-05-10, as microseconds since 1970."""


def traffic(rows: int) -> pa.Table:
    """Poisson arrivals over a week, and log-normal lengths."""
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "us": MONDAY_US + (np.cumsum(rng.exponential(WEEK_S / rows, rows)) * 1e6).astype(np.int64),
            "prompt": np.minimum(rng.lognormal(7.0, 1.0, rows).astype(np.int64) + 1, 30_000),
            "output": np.minimum(rng.lognormal(5.0, 1.0, rows).astype(np.int64) + 1, 5_000),
        }
    )


def azure(path: Path, rows: int) -> None:
    """As in the Azure LLM inference traces of 2024."""
    table = traffic(rows)
    time_text = pc.binary_join_element_wise(table["us"].cast(pa.timestamp("us")).cast(pa.string()), "+00:00", "")
    names = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]
    named = pa.table([time_text, table["prompt"], table["output"]], names=names)
    csv.write_csv(named, path, csv.WriteOptions(quoting_style="none", quoting_header="none"))


def jsonl(path: Path, rows: int) -> None:
    """The names of docs/schema.md."""

    def line(k: int, us: int, prompt: int, output: int) -> dict[str, Any]:
        return {"arrival_s": us / 1e6, "prompt_tokens": prompt, "output_tokens": output, "model": f"m{k % 3}"}

    write_lines(path, rows, line)


def gateway(path: Path, rows: int) -> None:
    """Every eleventh attempt is the retry of one that timed out."""

    def line(k: int, us: int, prompt: int, output: int) -> dict[str, Any]:
        retry, timeout = k % 11 == 10, k % 11 == 9
        start = (us - MONDAY_US) / 1e6
        known = {"call": f"call-{k - retry}", "attempt": int(retry), "prompt": prompt, "output": output}
        ended = {"start": start, "end": start + 3.5, "status": "timeout" if timeout else "ok"}
        return {**known, **ended, "tenant": f"t{k % 50}"}

    write_lines(path, rows, line)


def nginx(path: Path, rows: int) -> None:
    """An access log with a JSON log_format, as nginx writes it: all values are texts."""

    def line(k: int, us: int, prompt: int, output: int) -> dict[str, Any]:
        code = "499" if k % 11 == 9 else "200"
        ended = {"msec": f"{us / 1e6:.3f}", "request_time": "3.500", "upstream_response_time": "3.500"}
        known = {"request_id": f"{k:032x}", "remote_addr": f"10.0.0.{k % 50}", "status": code, "upstream_status": code}
        sizes = {"request_length": str(4 * prompt), "body_bytes_sent": str(90 * output)}
        return {**ended, **known, **sizes, "request": "POST /v1/chat/completions HTTP/1.1"}

    write_lines(path, rows, line)


def write_lines(path: Path, rows: int, line: Callable[[int, int, int, int], dict[str, Any]]) -> None:
    columns = (column.to_pylist() for column in traffic(rows).columns)
    with path.open("w") as file:
        file.writelines(f"{json.dumps(line(k, *values))}\n" for k, values in enumerate(zip(*columns, strict=True)))


CASES: dict[str, tuple[Callable[[Path, int], None], int]] = {
    "azure": (azure, 1), "azure_10m": (azure, 10), "jsonl": (jsonl, 1), "gateway": (gateway, 1),
    "nginx": (nginx, 1),
}  # fmt: skip
"""What makes the file of a case, and how many times the rows it has."""


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_mb() -> int:
    """The most memory that this process has had at once."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2))


def measured(work: Callable[[], int]) -> dict[str, object]:
    """Speed and memory of what tells how many rows it read."""
    began, clock = cpu_s(), time.perf_counter()
    rows = work()
    used = cpu_s() - began
    return {
        "rows": rows,
        "rows_per_cpu_s": round(rows / used),
        "cpu_s": round(used, 2),
        "wall_s": round(time.perf_counter() - clock, 2),
        "peak_mb": peak_mb(),
    }


def by_replay(path: str) -> dict[str, object]:
    from replay.ingest import ingest, write_trace

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)

    def work() -> int:
        with tempfile.TemporaryDirectory() as directory:
            trace = ingest([path], bytes_per_token=4.0)  # of nginx's, which knows no tokens
            write_trace(trace, f"{directory}/trace.parquet")
        assert trace.report is not None
        return sum(file.rows_read for file in trace.report.files)

    return measured(work)


def by_duckdb(path: str) -> dict[str, object]:
    def work() -> int:
        with duckdb.connect(config={"threads": 1}) as connection:
            table = connection.read_csv(path) if path.endswith(".csv") else connection.read_json(path)
            numbers = [name for name, type in zip(table.columns, table.types, strict=True) if str(type) == "BIGINT"]
            sums = ", ".join(f'sum("{name}")' for name in numbers)
            times = f'max("{table.columns[0]}")'
            return int(table.aggregate(f"count(*), {times}, {sums}").fetchall()[0][0])

    return measured(work)


READERS = {"replay ingest": by_replay, "duckdb": by_duckdb}


def measured_apart(reader: str, path: str) -> dict[str, object]:
    """`measured` in a fresh process: neither memory nor its fragments are shared."""
    command = [sys.executable, __file__, "--here", reader, "--file", path]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    row: dict[str, object] = json.loads(done.stdout)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this case; may be repeated")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of a file; azure_10m has ten times as many")
    parser.add_argument("--file", help="measure this log instead")
    parser.add_argument("--json", action="store_true", help="a list of records")
    parser.add_argument("--here", choices=list(READERS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(READERS[arguments.here](arguments.file)))
        return
    rows = []
    with tempfile.TemporaryDirectory(prefix="replay-bench-") as directory:
        for case in [arguments.file] if arguments.file else arguments.case or list(CASES):
            path = Path(case)
            if not arguments.file:
                make, times = CASES[case]
                path = Path(directory) / f"{case}.{'csv' if make is azure else 'jsonl'}"
                # In a process of its own: what is measured starts with the memory of the one that starts it.
                making = multiprocessing.get_context("spawn").Process(target=make, args=(path, arguments.rows * times))
                making.start()
                making.join()
            for reader in READERS:
                rows.append({"case": path.stem, "reader": reader, **measured_apart(reader, str(path))})
                if not arguments.json:
                    print_row(rows[-1], heading=len(rows) == 1)
            if not arguments.file:
                path.unlink()
    if arguments.json:
        print(json.dumps(rows, indent=1))


def print_row(row: dict[str, object], heading: bool) -> None:
    figures = ("rows", "rows_per_cpu_s", "cpu_s", "wall_s", "peak_mb")
    if heading:
        print(f"{'case':16}{'reader':16}" + "".join(f"{figure:>16}" for figure in figures))
    print(f"{row['case']:16}{row['reader']:16}" + "".join(f"{row[figure]:>16,}" for figure in figures), flush=True)


if __name__ == "__main__":
    main()
