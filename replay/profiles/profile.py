"""An engine profile: how its scheduler is set, and how long a step takes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

Seconds = Annotated[float, Meta(ge=0.0)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Positive = Annotated[int, Meta(ge=1)]
Knots = Annotated[tuple[int, ...], Meta(min_length=1)]


class EngineSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one replica's scheduler, with the names and meanings of vLLM's own."""

    mode: Literal["sync", "async"] = "sync"
    """async: two steps in flight, the next being scheduled when the one before it starts."""
    policy: Literal["fcfs", "priority"] = "fcfs"
    max_model_len: Positive = 131_072
    max_num_seqs: Annotated[int, Meta(ge=1, le=16_384)] = 256
    max_num_batched_tokens: Positive = 8_192
    block_size: Positive = 16
    num_blocks: Annotated[int, Meta(ge=2)] = 27_000
    """Blocks of the pool; block 0 is reserved, so that `num_blocks - 1` hold tokens."""
    prefix_caching: bool = True
    long_prefill_token_threshold: Annotated[int, Meta(ge=0)] = 0
    """Most prefill tokens of one request in a step; 0 for no such limit."""
    long_prefill_token_threshold_adaptive: bool = False
    """Whether the threshold is at least an equal share of the step's tokens for each request, running or waiting."""
    long_prefill_alone: Literal["whole", "chunked"] = "whole"
    """Whether the threshold holds for a request that is the only one (vLLM <= 0.30)."""
    watermark: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.0
    admission_needs: Literal["sequence", "chunk"] = "sequence"
    """Free blocks that admission asks for: those of the whole sequence, or of this step's chunk (vLLM <= 0.18)."""
    freed_blocks_go: Literal["unhashed_first", "to_the_back"] = "unhashed_first"
    """Where freed blocks without a hash stand in the free queue: in front, or behind the others (vLLM <= 0.22)."""
    aborts_read: Literal["step_end", "loop_top"] = "step_end"
    """When aborts take effect: before a step's outputs are read, or after (vLLM < 0.13)."""
    batching: Literal["mixed", "prefill_first"] = "mixed"
    """Whether a step mixes prefill chunks and decoding requests, or computes prefill alone while there is any."""
    reserve_share: Share = 0.0
    """Share of its output limit for which a request must find room beside the running ones when it is admitted."""
    preempts: Literal["last_admitted", "fewest_outputs"] = "last_admitted"
    """Whom a first-come engine preempts when blocks are short; of equals the one with the longest prompt."""
    self_preempted: Literal["pass_ends", "pass_goes_on"] = "pass_ends"
    """By priority, a request preempts itself when no other runs that is less urgent: those behind it in the batch wait
    for the next step, or get their turn in this one (vLLM >= 0.33)."""
    eviction_skips: bool = False
    """By priority, whether preempting a request that has been passed over in this step, as it waits for its last token,
    makes the step pass over another one (vLLM <= 0.27)."""
    disconnect: Literal["push", "next_token", "timer"] = "push"
    """How the engine notices by itself that a client has left, where the policy does not say.

    next_token: at the end of the running step, and a waiting request when it could be admitted. timer: at a look every
    so many seconds from the request's arrival.
    """
    disconnect_timer_s: Seconds = 1.0
    disconnect_timer_streaming_s: Seconds = 1.0
    """The same once a streamed request has its first token."""
    prefill_runs_on: bool = False
    """Whether the prefill of an aborted request is computed to its end."""
    gpu_memory_utilization: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.9
    """Share of a GPU's memory that the engine may fill. It decides `num_blocks` where a profile knows its GPU's memory
    and nobody says `num_blocks`; otherwise it changes nothing."""


class StepTime(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Duration of a step, in seconds:

    `overhead_s + sequence_s * rows + f(T) + decode_s * D + kv_token_s * KV * (mixed_kv_factor if P > 0 else 1)
    + prefill_attention_s * W + prefill_context_s * C`

    T = P + D tokens (P of prefill chunks, D decoding requests), KV = context of the decoding requests after the
    step, W = sum over prefill chunks of `chunk * (context_before + chunk / 2)`, C = sum over prefill chunks of
    `context_before`. f is piecewise linear through (`knots_tokens`, `knots_s`): constant
    below the first knot, and the last slope extrapolates beyond the last one.
    """

    knots_tokens: Knots
    knots_s: Annotated[tuple[float, ...], Meta(min_length=1)]
    decode_s: float = 0.0
    kv_token_s: Seconds = 0.0
    mixed_kv_factor: Seconds = 1.0
    prefill_attention_s: Seconds = 0.0
    prefill_context_s: Seconds = 0.0
    overhead_s: Seconds = 0.0
    sequence_s: Seconds = 0.0

    def __post_init__(self) -> None:
        if len(self.knots_tokens) != len(self.knots_s):
            raise ValueError("knots_tokens and knots_s must be equally long")
        if any(b <= a for a, b in pairwise(self.knots_tokens)):
            raise ValueError("knots_tokens must increase")


class Overhead(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the scheduler adds to a step's time on the GPU: `step_s + sequence_s * rows` seconds."""

    step_s: Seconds = 0.0
    sequence_s: Seconds = 0.0


class Memory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What fills the memory of one GPU of a replica."""

    gpu_gib: Annotated[float, Meta(gt=0.0)]
    """Total that the driver reports, less than the nominal size."""
    weights_gib: Annotated[float, Meta(ge=0.0)]
    other_gib: Annotated[float, Meta(ge=0.0)] = 1.2
    """Activations, graphs and the rest."""
    kv_bytes_per_token: Positive


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named engine on a named machine."""

    name: str
    engine: EngineSettings
    step_time: StepTime
    overheads: Mapping[str, Overhead] = {}
    """By scheduling mode, what it adds to `step_time`; nothing for a mode that is not named."""
    api_server_s: Seconds = 0.0
    """What a request spends in the API server, half on its way in and half on its way out."""
    memory: Memory | None = None
    source: str = ""
    """Where the step times come from."""
    error: str = ""
    """How far the fitted step times are from those measured."""
    weakness: str = ""
    """What is known not to hold of them."""

    @property
    def timed(self) -> StepTime:
        """The step times with what the engine's mode of scheduling adds to them."""
        added = self.overheads.get(self.engine.mode, Overhead())
        return replace(
            self.step_time,
            overhead_s=self.step_time.overhead_s + added.step_s,
            sequence_s=self.step_time.sequence_s + added.sequence_s,
        )
