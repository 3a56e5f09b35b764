"""From tables and records to the arrays of a run, and from full arrays to larger ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec.structs import replace

from replay.engine import state as st
from replay.engine.budgets import COLUMNS, TOKENS
from replay.engine.identity import block_keys, content_keys, numbered
from replay.engine.intake import call_extras, call_limits, call_records, sessions
from replay.engine.lobby import NEVER
from replay.engine.memory import LINE, ROWS_AT_ONCE, SKEW_LINES, release, zeros
from replay.engine.settings import longest_sequence, power_of_two, settings_record
from replay.errors import BadConfig
from replay.policies.knobs import Policy, RetryBudget
from replay.profiles.profile import EngineSettings, Profile, StepTime

ALIKE = (
    "mode", "policy", "block_size", "prefix_caching", "admission_needs", "freed_blocks_go", "aborts_read", "batching",
    "reserve_share", "preempts", "disconnect", "disconnect_timer_s", "disconnect_timer_streaming_s", "prefill_runs_on",
    "long_prefill_alone", "long_prefill_token_threshold_adaptive", "self_preempted", "eviction_skips",
)  # fmt: skip
"""Settings in which the engines of a fleet must agree."""
OF_EXECUTIONS = ("execution_extras", "charges", "inbox")
"""Arrays that have a place for each execution."""
ATTEMPTS_FORESEEN = 4
"""Attempts of a call that there is room for from the start. What is not used takes no memory."""
SAMPLES_FORESEEN = 1_000_000
"""Looks at each replica that there is room for from the start."""
A_HAIR_LESS = 1.0 - 1e-9
"""Steps that are as short as they can be add up to what they are times their number, but for rounding."""


def step_seconds(step_time: StepTime, max_tokens: int) -> npt.NDArray[np.float64]:
    """f(T) of the step-time model for T = 0 ... `max_tokens`, in seconds; f(0) = 0: no step, no time."""
    knots = np.asarray(step_time.knots_tokens, dtype=np.float64)
    seconds = np.asarray(step_time.knots_s, dtype=np.float64)
    tokens = np.arange(max_tokens + 1, dtype=np.float64)
    table = np.interp(tokens, knots, seconds)
    if len(knots) > 1:
        slope = (seconds[-1] - seconds[-2]) / (knots[-1] - knots[-2])
        beyond = tokens > knots[-1]
        table[beyond] = seconds[-1] + slope * (tokens[beyond] - knots[-1])
    table[0] = 0.0
    return table


def decode_costs(step: StepTime, seconds: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """What steps of 0, 1, 2, ... rows that only decode take and charge but for context; `seconds` is their f(T)."""
    costs = np.zeros(len(seconds), st.DECODE)
    rows = np.arange(len(seconds))
    own_s = step.decode_s + step.sequence_s
    costs["overhead_s"] = step.overhead_s + step.sequence_s * rows + seconds + step.decode_s * rows
    shared_s = seconds[1:] / rows[1:], step.overhead_s / rows[1:]
    costs["row_fs"][1:] = sum(np.floor(part * st.FS + 0.5) for part in (*shared_s, own_s))
    marginal_s = np.diff(seconds) + own_s
    marginal_s[:1] += step.overhead_s
    costs["marginal_fs"][1:] = np.floor(marginal_s * st.FS + 0.5)
    return costs


def context_rate(kv_token_s: float) -> int:
    """What a token of context is charged by a step, in 2^-CONTEXT_BITS fs."""
    return round(kv_token_s * st.FS * (1 << st.CONTEXT_BITS))


def shortest_step(profile: Profile, seconds: npt.NDArray[np.float64]) -> float:
    """Seconds below which no step of the engine lasts; `seconds` is its f(T)."""
    step = profile.timed
    return float(seconds[1:].min() + step.overhead_s + step.sequence_s) if step.decode_s >= 0.0 else 0.0


def agreed(engines: Sequence[Profile]) -> EngineSettings:
    """What the engines of a fleet have in common, with the smallest of the sizes in which they may differ.

    Raises BadConfig for a setting in which they may not.
    """
    first = engines[0].engine
    smallest = {name: min(getattr(p.engine, name) for p in engines) for name in ("max_model_len", "num_blocks")}
    for profile in engines:
        for name in ALIKE:
            if getattr(profile.engine, name) != getattr(first, name):
                raise BadConfig(
                    f"{profile.name}: engine.{name} is {getattr(profile.engine, name)}, but {getattr(first, name)} for "
                    f"{engines[0].name}: the engines of a fleet must agree in it"
                )
    return replace(first, **smallest)


def replica_array(engines: Sequence[Profile], kinds: Sequence[Profile]) -> npt.NDArray[Any]:
    """Idle replicas, each with its own range of slots and blocks; `kinds` are the different engines among them."""
    n = len(engines)
    array = np.zeros(n, st.REPLICA)
    array["index"] = array["wake_place"] = np.arange(n)
    for r, profile in enumerate(engines):
        engine, step = profile.engine, profile.timed
        values = {
            "decode_s": step.decode_s,
            "kv_token_s": step.kv_token_s,
            "mixed_kv_factor": step.mixed_kv_factor,
            "attention_s": step.prefill_attention_s,
            "chunk_context_s": step.prefill_context_s,
            "overhead_s": step.overhead_s,
            "sequence_s": step.sequence_s,
            "context_rate": context_rate(step.kv_token_s),
            "mixed_context_rate": context_rate(step.kv_token_s * step.mixed_kv_factor),
            "max_num_seqs": engine.max_num_seqs,
            "max_tokens": engine.max_num_batched_tokens,
            "chunk_limit": engine.long_prefill_token_threshold,
            "watermark": int(engine.watermark * engine.num_blocks),
            "num_blocks": engine.num_blocks,
            "table": kinds.index(profile),
            "slots_free": engine.max_num_seqs,
            "free": engine.num_blocks - 1,
            "blank_count": engine.num_blocks - 1,
            "numbers": engine.num_blocks - 1,
        }
        for name, value in values.items():
            array[name][r] = value
    array["wake_at"] = np.inf
    array["wake_kind"] = 9
    for name in (
        "late",
        "doomed",
        "queue_head",
        "queue_tail",
        "run_head",
        "run_tail",
        "inbox_first",
        "inbox_last",
        "held_head",
        "dropped",
        "started",
    ):
        array[name] = st.NONE
    return array


def free_numbers(engines: Sequence[Profile], most: int) -> npt.NDArray[np.int32]:
    """The blocks of each replica, whose range is `most` long: its first one on top, block 0 left out."""
    stacks = np.zeros((len(engines), most), np.int32)
    for r, profile in enumerate(engines):
        blocks = profile.engine.num_blocks
        stacks[r, : blocks - 1] = r * most + np.arange(blocks - 1, 0, -1)
    return stacks


def new_buckets(number: int, budget: RetryBudget | None) -> npt.NDArray[np.float64]:
    """Buckets of retries as they are at the beginning: see `budgets`."""
    buckets = np.zeros((number, COLUMNS))
    if budget is not None:
        buckets[:, TOKENS] = budget.initial if budget.ttl_s is not None else min(budget.initial, budget.cap)
    return buckets


def new_state(
    calls: pa.Table, policy: Policy, engines: Sequence[Profile], seed: int, *, trace: bool = False
) -> st.State:
    """Everything that a run of `calls` on `engines`, one for each replica, needs at its beginning. Raises BadConfig."""
    engine = agreed(engines)
    keys = block_keys(calls, engine.block_size) if engine.prefix_caching else content_keys(calls.num_rows)
    following, think_s = sessions(calls)
    records, extras = call_records(calls, engine, following), call_extras(calls, policy, engine, following, think_s)
    contents = numbered(calls["content_id"])
    settings = settings_record(records, keys, policy, engines, seed)
    settings["trace"] = trace
    lazy = engine.prefix_caching and policy.cancellation.kv_release_delay_s > 0
    settings["linger_most"] = settings["max_num_seqs"] * sequence_blocks(records, engine) if lazy else 0
    attempts = len(records) * min(policy.client.max_attempts, ATTEMPTS_FORESEEN) + 16
    return st.State(
        settings=settings[0],
        progress=new_progress(records)[0],
        calls=records,
        call_extras=extras,
        contents=contents,
        hashes=keys.keys,
        hash_ends=keys.ends,
        attempts=zeros(attempts, st.ATTEMPT),
        executions=zeros(attempts, st.EXECUTION),
        execution_extras=zeros(attempts, st.EXECUTION_EXTRA),
        charges=columns(st.CHARGES, attempts),
        inbox=zeros(attempts, np.int64),
        **call_limits(calls, policy.client),
        **gateway_arrays(policy, extras, contents, keys.content_base),
        **step_arrays(engines, policy, settings),
        **batch_arrays(engines, settings[0]),
        **pool_arrays(engines, settings[0], sequence_blocks(records, engine), contents),
        **event_arrays(settings[0]),
    )


def sequence_blocks(records: npt.NDArray[Any], engine: EngineSettings) -> int:
    """Blocks that the longest call may hold, and some more."""
    return longest_sequence(records) // engine.block_size + 2


def new_progress(records: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Where a run stands at its beginning."""
    progress = np.zeros(1, st.PROGRESS)
    progress["next_sample"] = np.inf
    progress["next_call"] = np.argmin(records["waits"])
    progress["lets_go_at"] = NEVER
    for end in ("fresh_head", "fresh_tail", "retry_head", "retry_tail"):
        progress[end] = st.NONE
    return progress


def gateway_arrays(
    policy: Policy, extras: npt.NDArray[Any], contents: npt.NDArray[np.int64], keys: int
) -> dict[str, npt.NDArray[Any]]:
    """What the gateway remembers; `keys` is how many keys blocks have."""
    affinity = policy.gateway.routing == "prefix_affinity"
    most_contents = int(contents.max(initial=0)) + 1 if affinity else 1
    most_keys = int(extras["key"].max(initial=0)) + 1 if policy.gateway.coalesce else 1
    most_buckets = int(extras["bucket"].max(initial=0)) + 1 if policy.budget or policy.throttle else 1
    return {
        "sent_prefix": np.full(keys + 1 if affinity else 1, st.NONE, np.int32),
        "sent_content": np.full(most_contents, st.NONE, np.int32),
        "key_execution": np.full(most_keys, st.NONE, np.int64),
        "budgets": new_buckets(most_buckets, policy.budget),
    }


def step_arrays(engines: Sequence[Profile], policy: Policy, settings: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """The replicas, and how long their steps last. Enters the least that a step lasts in `settings`."""
    kinds = list({id(profile): profile for profile in engines}.values())
    seqs = int(settings["max_num_seqs"][0])
    most_tokens = max(profile.engine.max_num_batched_tokens for profile in engines)
    tables = [step_seconds(kind.timed, most_tokens + seqs) for kind in kinds]
    if policy.cancellation.detection != "oracle":
        settings["step_least"] = min(map(shortest_step, kinds, tables)) * A_HAIR_LESS
    costs = [decode_costs(kind.timed, table[: seqs + 1]) for kind, table in zip(kinds, tables, strict=True)]
    return {
        "step_seconds": np.stack(tables),
        "decodes": np.stack(costs),
        "replicas": replica_array(engines, kinds),
        "wakes": np.arange(len(engines), dtype=np.int32),
    }


def batch_arrays(engines: Sequence[Profile], settings: Any) -> dict[str, npt.NDArray[Any]]:
    """Slots, and the lists of those in them."""
    replicas, seqs = len(engines), int(settings["max_num_seqs"])
    slots = np.zeros(replicas * seqs + 1, st.SLOT)  # the last one is for what lingers
    slots["execution"] = st.NONE
    slots["private_from"] = st.NO_PRIVATE
    residues = np.zeros((replicas, int(settings["block_size"])), st.RESIDUE)
    residues["head"] = residues["tail"] = st.NONE
    steps = int(settings["finish_mask"]) + 1
    return {
        "slots": slots,
        "free_slots": np.arange(replicas)[:, None] * seqs + np.arange(seqs - 1, -1, -1),
        "chunks": np.zeros(seqs, np.int64),
        "parts": np.zeros((replicas, seqs + 1), np.int64),
        "flights": np.zeros((replicas, 2), st.FLIGHT),
        "chunk_costs": np.zeros((len(slots), 2), st.CHUNK),
        "completed": np.zeros((2 * replicas, seqs, 2), np.int64),
        "draining": np.zeros((2 * replicas, seqs, 2), np.int64),
        "stale": np.zeros((replicas, seqs), np.int64),
        "finished": np.zeros(seqs, np.int64),
        "finishing": np.full((replicas, steps), st.NONE, np.int64),
        "residues": residues,
        "due": np.full((replicas, int(settings["due_mask"]) + 1), st.NONE, np.int64),
        "held": np.full((replicas, steps), st.NONE, np.int64),
    }


def pool_arrays(
    engines: Sequence[Profile], settings: Any, sequence_blocks: int, contents: npt.NDArray[np.int64]
) -> dict[str, npt.NDArray[Any]]:
    """The KV pools, as far as blocks have numbers: with prefix caching alone."""
    replicas, caching = len(engines), bool(settings["caching"])
    blocks = max(profile.engine.num_blocks for profile in engines) if caching else 1
    pool = np.zeros(replicas * blocks, st.BLOCK)
    pool["key"] = pool["chain"] = st.NONE
    pool["state"] = st.BLANK
    stories = np.zeros(len(pool), st.STORY)
    stories["producer"] = st.NONE
    privates = zeros(int(contents.max(initial=0)) + 1 if caching else 1, st.PRIVATE)
    privates["execution"] = st.DISCLOSED if settings["linger_most"] or settings["blanks_to_back"] else st.NONE
    sequences = replicas * int(settings["max_num_seqs"]) + 1
    return {
        "blocks": pool,
        "stories": stories,
        "buckets": np.full((replicas, int(settings["table_mask"]) + 1 if caching else 1), st.NONE, np.int32),
        "ring": np.zeros((replicas, int(settings["ring_mask"]) + 1 if caching else 1), np.int32),
        "numbers": free_numbers(engines, blocks) if caching else np.zeros((replicas, 1), np.int32),
        "privates": privates,
        "table": np.zeros((sequences if caching else 1, sequence_blocks), np.int32),
        "hits": np.zeros(sequence_blocks, np.int32),
        "lingering": np.zeros(power_of_two(2 * int(settings["linger_most"]) + 2), np.int32),
    }


def event_arrays(settings: Any) -> dict[str, npt.NDArray[Any]]:
    """Where events wait, and what is written down of a run on its way."""
    seqs, trace, length = int(settings["max_num_seqs"]), bool(settings["trace"]), int(settings["line_mask"]) + 1
    travels = max(settings["to_gateway"], settings["to_engine"], settings["cancel_delay"]) > 0.0
    fronts = np.zeros(st.LINES if travels else 1, st.FRONT)
    fronts["time"] = np.inf
    return {
        "heap": np.zeros(st.EVENTS_AT_ONCE * seqs + 1024, st.EVENT),
        "lines": zeros(len(fronts) * length, st.EVENT).reshape(len(fronts), length),
        "fronts": fronts,
        "soon": np.zeros(power_of_two(2 * st.EVENTS_AT_ONCE * seqs + 64), st.EVENT),
        "samples": np.zeros(int(settings["replicas"]) + 1024, st.SAMPLE),
        "steps": np.zeros(4096 if trace else 1, st.STEP),
        "rows": np.zeros(2 * seqs + 4096 if trace else 1, st.ROW),
    }


def grown(state: st.State) -> st.State:
    """The same state with twice the room in every array that one more event might fill (see `loop.has_room`)."""
    progress, seqs = state.progress, int(state.settings["max_num_seqs"])
    wanted = {
        "attempts": progress["attempts"] + 1,
        "executions": progress["executions"] + 1,
        "heap": progress["heap"] + st.EVENTS_AT_ONCE * seqs + 16,
        "samples": progress["samples"] + state.settings["replicas"],
        "steps": progress["traced_steps"] + 2,
        "rows": progress["traced_rows"] + 2 * seqs,
    }
    larger = {}
    for name, rows in wanted.items():
        array = getattr(state, name)
        if int(rows) >= len(array) > 1:
            larger[name] = longer(array, 2 * len(array))
    if "executions" in larger:
        rows = len(larger["executions"])
        larger |= {name: longer(getattr(state, name), rows) for name in OF_EXECUTIONS}
    if progress["linger_tail"] - progress["linger_head"] + state.settings["linger_most"] >= len(state.lingering):
        larger["lingering"] = longer_ring(state.lingering, int(progress["linger_head"]), int(progress["linger_tail"]))
    return state._replace(**larger)


def with_room_for_samples(state: st.State) -> st.State:
    """The same state with room for the looks at the replicas until the last call arrives, and some more."""
    looks = float(state.calls["arrival"][-1]) / float(state.settings["sample_interval"])
    rows = int(min(1.2 * looks, SAMPLES_FORESEEN)) * len(state.replicas) + len(state.samples)
    return state._replace(samples=zeros(rows, st.SAMPLE))


def longer(array: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """The array with room for so many rows; what it has is moved, and what is blank in it takes no memory there."""
    larger = zeros(rows, array.dtype) if array.ndim == 1 else columns(len(array), rows)
    for new, old in zip(np.atleast_2d(larger), np.atleast_2d(array), strict=True):
        for first in range(0, len(old), ROWS_AT_ONCE):
            part = old[first : first + ROWS_AT_ONCE]
            if part.view(np.int64).any():
                new[first : first + len(part)] = part
            release(array, first, first + len(part))
    return larger


def columns(number: int, rows: int) -> npt.NDArray[np.int64]:
    """So many columns of zeros, side by side: the second index is the row."""
    length = (rows // 512 * 512 + 512) + SKEW_LINES * LINE // 8
    return zeros(number * length, np.int64).reshape(number, length)


def longer_ring(ring: npt.NDArray[Any], head: int, tail: int) -> npt.NDArray[Any]:
    """A ring twice as long, with what stands from `head` to `tail` in its places."""
    longer = np.zeros(2 * len(ring), ring.dtype)
    places = np.arange(head, tail)
    longer[places & (len(longer) - 1)] = ring[places & (len(ring) - 1)]
    return longer
