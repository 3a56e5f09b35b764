"""Profiles by name: fitted to measurements of a model on a GPU, and shipped with the package."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec
from msgspec import Struct

from replay.profiles.hardware import GPUS, Gpu
from replay.profiles.kv_capacity import num_blocks
from replay.profiles.models import MODELS
from replay.profiles.presets import PRESETS
from replay.profiles.profile import EngineSettings, Memory, Overhead, Profile, StepTime
from replay.profiles.versions import default_mode, version_in

MS = 1e-3
SYNC = Overhead(step_s=1.2e-3, sequence_s=0.04e-3)
"""What vLLM's synchronous scheduler adds to a step.

Fitted on 90 runs of Qwen3-32B on H100 with vLLM 0.12 (time per output token: 4.4% mean error).
"""
API_SERVER_S = 7e-3
"""By how much longer than in its engine a first token of vLLM takes: fitted on 15 open-loop runs on H100.

There it grows with the steps, from 3 ms beside steps of 8 ms to 7 ms beside steps of 18 ms (2.4 ms + 0.35 steps).
"""
BROAD = ("sum", "layers", "apart", "guessed", "carried")
"""Weaknesses of a whole kind of measurement; the others are known of single rows."""


class Key(Struct, frozen=True, order=True):
    """What a profile is of: `GPU/MODEL/tpN/DTYPE/ENGINE` is its name."""

    gpu: str
    model: str
    tp: int
    dtype: str
    engine: str

    @property
    def name(self) -> str:
        return f"{self.gpu}/{self.model}/tp{self.tp}/{self.dtype}/{self.engine}"


class Measured(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Step times and memory of one model on one GPU, as fitted: a row of measured.json."""

    gpu: str
    model: str
    tp: int
    dtype: str
    engine: str
    version: str
    knots_ms: tuple[float, ...]
    decode_ms: float
    kv_token_ms: float
    mixed_kv_factor: float
    prefill_attention_ms: float
    prefill_context_ms: float
    kv_bytes_per_token: int
    weights_gib: float
    mape_percent: float
    p90_percent: float
    source: int
    weaknesses: tuple[str, ...]

    @property
    def key(self) -> Key:
        return Key(self.gpu, self.model, self.tp, self.dtype, self.engine)

    def step_time(self, knots_tokens: tuple[int, ...]) -> StepTime:
        """Its time on the GPU."""
        return StepTime(
            knots_tokens=knots_tokens[: len(self.knots_ms)],
            knots_s=tuple(round(ms * MS, 12) for ms in self.knots_ms),
            decode_s=self.decode_ms * MS,
            kv_token_s=self.kv_token_ms * MS,
            mixed_kv_factor=self.mixed_kv_factor,
            prefill_attention_s=self.prefill_attention_ms * MS,
            prefill_context_s=self.prefill_context_ms * MS,
        )

    def memory(self) -> Memory:
        """What fills each of its GPUs."""
        return Memory(
            gpu_gib=GPUS[self.gpu].memory_gib, weights_gib=self.weights_gib, kv_bytes_per_token=self.kv_bytes_per_token
        )


class Shipped(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of measured.json; rows of equal key are ordered by version, the newest first."""

    knots_tokens: tuple[int, ...]
    sources: tuple[str, ...]
    weaknesses: Mapping[str, str]
    rows: tuple[Measured, ...]

    def profile(self, name: str, row: Measured) -> Profile:
        """The engine that a row describes, as its server starts it by default."""
        said = [self.weaknesses[key].format(heads=MODELS[row.model].heads) for key in row.weaknesses]
        return served(
            Profile(
                name=name,
                engine=EngineSettings(),
                step_time=row.step_time(self.knots_tokens),
                memory=row.memory(),
                source=self.sources[row.source],
                error=f"mean {row.mape_percent:g}%, p90 {row.p90_percent:g}% on batches held back from the fit",
                weakness="; ".join(said),
            ),
            row.key,
            row.version,
        )


@cache
def shipped() -> Shipped:
    """All that is shipped."""
    return msgspec.json.decode((files("replay.profiles") / "measured.json").read_bytes(), type=Shipped)


@cache
def measured() -> dict[str, Measured]:
    """All rows by name: the newest version of an engine has the plain name, others end in theirs."""
    found: dict[str, Measured] = {}
    for row in shipped().rows:
        plain = row.key.name
        found[plain if plain not in found else f"{plain}-{row.version}"] = row
    return found


def named_profile(name: str) -> Profile:
    """The profile called `name`. Raises KeyError."""
    return shipped().profile(name, measured()[name])


def served(profile: Profile, key: Key, version: str) -> Profile:
    """`profile` with the settings of its engine's server, by default, on that GPU and for that model.

    Raises ValueError when the model does not fit.
    """
    model, memory = MODELS[key.model], profile.memory
    engine = msgspec.structs.replace(profile.engine, mode=mode_of(key.engine, version), **limits(GPUS[key.gpu]))
    if memory is not None:
        blocks = num_blocks(memory, engine.gpu_memory_utilization, engine.block_size)
        context = min(model.context, (blocks - 1) * engine.block_size)
        engine = msgspec.structs.replace(engine, num_blocks=blocks, max_model_len=context)
    if key.engine != "vllm":
        engine = msgspec.structs.replace(engine, **PRESETS[key.engine].settings)
        return msgspec.structs.replace(profile, engine=engine)
    return msgspec.structs.replace(profile, engine=engine, overheads={"sync": SYNC}, api_server_s=API_SERVER_S)


def mode_of(engine: str, version: str) -> Literal["sync", "async"]:
    """How an engine schedules unless told otherwise: SGLang and TensorRT-LLM overlap scheduling with the GPU too."""
    number = version_in(version)
    return "async" if engine != "vllm" or number is None else default_mode(number)


def limits(gpu: Gpu) -> dict[str, int]:
    """Tokens and sequences of a step by default of vLLM's API server, which goes by the size of the GPU."""
    if gpu.memory_gib < 70 or gpu.name.startswith("a100"):
        return {"max_num_batched_tokens": 2_048, "max_num_seqs": 256}
    return {"max_num_batched_tokens": 16_384 if gpu.memory_gib >= 160 else 8_192, "max_num_seqs": 1_024}
