"""What vLLM's scheduler did, step by step, as JSON lines: a scheduler class for `vllm serve`, in one file of its own.

    PYTHONPATH=/where/this/file/is VLLM_STEP_LOG=/var/log/vllm/engine.{pid}.steps.jsonl.gz \\
        vllm serve MODEL --scheduler-cls vllm_step_log.StepLogScheduler

`StepLogScheduler` decides exactly what vLLM's own scheduler decides: with async scheduling on, it is vLLM's
AsyncScheduler, else its Scheduler. vLLM 0.10 to 0.33, Python 3.10 or later; what a version does not have is null in the
log. (0.10 and 0.11 put their own class in place when --async-scheduling is given; without it this one is used.)

`VLLM_STEP_LOG`
    The file; `{pid}` and `{rank}` (of the data-parallel engine) are filled in, a name that ends in .gz is compressed, a
    file that exists gets a sibling with a number. Default: engine.{pid}.steps.jsonl in the current directory.
`VLLM_STEP_LOG_MAX_MB`
    Where the log ends, 4096 unless given; 0: never.

Prompts and outputs are never read, nor sampling parameters, but for the number of stop strings. Request ids are written
as they are.

The engine's thread only notes what vLLM has computed anyway; another thread makes text of it once a second, a few
hundred rows at a time. At most `ROWS_MOST` rows wait for it; what comes on top is dropped, and the log says how much. A
file that cannot be written ends the log, with one warning, and never the engine.

Microseconds of CPU for a step of decoding requests, under vLLM 0.33's scheduler on a busy two-core machine (medians by
scripts/bench_step_log.py):

    requests    vLLM's scheduler    the log adds    the other thread takes
           1                 101              22                         8
          64                 924              31                        35
         256               3,848              67                       126

The lines, by `kind` (times are Unix seconds; `n` is the number of a request, counted from 0):

`header`    format, vllm_version, started_at, pid, rank, model, dtype, tensor_parallel_size, pipeline_parallel_size,
            num_speculative_tokens, and `engine`: mode, policy, max_model_len, max_num_seqs, max_num_batched_tokens,
            block_size, num_blocks, prefix_caching, long_prefill_token_threshold,
            long_prefill_token_threshold_adaptive, watermark
`add`       t, n, id, prompt (tokens), max (output tokens), priority, arrival (at the API server), stops (stop strings)
`step`      k, t0 (scheduled), t (began: then, or when the step before it ended), t1 (outputs were read), run, wait,
            free (blocks), rows of [n, tokens, computed before]; -1: unknown
`preempt`, `finish`, `abort`    t, n, computed, out (output tokens), status
`dropped`   steps, events: lost since the last such line, because they came faster than they were written
`end`       t, reason: the log was closed; without it, the process was killed
"""

from __future__ import annotations

import atexit
import gzip
import json
import logging
import os
import threading
import time
from collections import deque
from contextlib import suppress
from itertools import repeat
from multiprocessing import util as multiprocessing_util
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler

try:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
except ImportError:
    AsyncScheduler = None

FORMAT = 2
"""1 is the layout without `format`, whose rows carry ids."""
DEFAULT_PATH = "engine.{pid}.steps.jsonl"
MAX_MB = 4096.0
ROWS_MOST = 500_000
"""Rows that may wait to be written: about 20 s of 100 steps a second with 256 rows each, in 50 MB of memory."""
FLUSH_S = 1.0
ROWS_AT_ONCE = 256
"""Rows made into text before the other thread lets go of the interpreter, so that the engine never waits for long."""
REST_S = 0.0001
CLOSE_S = 2.0
"""How long an exit waits for the file."""
IN_FLIGHT_MOST = 64
"""Steps that are remembered until their outputs are read; vLLM has two in flight, or as many as pipeline stages."""
SIBLINGS_MOST = 10_000
COMPRESSION = 5

logger = logging.getLogger("vllm.step_log")


def look(thing: Any, path: str) -> Any:
    """The attribute at a dotted path; None where this version of vLLM does not have it."""
    for name in path.split("."):
        thing = getattr(thing, name, None)
    return thing


def first(*values: Any) -> Any:
    """The first that is not None."""
    return next((value for value in values if value is not None), None)


def plain(value: Any) -> Any:
    """A value that JSON has; the text of any other, without the name of its enumeration."""
    value = getattr(value, "value", value)
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def is_async(config: Any) -> bool:
    return bool(look(config, "scheduler_config.async_scheduling"))


def header_of(scheduler: Any) -> dict[str, Any]:
    """The log's first line."""
    import vllm

    config = look(scheduler, "vllm_config")
    settings = {
        "mode": "async" if AsyncScheduler is not None and isinstance(scheduler, AsyncScheduler) else "sync",
        "policy": first(look(scheduler, "policy"), look(config, "scheduler_config.policy")),
        "max_model_len": first(look(scheduler, "max_model_len"), look(config, "model_config.max_model_len")),
        "max_num_seqs": first(look(scheduler, "max_num_running_reqs"), look(config, "scheduler_config.max_num_seqs")),
        "max_num_batched_tokens": first(
            look(scheduler, "max_num_scheduled_tokens"), look(config, "scheduler_config.max_num_batched_tokens")
        ),
        "block_size": first(look(scheduler, "block_size"), look(config, "cache_config.block_size")),
        "num_blocks": first(look(scheduler, "kv_cache_config.num_blocks"), look(config, "cache_config.num_gpu_blocks")),
        "prefix_caching": look(config, "cache_config.enable_prefix_caching"),
        "long_prefill_token_threshold": look(config, "scheduler_config.long_prefill_token_threshold"),
        "long_prefill_token_threshold_adaptive": look(config, "scheduler_config.long_prefill_token_threshold_adaptive"),
        "watermark": look(config, "scheduler_config.watermark"),
    }
    about = {
        "vllm_version": getattr(vllm, "__version__", None),
        "started_at": round(time.time(), 6),
        "pid": os.getpid(),
        "rank": rank_of(config),
        "model": look(config, "model_config.model"),
        "dtype": str(look(config, "model_config.dtype") or "").removeprefix("torch.") or None,
        "tensor_parallel_size": look(config, "parallel_config.tensor_parallel_size"),
        "pipeline_parallel_size": look(config, "parallel_config.pipeline_parallel_size"),
        "num_speculative_tokens": look(config, "speculative_config.num_speculative_tokens"),
    }
    head = {"kind": "header", "format": FORMAT, **{key: plain(value) for key, value in about.items()}}
    return {**head, "engine": {key: plain(value) for key, value in settings.items()}}


def rank_of(config: Any) -> Any:
    return first(
        look(config, "parallel_config.data_parallel_index"), look(config, "parallel_config.data_parallel_rank")
    )


def opened(path: str) -> Any:
    """The file at `path`, or at a.2.jsonl beside a.jsonl and so on: never one that exists. Raises OSError."""
    folder, name = os.path.split(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    stem, dot, rest = name.partition(".")
    for number in range(1, SIBLINGS_MOST):
        sibling = name if number == 1 else f"{stem}.{number}{dot}{rest}"
        with suppress(FileExistsError):
            return open(os.path.join(folder, sibling), "xb")
    raise FileExistsError(f"{path} and {SIBLINGS_MOST} beside it exist")


class Log:
    """Lines on their way from the engine's thread to the file. `put` never blocks and never raises an OSError."""

    def __init__(self, path: str, header: dict[str, Any], max_bytes: float) -> None:
        self.max_bytes = max_bytes
        self.raw = opened(path)
        self.file = gzip.GzipFile(fileobj=self.raw, mode="wb", compresslevel=COMPRESSION) if is_gz(path) else self.raw
        self.buffer: deque[tuple[int, tuple[Any, ...]]] = deque()
        self.rows_in = self.rows_out = 0
        self.lost_steps = self.lost_events = 0
        self.told = (0, 0)
        self.over = False
        self.closing = threading.Event()
        self.write([line(header)])
        self.file.flush()
        logger.info("step log: %s", self.raw.name)
        self.thread = threading.Thread(target=self.run, name="step-log", daemon=True)
        self.thread.start()

    def put(self, kind: str, rows: int, *values: Any) -> None:
        """Hand over a line of some rows; only called by the engine's thread."""
        waiting = self.rows_in - self.rows_out
        is_step = kind == "step"
        if self.over or waiting > (ROWS_MOST if is_step else 2 * ROWS_MOST):
            self.lost_steps += is_step
            self.lost_events += not is_step
            return
        self.rows_in += rows + 1
        self.buffer.append((rows + 1, (kind, *values)))

    def run(self) -> None:
        """The other thread: writes what is there, once a second."""
        try:
            while not self.closing.wait(FLUSH_S) and not self.over:
                self.drain(REST_S)
            if not self.over:
                self.drain(0.0)
                self.finish("closed")
        except Exception as error:
            self.over = True
            self.buffer.clear()
            logger.warning("step log: ended, and nothing else: %s", error)
            for file in (self.file, self.raw):
                with suppress(OSError):
                    file.close()

    def drain(self, rest_s: float) -> None:
        """Write what waits, in slices. Raises OSError."""
        if not self.buffer and (self.lost_steps, self.lost_events) == self.told:
            return
        while self.buffer and not self.over:
            lines: list[str] = []
            rows = 0
            while self.buffer and rows < ROWS_AT_ONCE:
                cost, values = self.buffer.popleft()
                rows += cost
                lines.append(LINES[values[0]](*values))
            self.rows_out += rows
            self.write(lines)
            if rest_s:
                time.sleep(rest_s)
        if (self.lost_steps, self.lost_events) != self.told:
            told, self.told = self.told, (self.lost_steps, self.lost_events)
            lost = {"steps": self.told[0] - told[0], "events": self.told[1] - told[1]}
            self.write([line({"kind": "dropped", "t": round(time.time(), 6), **lost})])
        self.file.flush()

    def write(self, lines: list[str]) -> None:
        self.file.write("".join(lines).encode())
        if self.max_bytes and self.raw.tell() >= self.max_bytes and not self.over:
            self.over = True
            self.finish("VLLM_STEP_LOG_MAX_MB")
            logger.warning("step log: %s has reached VLLM_STEP_LOG_MAX_MB, and ends", self.raw.name)

    def finish(self, reason: str) -> None:
        self.over = True
        self.file.write(line({"kind": "end", "t": round(time.time(), 6), "reason": reason}).encode())
        self.file.close()
        self.raw.close()
        self.buffer.clear()

    def close(self) -> None:
        """Write what is left, within `CLOSE_S`."""
        self.closing.set()
        self.thread.join(CLOSE_S)


def is_gz(path: str) -> bool:
    return path.endswith(".gz")


def line(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), default=str) + "\n"


def add_line(kind: str, t: float, n: int, *values: Any) -> str:
    names = ("id", "prompt", "max", "priority", "arrival", "stops")
    return line({"kind": kind, "t": round(t, 6), "n": n, **dict(zip(names, map(plain, values), strict=True))})


def left_line(kind: str, t: float, n: int, computed: Any, out: Any, status: Any) -> str:
    name = first(getattr(status, "name", None), status)
    return line({"kind": kind, "t": round(t, 6), "n": n, "computed": computed, "out": out, "status": plain(name)})


def step_line(
    kind: str, k: int, times: tuple[float, float, float], counts: tuple[Any, ...], ids: list[str], numbers: list[Any],
    tokens: list[int], known: list[tuple[list[str], list[int]]],
) -> str:  # fmt: skip
    """`known`: what each request had computed before, in lists by id."""
    before: dict[str, int] = {}
    for names, computed in known:
        before.update(zip(names, computed, strict=False))
    t0, t, t1 = (round(seconds, 6) for seconds in times)
    run, wait, free = counts
    rows = list(zip(numbers, tokens, map(before.get, ids, repeat(-1)), strict=True))
    head = {"kind": kind, "k": k, "t0": t0, "t": t, "t1": t1, "run": run, "wait": wait, "free": free, "rows": rows}
    return line(head)


LINES: dict[str, Any] = {
    "add": add_line, "step": step_line, "preempt": left_line, "finish": left_line, "abort": left_line
}  # fmt: skip


class Recorder:
    """What the engine's thread does for the log. No method raises; the first one that fails ends the log."""

    def __init__(self, scheduler: Any) -> None:
        self.log: Log | None = None
        self.offset = time.time() - time.monotonic()
        self.numbers: dict[str, int] = {}
        """Number of each request that has not left."""
        self.added = self.steps = 0
        self.in_flight: deque[tuple[Any, ...]] = deque(maxlen=IN_FLIGHT_MOST)
        self.last_end = 0.0
        self.free_blocks: Any = look(scheduler, "kv_cache_manager.block_pool.get_num_free_blocks")
        self.counts: Any = look(scheduler, "get_request_counts")
        try:
            path = os.environ.get("VLLM_STEP_LOG") or DEFAULT_PATH
            rank = first(rank_of(look(scheduler, "vllm_config")), 0)
            path = path.replace("{pid}", str(os.getpid())).replace("{rank}", str(rank))
            max_bytes = float(os.environ.get("VLLM_STEP_LOG_MAX_MB") or MAX_MB) * 1e6
            self.log = Log(path, header_of(scheduler), max_bytes)
            # A child of multiprocessing leaves without atexit, any other process without the finalizer.
            atexit.register(self.close)
            multiprocessing_util.Finalize(None, self.close, exitpriority=0)
        except Exception as error:
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """No more lines; vLLM goes on as if there had been none."""
        log, self.log = self.log, None
        if log is not None:
            log.closing.set()
        logger.warning("step log: ended, and nothing else: %s: %s", type(error).__name__, error)

    def close(self) -> None:
        log, self.log = self.log, None
        if log is not None:
            log.close()
        # What is registered for the exit must not keep an engine alive that has been shut down.
        self.counts = self.free_blocks = None
        self.in_flight.clear()

    def on_schedule(self, output: Any, since: float) -> None:
        """A step has been decided. Its lists are copied, as workers in this process share them."""
        if self.log is None:
            return
        try:
            scheduled = output.num_scheduled_tokens
            if not scheduled:
                return
            cached = output.scheduled_cached_reqs
            known = [(cached.req_ids, cached.num_computed_tokens.copy())]
            new = output.scheduled_new_reqs
            if new:
                known.append(([r.req_id for r in new], [r.num_computed_tokens for r in new]))
            run, wait = (None, None) if self.counts is None else self.counts()
            counts = (run, wait, None if self.free_blocks is None else self.free_blocks())
            numbers = list(map(self.numbers.get, scheduled, repeat(-1)))
            rows = (list(scheduled), numbers, list(scheduled.values()), known)
            self.in_flight.append((output, since, counts, rows))
        except Exception as error:
            self.give_up(error)

    def on_outputs(self, output: Any, until: float) -> None:
        """The outputs of a step are there: of that very step, however many are in flight."""
        if self.log is None:
            return
        try:
            flying = self.in_flight
            if not flying or (flying[0][0] is not output and not any(step[0] is output for step in flying)):
                return
            step, since, counts, rows = flying.popleft()
            while step is not output:
                # vLLM never asked for the outputs of this one.
                step, since, counts, rows = flying.popleft()
            began = max(since, self.last_end)
            times = (since + self.offset, began + self.offset, until + self.offset)
            self.log.put("step", len(rows[0]), self.steps, times, counts, *rows)
            self.steps += 1
            self.last_end = until
        except Exception as error:
            self.give_up(error)

    def on_add(self, request: Any) -> None:
        if self.log is None:
            return
        try:
            name = request.request_id
            # More input for a session that is open already is no new request.
            if name in self.numbers:
                return
            number = self.numbers[name] = self.added
            self.added += 1
            stops = look(request, "sampling_params.stop")
            self.log.put(
                "add", 0, time.monotonic() + self.offset, number, name, look(request, "num_prompt_tokens"),
                look(request, "max_tokens"), look(request, "priority"), look(request, "arrival_time"),
                len(stops) if isinstance(stops, list | tuple) else int(bool(stops)),
            )  # fmt: skip
        except Exception as error:
            self.give_up(error)

    def on_leave(self, request: Any, kind: str | None = None) -> None:
        """It has finished, was aborted, or (`kind`) is preempted."""
        if self.log is None:
            return
        try:
            status = look(request, "status")
            numbers = self.numbers
            number = numbers.get(request.request_id) if kind else numbers.pop(request.request_id, None)
            if number is not None:
                kind = kind or ("abort" if "ABORT" in str(getattr(status, "name", status)) else "finish")
                now, computed = time.monotonic() + self.offset, look(request, "num_computed_tokens")
                self.log.put(kind, 0, now, number, computed, look(request, "num_output_tokens"), status)
        except Exception as error:
            self.give_up(error)


class StepLogScheduler(Scheduler):
    """vLLM's scheduler, and with async scheduling its AsyncScheduler, which also writes down what it does."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        config = kwargs.get("vllm_config", args[0] if args else None)
        chosen = StepLogAsyncScheduler if cls is StepLogScheduler and is_async(config) else cls
        return super().__new__(chosen)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.step_log = Recorder(self)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        since = time.monotonic()
        output = super().schedule(*args, **kwargs)
        self.step_log.on_schedule(output, since)
        return output

    def update_from_output(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        self.step_log.on_outputs(scheduler_output, time.monotonic())
        return super().update_from_output(scheduler_output, *args, **kwargs)

    def add_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        result = super().add_request(request, *args, **kwargs)
        self.step_log.on_add(request)
        return result

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        # Finishes and aborts both end here, with the request's progress still in it.
        self.step_log.on_leave(request)
        return super()._free_request(request, *args, **kwargs)

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        # vLLM 0.10 and 0.11 have no such method; there a preemption shows as computed tokens that fall back.
        self.step_log.on_leave(request, "preempt")
        return super()._preempt_request(request, *args, **kwargs)

    def shutdown(self, *args: Any, **kwargs: Any) -> Any:
        self.step_log.close()
        return super().shutdown(*args, **kwargs)


if AsyncScheduler is None:
    StepLogAsyncScheduler: Any = StepLogScheduler
else:

    class StepLogAsyncScheduler(StepLogScheduler, AsyncScheduler):  # type: ignore[no-redef]
        """What `StepLogScheduler` is when async scheduling is on; it may also be named itself."""
