"""Profiles that nobody measured: the nearest row, scaled by the sizes of model and GPU."""

from __future__ import annotations

import difflib
import math
import re

import msgspec

from replay.errors import BadConfig, UnknownName
from replay.profiles.hardware import GPUS, Gpu, dtype_called, engine_called, gpu_called
from replay.profiles.models import MODELS, Model, model_called
from replay.profiles.named import Key, Measured, measured, named_profile, served
from replay.profiles.profile import EngineSettings, Memory, Profile, StepTime

RATIO_MAX = 3.0
"""A model or a GPU that is so many times larger or faster than the nearest one measured is not guessed at."""
ARCHITECTURE_DIFFERS, GPU_DIFFERS, ENGINE_DIFFERS = 1.0, 0.5, 0.3
"""What another architecture, GPU or engine counts against a row, in doublings of the model's size."""
MODEL_ERROR, GPU_ERROR = "7% at the median, 20% at p90", "20% at the median, half and more at p90"
"""Step times of rows that were measured, guessed from those of other models on the GPU, or of other GPUs."""
MARK = "guess"
"""Last part of the name of a guess."""


def profile_of(name: str) -> Profile:
    """The profile of `GPU/MODEL/tpN/DTYPE/ENGINE`, each part by any of its names; guessed where it was not measured.

    Raises BadConfig for a name that is none, and where nothing near was measured.
    """
    key = parsed(name)
    return named_profile(key.name) if key.name in measured() else guess(key)


def parsed(name: str) -> Key:
    """The parts of a profile's name. Raises BadConfig that names the part which is unknown."""
    parts = name.removesuffix(f"/{MARK}").split("/")
    if len(parts) == 6:
        # The model by its name on Hugging Face, which has a slash.
        parts[1:3] = [f"{parts[1]}/{parts[2]}"]
    near = difflib.get_close_matches(name, measured(), n=3, cutoff=0.9)
    hint = f"did you mean {' or '.join(near)}?" if near else "replay profiles lists them; a file is named with .json"
    tp = re.fullmatch(r"tp([1-9]\d{0,2})", parts[2]) if len(parts) == 5 else None
    if tp is None:
        raise BadConfig(f"unknown profile {name!r}: a name is GPU/MODEL/tpN/DTYPE/ENGINE; {hint}")
    gpu, model, _, dtype, engine = parts
    try:
        return Key(
            gpu_called(gpu).name,
            model_called(model).name,
            int(tp[1]),
            dtype_called(dtype),
            engine_called(engine),
        )
    except UnknownName as error:
        raise BadConfig(f"unknown profile {name!r}; {hint if near else error}") from error


def distance(key: Key, row: Measured) -> float:
    """How far a row is from what is wanted, in doublings; infinite where it is no help."""
    if (row.tp, row.dtype) != (key.tp, key.dtype):
        return math.inf
    size = ratio(MODELS[key.model].billions, MODELS[row.model].billions)
    wanted, has = GPUS[key.gpu], GPUS[row.gpu]
    speed = max(ratio(wanted.bandwidth_gb_s, has.bandwidth_gb_s), ratio(wanted.bf16_tflops, has.bf16_tflops))
    if max(size, speed) > RATIO_MAX:
        return math.inf
    other_gpu = GPU_DIFFERS if key.gpu != row.gpu else 0.0
    if wanted.architecture != has.architecture:
        other_gpu = ARCHITECTURE_DIFFERS
    other_engine = ENGINE_DIFFERS if key.engine != row.engine else 0.0
    return math.log2(size) + math.log2(speed) + other_gpu + other_engine


def ratio(a: float, b: float) -> float:
    """How many times the larger is the smaller."""
    return max(a / b, b / a)


def guess(key: Key) -> Profile:
    """A profile from the nearest row. Raises BadConfig where none is near, or the model does not fit."""
    if key.name in measured():
        others = {name: row for name, row in measured().items() if row.key != key}
    else:
        others = measured()
    name = min(others, key=lambda name: (distance(key, others[name]), name))
    row = others[name]
    if math.isinf(distance(key, row)):
        raise BadConfig(
            f"no profile {key.name!r}, and nothing near enough to guess from: no model within {RATIO_MAX:g} times its "
            f"size was measured with tp{key.tp} in {key.dtype} on a GPU within {RATIO_MAX:g} times its speed. "
            "replay profiles lists what was; replay calibrate makes a profile of your own step log"
        )
    near = named_profile(name)
    model, gpu, same_gpu = MODELS[key.model], GPUS[key.gpu], key.gpu == row.gpu
    memory = Memory(
        gpu_gib=gpu.memory_gib,
        weights_gib=round(row.weights_gib * model.billions / MODELS[row.model].billions, 2),
        kv_bytes_per_token=model.kv_bytes_per_token(key.tp),
    )
    try:
        return served(
            Profile(
                name=f"{key.name}/{MARK}",
                engine=EngineSettings(),
                step_time=scaled(near.step_time, row, model, gpu),
                memory=memory,
                source=f"a guess: {name} scaled to {', '.join(differences(key, row))}; {near.source}",
                error=f"not known; rows that were measured, guessed alike: {MODEL_ERROR if same_gpu else GPU_ERROR}",
                weakness=f"nobody measured it; all that {name} has: {near.weakness}",
            ),
            key,
            row.version,
        )
    except ValueError as error:
        raise BadConfig(f"{key.name}: {error}; more GPUs (tpN) share the weights") from error


def differences(key: Key, row: Measured) -> list[str]:
    """In what a guess differs from its row."""
    found = []
    if key.model != row.model:
        size = MODELS[key.model].billions / MODELS[row.model].billions
        kv = MODELS[key.model].kv_bytes_per_token(key.tp) / row.kv_bytes_per_token
        found.append(f"{key.model} ({size:.2f} times the weights, {kv:.2f} times the KV bytes)")
    if key.gpu != row.gpu:
        bandwidth = GPUS[key.gpu].bandwidth_gb_s / GPUS[row.gpu].bandwidth_gb_s
        compute = GPUS[key.gpu].bf16_tflops / GPUS[row.gpu].bf16_tflops
        found.append(f"{key.gpu} ({bandwidth:.2f} times the bandwidth, {compute:.2f} times the compute)")
    if key.engine != row.engine:
        found.append(f"{key.engine} (taken to be as fast)")
    return found


def scaled(step_time: StepTime, row: Measured, model: Model, gpu: Gpu) -> StepTime:
    """Step times of `row` for another model and GPU.

    A step of one token reads the weights: bytes over bandwidth. What more tokens add is arithmetic: parameters over
    compute. Decode attention reads KV bytes, prefill attention computes with layers * heads * head_dim.
    """
    base, has = MODELS[row.model], GPUS[row.gpu]
    slower_memory = has.bandwidth_gb_s / gpu.bandwidth_gb_s
    slower_compute = has.bf16_tflops / gpu.bf16_tflops
    weights = model.billions / base.billions
    kv = model.kv_bytes_per_token(row.tp) / base.kv_bytes_per_token(row.tp) * slower_memory
    width = model.layers * model.heads * model.head_dim / (base.layers * base.heads * base.head_dim)
    first = step_time.knots_s[0]
    return msgspec.structs.replace(
        step_time,
        knots_s=tuple(weights * (first * slower_memory + (s - first) * slower_compute) for s in step_time.knots_s),
        kv_token_s=step_time.kv_token_s * kv,
        prefill_attention_s=step_time.prefill_attention_s * width * slower_compute,
        prefill_context_s=step_time.prefill_context_s * kv,
    )
