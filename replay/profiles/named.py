"""Profiles by name: fitted to measurements of a model on a GPU, and shipped with the package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec
from msgspec import Struct

from replay.profiles.kv_capacity import MEMORY_GIB, num_blocks
from replay.profiles.profile import EngineSettings, Profile, StepTime

MS = 1e-3
SYNC_OVERHEAD_S, SYNC_SEQUENCE_S = 1.2e-3, 0.04e-3
"""What vLLM's synchronous scheduler adds to a step, and for each sequence in it.

Fitted on 90 runs of Qwen3-32B on H100 with vLLM 0.12 (time per output token: 4.4% mean error).
"""
BLOCK_SIZE = 16
MAX_MODEL_LEN = 131_072
MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS = 8_192, 1_024
"""Defaults of vLLM's API server on GPUs of 70 GiB and more."""


class Measured(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Step times and memory of one model on one GPU, as fitted: a row of measured.json."""

    name: str
    gpu: str
    model: str
    tp: int
    dtype: str
    engine: str
    knots_tokens: tuple[int, ...]
    knots_ms: tuple[float, ...]
    decode_ms: float
    kv_token_ms: float
    mixed_kv_factor: float
    prefill_attention_ms: float
    prefill_context_ms: float
    kv_bytes_per_token: int
    weights_gib: float
    fit_mape_percent: float
    fit_p90_percent: float
    source: str
    weakness: str

    def profile(self) -> Profile:
        """The engine that it describes: synchronous scheduling, KV pool by the formula of `kv_capacity`."""
        engine = EngineSettings(
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
            block_size=BLOCK_SIZE,
            num_blocks=num_blocks(MEMORY_GIB[self.gpu], self.weights_gib, self.kv_bytes_per_token, BLOCK_SIZE),
        )
        step_time = StepTime(
            knots_tokens=self.knots_tokens,
            knots_s=tuple(round(ms * MS, 12) for ms in self.knots_ms),
            decode_s=self.decode_ms * MS,
            kv_token_s=self.kv_token_ms * MS,
            mixed_kv_factor=self.mixed_kv_factor,
            prefill_attention_s=self.prefill_attention_ms * MS,
            prefill_context_s=self.prefill_context_ms * MS,
            overhead_s=SYNC_OVERHEAD_S,
            sequence_s=SYNC_SEQUENCE_S,
        )
        error = f"mean {self.fit_mape_percent:g}%, p90 {self.fit_p90_percent:g}% on batches held back from the fit"
        return Profile(
            name=self.name,
            engine=engine,
            step_time=step_time,
            source=self.source,
            error=error,
            weakness=self.weakness,
        )


@cache
def measured() -> dict[str, Measured]:
    """All rows by name."""
    content = (files("replay.profiles") / "measured.json").read_bytes()
    return {row.name: row for row in msgspec.json.decode(content, type=list[Measured])}
