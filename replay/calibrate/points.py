"""Measured points of many machines against what shipped profiles predict: a file of serving results and KV capacities.

Each point is replayed with the profile of its GPU, model, number of GPUs, number format and engine, with the settings
that it tells. Nothing is fitted to a point. What cannot be replayed is listed with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from replay.calibrate.workloads import RECORDED, Unmodelled, Workload, workload_of
from replay.engine import simulate
from replay.errors import BadInput, UnknownName, UserError
from replay.policies.knobs import Client, Policy
from replay.profiles.hardware import dtype_called, engine_called, gpu_called
from replay.profiles.kv_capacity import num_blocks
from replay.profiles.loader import with_settings
from replay.profiles.models import model_called
from replay.profiles.named import Key, measured, named_profile
from replay.profiles.profile import Memory, Profile
from replay.profiles.versions import default_mode, scheduler_rules, version_in

Floats = npt.NDArray[np.float64]

ROUNDS_MAX = 2_000
"""Rounds in which the arrivals of a closed loop must have come to rest; each settles one more request at least."""
AT_REST_S = 1e-9
SEND_INTERVAL_S = 0.001
"""Between two requests of a closed loop: a load generator and an API server take them one by one."""
PLAIN = Policy(name="plain", client=Client(max_attempts=1))
"""Clients of a benchmark wait for their answer, however long it takes."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A serving result, as the file has it."""

    id: str
    gpu: str
    model: str
    tp: int = 1
    dtype: str = "bfloat16"
    engine: str = "vllm"
    engine_args: dict[str, Any] = {}
    kv: dict[str, Any] | None = None
    workload: dict[str, Any] = {}
    measured: dict[str, Any] = {}
    overload: bool | None = None
    suspect: bool | None = None


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a KV pool that an engine reported."""

    gpu: str
    model: str
    tp: int = 1
    dtype: str = "bfloat16"
    tokens: int
    util: float = 0.9
    block_size: int = 16
    weights_gib: float | None = None
    id: str | None = None


class PointsFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of points."""

    points: list[Point] = []
    kv_capacity: list[Capacity] = []


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one point."""

    id: str
    figure: str
    measured: float
    predicted: float | None = None
    error: float | None = None
    """Of what was measured: 0.05 is 5% too much."""
    reason: str | None = None
    """Why there is no prediction."""
    profile: str | None = None
    group: str = ""
    """Engine, GPU and kind of load: what medians are taken over."""
    overload: bool = False


def compare_points(path: str, *, seed: int = 0, on_progress: Callable[[float], None] | None = None) -> list[Figure]:
    """Every figure of a file of points, measured and predicted. Raises BadInput for a file that holds none."""
    content = read_points(path)
    figures = [figure for name, entry in named_capacities(content.kv_capacity) for figure in capacity(name, entry)]
    for done, point in enumerate(content.points):
        figures += serving(point, Path(path).parent, seed)
        if on_progress is not None:
            on_progress((done + 1) / len(content.points))
    return figures


def read_points(path: str) -> PointsFile:
    """The points of a file. Raises BadInput."""
    try:
        content = msgspec.json.decode(Path(path).read_bytes(), type=PointsFile)
    except OSError as error:
        raise BadInput.at(path, f"cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise BadInput.at(path, f"is not a file of measured points: {error}") from error
    if not content.points and not content.kv_capacity:
        raise BadInput.at(path, "holds neither `points` nor `kv_capacity`")
    return content


def serving(point: Point, place: Path, seed: int) -> list[Figure]:
    """The figures of a serving result."""
    wanted = list(figures_in(point.measured))
    group = f"{point.engine.split()[0]} {gpu_or(point.gpu)}, {str(point.workload.get('kind', '')).split(',')[0]}"
    overload = bool(point.overload)

    def listed(values: Mapping[str, float], profile: str | None = None, reason: str | None = None) -> list[Figure]:
        rows = []
        for name, value in wanted:
            predicted = values.get(name)
            why = reason if predicted is not None or reason else "the replay has no such figure"
            rows.append(
                Figure(
                    id=point.id,
                    figure=name,
                    measured=value,
                    predicted=predicted,
                    error=None if predicted is None or value == 0 else predicted / value - 1.0,
                    reason=why,
                    profile=profile,
                    group=group,
                    overload=overload,
                )
            )
        return rows

    try:
        if overload:
            raise Unmodelled("an overload: when its clients gave up is not told")
        if point.suspect:
            raise Unmodelled("the file itself calls it suspect")
        profile = profile_for(point)
        recorded = f"run_{point.gpu}_{point.model.rsplit('/', 1)[-1]}_requests.jsonl"
        workload = workload_of(point.workload, place / RECORDED / recorded, seed)
        calls = replayed(workload, profile)
    except (Unmodelled, UserError, ValueError) as reason:
        return listed({}, reason=str(reason))
    return listed(predictions(calls, wanted), profile.name)


def gpu_or(name: str) -> str:
    """The GPU's name here, else as it is given."""
    try:
        return gpu_called(name).name
    except UserError:
        return name


def profile_for(point: Point) -> Profile:
    """The measured profile of a point, with the settings and the rules of its version. Raises Unmodelled."""
    try:
        key = Key(
            gpu_called(point.gpu).name,
            model_called(point.model).name,
            point.tp,
            dtype_called(point.dtype),
            engine_called(point.engine.split()[0]),
        )
    except UnknownName as error:
        raise Unmodelled(f"no profile was measured: {str(error).split(';')[0]}") from error
    if key.name not in measured():
        raise Unmodelled(f"no profile {key.name} was measured")
    settings = {**rules(point), **told_settings(point)}
    profile = with_settings(named_profile(key.name), settings, point.id)
    if "recorded" in str(point.workload.get("kind", "")):
        # Recorded times are the engine's own: its API server is not in them.
        profile = msgspec.structs.replace(profile, api_server_s=0.0)
    return profile


def rules(point: Point) -> dict[str, Any]:
    """How the engine's version schedules: what is said of it, else what its number tells."""
    words = f"{point.engine} {point.workload.get('methodology', '')}".lower()
    version = version_in(point.engine)
    found: dict[str, Any] = {}
    if re.search(r"\basync", words):
        found["mode"] = "async"
    elif re.search(r"\bsync", words):
        found["mode"] = "sync"
    if version is None or engine_called(point.engine.split()[0]) != "vllm":
        return found
    found.setdefault("mode", default_mode(version))
    return found | scheduler_rules(version)


def told_settings(point: Point) -> dict[str, Any]:
    """Settings of the engine that a point tells, in `engine_args`, `kv` and the words of its methodology."""
    told = {**point.engine_args, **(point.kv or {})}
    names = {"enable_prefix_caching": "prefix_caching", "num_gpu_blocks": "num_blocks"}
    known = (
        "max_num_batched_tokens", "max_num_seqs", "max_model_len", "block_size", "num_blocks", "prefix_caching",
        "gpu_memory_utilization",
    )  # fmt: skip
    renamed = {names.get(key, key): value for key, value in told.items() if value is not None}
    found = {key: value for key, value in renamed.items() if key in known}
    words = str(point.workload.get("methodology", ""))
    for name in ("max-num-batched-tokens", "max-num-seqs"):
        said = re.search(rf"{name}[ =](\w+)", words)
        if said:
            value = point.workload.get("concurrency") if said[1] == "concurrency" else int(said[1])
            found.setdefault(name.replace("-", "_"), value)
    if "no prefix caching" in words:
        found.setdefault("prefix_caching", False)
    return found


def replayed(workload: Workload, profile: Profile) -> pa.Table:
    """What became of the calls of a workload. Raises Unmodelled when one of them cannot be served."""
    arrivals = workload.arrival_s
    if arrivals is None:
        arrivals = arrivals_of_closed_loop(workload, profile)
    calls = outcome(workload, profile, arrivals)
    unserved = calls.num_rows - int(np.count_nonzero(np.asarray(calls["outcome"]) == "delivered"))
    if unserved:
        raise Unmodelled(f"{unserved} of its {calls.num_rows} requests do not fit into {profile.name}")
    return calls


def outcome(workload: Workload, profile: Profile, arrivals: Floats) -> pa.Table:
    """CALL_OUTCOMES for given arrivals."""
    return simulate(workload.calls(arrivals), PLAIN, profile, timeline_interval_s=0).calls


def arrivals_of_closed_loop(workload: Workload, profile: Profile) -> Floats:
    """When the requests of a closed loop are sent: request k when the (k - clients)-th answer has come.

    An answer depends only on what was sent before it. So arrivals that are taken from the answers of a replay, and
    replayed again, come to rest: each round settles one more request at least, a whole wave at most.
    Raises Unmodelled when they do not.
    """
    n, first = len(workload.prompt_tokens), workload.clients
    arrivals = spaced(np.zeros(n))
    for _ in range(ROUNDS_MAX):
        ends = np.sort(np.asarray(outcome(workload, profile, arrivals)["end_s"], dtype=np.float64))
        renewed = spaced(np.concatenate([np.zeros(first), ends[: n - first]]))
        if np.abs(renewed - arrivals).max() <= AT_REST_S:
            return renewed
        arrivals = renewed
    raise Unmodelled(f"its closed loop does not come to rest in {ROUNDS_MAX} rounds")


def spaced(wanted_s: Floats) -> Floats:
    """When requests that are wanted in this order are sent, one after the other."""
    lag = np.arange(len(wanted_s)) * SEND_INTERVAL_S
    taken: Floats = np.maximum.accumulate(wanted_s - lag) + lag
    return taken


def figures_in(measured: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The figures of a point by name: a mean has its plain name, a percentile ends in its own (`ttft_ms_p99`)."""
    for name, value in measured.items():
        if isinstance(value, Mapping):
            for statistic, part in value.items():
                if isinstance(part, int | float):
                    yield (name if statistic == "mean" else f"{name}_{statistic}"), float(part)
        elif name in ("success", "fail"):
            continue
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield re.sub(r"_mean(_derived)?$", "", name), float(value)


def predictions(calls: pa.Table, wanted: list[tuple[str, float]]) -> dict[str, float]:
    """The wanted figures, computed as benchmarks do."""
    columns = {name: np.asarray(calls[name], dtype=np.float64) for name in ("arrival_s", "first_token_s", "end_s")}
    output = np.asarray(calls["output_tokens"], dtype=np.float64)
    ttft = columns["first_token_s"] - columns["arrival_s"]
    e2e = columns["end_s"] - columns["arrival_s"]
    several = output > 1
    samples = {
        "ttft_ms": 1e3 * ttft,
        "e2e_ms": 1e3 * e2e,
        "tpot_ms": 1e3 * (e2e - ttft)[several] / (output - 1)[several],
    }
    makespan = float(columns["end_s"].max() - columns["arrival_s"].min())
    known = {
        "duration_s": makespan,
        "requests_per_s": len(output) / makespan,
        "output_tokens_per_s": float(output.sum()) / makespan,
    }
    for name, _ in wanted:
        base, _, statistic = name.rpartition("_")
        if name in samples and len(samples[name]):
            known[name] = float(samples[name].mean())
        elif base in samples and len(samples[base]):
            share = {"median": 50.0, "min": 0.0, "max": 100.0}.get(statistic)
            if share is None and re.fullmatch(r"p\d+(\.\d+)?", statistic):
                share = float(statistic[1:])
            if share is not None:
                known[name] = float(np.percentile(samples[base], share))
    return known


def named_capacities(entries: list[Capacity]) -> Iterator[tuple[str, Capacity]]:
    """Each entry with a name of its own."""
    seen: dict[str, int] = {}
    for entry in entries:
        name = entry.id or f"kv_capacity/{entry.gpu}/{entry.model}/tp{entry.tp}"
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name}/{seen[name]}"), entry


def capacity(name: str, entry: Capacity) -> list[Figure]:
    """A KV pool by the formula, beside the one that was reported: in tokens, and in GiB of each GPU."""
    bare = re.sub(r"^\d+x |\s*x\d+$|\s*\(.*\)|\s*[\d.]+ ?GiB$", "", entry.gpu)
    group = f"KV pool, {gpu_or(bare)}" + ("" if entry.util >= 0.8 else f" at utilisation {entry.util:g}")
    measured_gib = None
    try:
        memory = memory_of(bare, entry)
        blocks = num_blocks(memory, entry.util, entry.block_size)
    except (UserError, ValueError) as reason:
        return [Figure(id=name, figure="kv_tokens", measured=entry.tokens, reason=str(reason), group=group)]
    tokens = float(blocks * entry.block_size)
    gib = memory.kv_bytes_per_token / 2**30
    measured_gib = entry.tokens * gib
    return [
        Figure(id=name, figure=figure, measured=was, predicted=now, error=now / was - 1.0, group=group)
        for figure, was, now in (("kv_tokens", float(entry.tokens), tokens), ("kv_gib", measured_gib, tokens * gib))
    ]


def memory_of(gpu: str, entry: Capacity) -> Memory:
    """The memory of a capacity's GPU: what the entry says, else what its driver reports; the weights likewise.

    Raises UnknownName.
    """
    model, dtype = model_called(entry.model), dtype_called(entry.dtype)
    said_bytes, said_gib = re.search(r"\((\d+) B\)", entry.gpu), re.search(r"([\d.]+) ?GiB$", entry.gpu)
    total = int(said_bytes[1]) / 2**30 if said_bytes else float(said_gib[1]) if said_gib else gpu_called(gpu).memory_gib
    weights = entry.weights_gib
    if weights is None:
        rows = (r for r in measured().values() if (r.model, r.tp, r.dtype) == (model.name, entry.tp, dtype))
        row = next(rows, None)
        each = 2 if dtype == "bf16" else 1
        weights = row.weights_gib if row is not None else model.billions * 1e9 * each / 2**30 / entry.tp
    return Memory(gpu_gib=total, weights_gib=weights, kv_bytes_per_token=model.kv_bytes_per_token(entry.tp))
