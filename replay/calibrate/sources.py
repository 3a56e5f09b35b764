"""What a benchmark measured: the requests that loaded an engine, and the times that their client saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import Dropped
from connectors.benchmarks import Benchmark, Served
from connectors.files import first_object, head
from connectors.registry import BUILT_IN, connector, connector_class, guess
from replay.errors import BadConfig, BadInput
from replay.ingest import from_start
from replay.profiles.loader import find_profile, with_settings
from replay.profiles.profile import EngineSettings, Profile
from replay.profiles.versions import Version, default_mode, version_in, versioned
from trace_schema.fold import fold

Floats = npt.NDArray[np.float64]

STEP_KINDS = ("header", "config", "add", "abort", "step")
"""What the first line of a step log may be."""
DECODED_LEAST = 8
"""Output tokens from which a request's time per output token is used: below, one step more or less weighs too much."""
CACHED_MOST = 0.05
"""Share of prompt tokens found in a prefix cache above which TTFT says nothing of prefill."""
KNOWN_LEAST = 0.9
"""Share of the requests whose times and lengths must be known."""
ASKED = ("mode", "prefix_caching", "max_num_batched_tokens", "max_num_seqs", "num_blocks")
"""Settings that shift a fit more than its form does, and that most benchmark files do not say."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A benchmark's requests in order of arrival; times in seconds from a request's send, NaN where unknown."""

    path: str
    calls: pa.Table
    """Schema CALLS, from the first arrival on."""
    ttft_s: Floats
    e2e_s: Floats
    ok: npt.NDArray[np.bool_]
    """Which requests ended well; the others load the engine alone."""
    served: Served
    notes: tuple[str, ...]

    @property
    def arrival_s(self) -> Floats:
        return np.asarray(self.calls["arrival_s"], np.float64)

    @property
    def output_tokens(self) -> Floats:
        return np.asarray(self.calls["output_tokens"], np.float64)

    def tpot_s(self, ttft_s: Floats, e2e_s: Floats) -> Floats:
        """Seconds per output token after the first; NaN for outputs shorter than `DECODED_LEAST`."""
        tokens = np.where(self.output_tokens >= DECODED_LEAST, self.output_tokens - 1.0, np.nan)
        seconds: Floats = (e2e_s - ttft_s) / tokens
        return seconds


def is_step_log(path: str) -> bool:
    """Whether a file is a scheduler's step log rather than a benchmark's result. Raises BadInput."""
    first = first_object(head(path)) or {}
    return first.get("kind") in STEP_KINDS


def benchmark_formats() -> list[str]:
    """Formats of benchmark results."""
    return [name for name in BUILT_IN if hasattr(connector_class(name), "served")]


def read_measured(path: str, format: str | None = None) -> Measured:
    """The requests of a benchmark's result.

    Failed requests are left out; those that were cancelled stay, as load. Raises BadInput when the file is no
    benchmark's result, or does not say what is needed.
    """
    reader = connector(format) if format else guess(head(path), path)[0]
    if not isinstance(reader, Benchmark):
        raise BadInput.at(
            path,
            f"holds no step of a scheduler, and no benchmark's result ({', '.join(benchmark_formats())}), "
            f"but is of format {reader.name}",
        )
    dropped, tables = Dropped(), []
    for batch in reader.read(path):
        tables.append(batch.attempts)
        dropped.merge(batch.dropped)
    attempts = pa.concat_tables(tables)
    notes = [f"{count} rows dropped: {reason} (row {rows[0]})" for reason, (count, rows) in dropped.reasons.items()]
    loading = pc.is_in(attempts["status"], pa.array(["ok", "cancelled", "timeout"]))
    failed = attempts.num_rows - pc.sum(loading).as_py() if attempts.num_rows else 0
    if failed:
        notes.append(f"{failed} requests that failed are left out, as if they had not reached the engine")
    attempts = attempts.filter(loading)
    if attempts.num_rows == 0:
        raise BadInput.at(path, f"no request of it can be used: {'; '.join(notes) or 'there is none'}")
    refuse_cached(attempts, path)
    return measured(attempts, path, reader.served(path), tuple(notes))


def refuse_cached(attempts: pa.Table, path: str) -> None:
    """Raises BadInput when prompts were found in the engine's cache, which the file does not tell token by token."""
    cached = pc.sum(attempts["cached_prompt_tokens"]).as_py() or 0
    share = cached / pc.sum(attempts["prompt_tokens"]).as_py()
    if share > CACHED_MOST:
        raise BadInput.at(
            path,
            f"{share:.0%} of its prompt tokens came out of the prefix cache, so that times to first token say little "
            "of prefill; measure with distinct prompts, or an engine with --no-enable-prefix-caching",
        )


def measured(attempts: pa.Table, path: str, served: Served, notes: tuple[str, ...]) -> Measured:
    """Attempts as calls from the first arrival on, with their times. Raises BadInput when lengths or times lack."""
    calls = fold(from_start(attempts)).calls
    ok = np.asarray(pc.fill_null(pc.equal(calls["observed_status"], "ok"), False))
    if not ok.any():
        raise BadInput.at(path, "no request of it ended well")
    lengths = attempts.filter(pc.equal(attempts["status"], "ok"))["output_tokens"]
    if lengths.null_count > (1.0 - KNOWN_LEAST) * len(lengths):
        raise BadInput.at(path, "does not say how many tokens were written; have the server report usage")
    ttft, e2e = (column(calls, name) for name in ("observed_ttft_s", "observed_e2e_s"))
    for values, name, advice in (
        (ttft, "time to first token", "measure with streamed responses"),
        (e2e, "time of the whole response", "a result with one entry for each request is needed"),
    ):
        if np.mean(~np.isnan(values[ok])) < KNOWN_LEAST:
            raise BadInput.at(path, f"has no {name} for {np.mean(np.isnan(values[ok])):.0%} of its requests; {advice}")
    outputs = np.asarray(calls["output_tokens"])
    cut = np.asarray(calls["output_censored"])
    outputs = np.where(cut, np.maximum(outputs, int(np.median(outputs[~cut]))), outputs)
    arrivals = np.asarray(calls["arrival_s"])
    for name, values in (("output_tokens", outputs), ("arrival_s", arrivals - arrivals[0])):
        place = calls.column_names.index(name)
        calls = calls.set_column(place, calls.schema.field(name), pa.array(values, calls.schema.field(name).type))
    return Measured(path, calls, np.where(ok, ttft, np.nan), np.where(ok, e2e, np.nan), ok, served, notes)


def column(table: pa.Table, name: str) -> Floats:
    """A column as floats, NaN for null."""
    return np.asarray(pc.fill_null(table[name].cast(pa.float64()), np.nan), np.float64)


def batch_sizes(run: Measured) -> Floats:
    """How many requests, itself included, were decoding while each one did, on the average over its decoding."""
    first, end = run.arrival_s + run.ttft_s, run.arrival_s + run.e2e_s
    decoding = end > first
    times = np.concatenate([first[decoding], end[decoding]])
    steps = np.concatenate([np.ones(int(decoding.sum())), -np.ones(int(decoding.sum()))])
    order = np.argsort(times, kind="stable")
    times, running = times[order], np.cumsum(steps[order])
    if not len(times):
        return np.zeros(0)
    request_s = np.concatenate([[0.0], np.cumsum(running[:-1] * np.diff(times))])
    spent = np.interp(end[decoding], times, request_s) - np.interp(first[decoding], times, request_s)
    sizes: Floats = spent / (end[decoding] - first[decoding])
    return sizes


def base_profile(served: Served, base: str | None, gpu: str | None) -> Profile:
    """The profile to start from: `base`, else the nearest to what the file says of its engine and to `gpu`.

    Raises BadConfig when neither says enough.
    """
    if base is not None:
        return find_profile(base)
    gpu = gpu or served.gpu
    if served.model is None or gpu is None:
        lacks = "its GPU (--gpu)" if served.model is not None else "its model"
        raise BadConfig(
            f"which engine was measured? The file does not say {lacks}; name the nearest profile (replay profiles "
            "lists them) with --base in calibrate, --profile in validate"
        )
    engine = "vllm" if served.engine is None else served.engine.split()[0]
    model = served.model.rsplit("/", 1)[-1]
    return find_profile("/".join((gpu, model, f"tp{served.tp or 1}", served.dtype or "bf16", engine)))


def as_measured(base: Profile, served: Served, said: Mapping[str, Any]) -> tuple[Profile, list[str]]:
    """`base` with the settings under which the engine was measured, and notes on those that nobody said.

    `said` by the user, else what the file says, else the profile's own. Raises BadConfig.
    """
    settings = {key: value for key, value in served.settings.items() if key in EngineSettings.__struct_fields__}
    version = version_of(served.engine)
    if version is not None:
        settings["mode"] = default_mode(version)
    settings = {**versioned(settings, version), **said}
    profile = with_settings(base, settings, "--engine")
    unsaid = [name for name in ASKED if name not in settings]
    if not unsaid:
        return profile, []
    assumed = ", ".join(f"{name}={text(getattr(profile.engine, name))}" for name in unsaid)
    return profile, [f"nobody said of the engine, and assumed: {assumed} (--engine KEY=VALUE corrects it)"]


def text(value: Any) -> str:
    """A setting as it is written on a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def version_of(engine: str | None) -> Version | None:
    """Major and minor version in "vllm 0.19.0"; None for other engines or none."""
    name, _, version = (engine or "").partition(" ")
    return version_in(version) if name == "vllm" else None
