"""From tables and records to the arrays of a run, and from full arrays to larger ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replay.engine import state as st
from replay.engine.identity import BlockKeys, block_keys, content_keys, dense
from replay.errors import BadConfig
from replay.policies.knobs import Cancellation, Client, Fleet, Policy
from replay.profiles.profile import EngineSettings, Profile, StepTime

GROWN = ("attempts", "executions", "ledgers", "heap", "inbox", "samples", "steps", "rows")
DETECTION = {"push": st.PUSH, "poll": st.POLL, "oracle": st.ORACLE, "never": st.NEVER}
"""Arrays whose need is not known beforehand."""


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


def column(calls: pa.Table, name: str, missing: float, kind: Any) -> npt.NDArray[Any]:
    """A column of the calls as an array; `missing` where it is absent or null."""
    if name not in calls.column_names:
        return np.full(calls.num_rows, missing, kind)
    return np.asarray(pc.fill_null(calls[name].cast(pa.from_numpy_dtype(np.dtype(kind))), missing), dtype=kind)


def coalescing_keys(calls: pa.Table) -> npt.NDArray[np.int64]:
    """One number for each (idempotency key), else for each (tenant, model, content)."""
    parts = [column(calls, "content_id", -1, np.int64)]
    for name in ("tenant", "model"):
        if name in calls.column_names:
            parts.append(dense(calls[name]))
    _, by_content = np.unique(np.stack(parts), axis=1, return_inverse=True)
    by_content = by_content.reshape(-1).astype(np.int64)
    if "idempotency_key" not in calls.column_names:
        return by_content
    named = np.asarray(pc.is_valid(calls["idempotency_key"]))
    by_name = dense(calls["idempotency_key"]) + by_content.max(initial=0) + 1
    return np.unique(np.where(named, by_name, by_content), return_inverse=True)[1].astype(np.int64)


def budget_buckets(calls: pa.Table, scope: str) -> npt.NDArray[np.int64]:
    """The retry bucket of each call."""
    if scope == "global":
        return np.zeros(calls.num_rows, np.int64)
    if scope not in calls.column_names:
        raise BadConfig(f"budget.scope is {scope!r}, but the trace does not say the {scope} of its calls")
    return dense(calls[scope])


def call_array(calls: pa.Table, policy: Policy, engine: EngineSettings, keys: BlockKeys) -> npt.NDArray[Any]:
    """The calls as the kernel reads them."""
    array = np.zeros(calls.num_rows, st.CALL)
    array["arrival"] = column(calls, "arrival_s", 0.0, np.float64)
    array["prompt"] = prompt = column(calls, "prompt_tokens", 0, np.int64)
    wanted = column(calls, "output_tokens", 1, np.int64)
    array["output"] = np.clip(wanted, 1, np.maximum(engine.max_model_len - prompt, 1))
    array["priority"] = column(calls, "priority", 0, np.int64)
    array["content"] = dense(calls["content_id"])
    array["stream"] = column(calls, "stream", st.UNKNOWN, np.int8)
    if policy.gateway.coalesce:
        array["key"] = coalescing_keys(calls)
    array["leaves_at"] = array["arrival"] + column(calls, "user_cancel_s", np.inf, np.float64)
    array["timeout"] = timeouts(calls, policy.client)
    if policy.budget is not None:
        array["bucket"] = budget_buckets(calls, policy.budget.scope)
    array["hash_start"], array["hash_count"] = keys.first, keys.number
    array["end"] = array["first_token"] = np.inf
    array["attempt"] = array["delivered_by"] = st.NONE
    longest = np.minimum(prompt + wanted, engine.max_model_len) - 1
    blocks = -(-longest // engine.block_size)
    too_long = (prompt + 1 > engine.max_model_len) | (blocks > engine.num_blocks - 1)
    array["status"] = np.where(too_long, st.TOO_LONG, st.LIVE)
    return array


def timeouts(calls: pa.Table, client: Client) -> npt.NDArray[np.float64]:
    """Seconds that each call's client waits for an attempt: the policy's word, else the trace's, else for ever."""
    if client.timeout_s is not None:
        return np.full(calls.num_rows, client.timeout_s)
    return column(calls, "client_timeout_s", np.inf, np.float64)


def settings_record(
    calls: npt.NDArray[Any], keys: BlockKeys, policy: Policy, profile: Profile, fleet: Fleet, seed: int
) -> npt.NDArray[Any]:
    """The numbers that a run reads and never changes."""
    engine, step, client, gateway = profile.engine, profile.timed, policy.client, policy.gateway
    longest = int((calls["prompt"].astype(np.int64) + calls["output"]).max(initial=1))
    record = np.zeros(1, st.SETTINGS)
    values: dict[str, Any] = {
        "decode": step.decode_s,
        "kv_token": step.kv_token_s,
        "mixed_kv_factor": step.mixed_kv_factor,
        "attention": step.prefill_attention_s,
        "context": step.prefill_context_s,
        "overhead": step.overhead_s,
        "sequence": step.sequence_s,
        "to_gateway": policy.network.client_gateway_s,
        "to_engine": policy.network.gateway_engine_s + 0.5 * profile.api_server_s,
        "cancel_delay": policy.network.cancel_s,
        "orphan_ttl": np.inf if gateway.orphan_ttl_s is None else gateway.orphan_ttl_s,
        "result_ttl": gateway.result_ttl_s,
        "coalesce": gateway.coalesce,
        "least_outstanding": gateway.routing == "least_outstanding",
        "max_attempts": client.max_attempts,
        "first_token_timeout": client.timeout_kind == "first_token",
        "backoff_base": client.backoff_base_s,
        "backoff_factor": client.backoff_factor,
        "backoff_cap": client.backoff_cap_s,
        "backoff_jitter": client.backoff_jitter,
        "until": np.inf,
        "sample_interval": np.inf,
        "seed": seed,
        "calls": len(calls),
        "block_size": engine.block_size,
        "num_blocks": engine.num_blocks,
        "max_num_seqs": engine.max_num_seqs,
        "max_tokens": engine.max_num_batched_tokens,
        "chunk_limit": engine.long_prefill_token_threshold,
        "watermark": int(engine.watermark * engine.num_blocks),
        "caching": engine.prefix_caching,
        "by_priority": engine.policy == "priority",
        "depth": 2 if engine.mode == "async" else 1,
        "chunk_admission": engine.admission_needs == "chunk",
        "blanks_to_back": engine.freed_blocks_go == "to_the_back",
        "late_aborts": engine.aborts_read == "loop_top",
        "ring_mask": power_of_two(2 * engine.num_blocks) - 1,
        "table_mask": power_of_two(2 * engine.num_blocks) - 1,
        "finish_mask": power_of_two(int(calls["output"].max(initial=1)) + 2) - 1,
        "stride": (longest // engine.block_size + 2) | 1,
        "content_base": keys.content_base,
        "replicas": fleet.replicas,
    }
    values |= cancellation_settings(policy.cancellation)
    if policy.budget is not None:
        values |= {
            "has_budget": True,
            "budget_deposit": policy.budget.deposit_per_call,
            "budget_cost": policy.budget.cost_per_retry,
            "budget_cap": policy.budget.cap,
        }
    for name, value in values.items():
        record[name] = value
    return record


def cancellation_settings(cancellation: Cancellation) -> dict[str, Any]:
    """How engines handle cancels; a look costs each row of each step its share of an interval."""
    polls = cancellation.detection == "poll"
    every = cancellation.poll_every_tokens if polls else 1
    poll = cancellation.poll_cost_s / every if polls else 0.0
    return {
        "detection": DETECTION[cancellation.detection],
        "poll_tokens": every,
        "poll_phase": cancellation.poll_lag == "phase",
        "poll": poll,
        "poll_fs": round(poll * st.FS),
        "due_mask": power_of_two(every + 2) - 1 if polls else 0,
        "kv_delay": cancellation.kv_release_delay_s,
        "holds_slots": not cancellation.repack,
    }


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()


def replica_array(settings: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Idle replicas, each with its own range of slots and blocks."""
    n = int(settings["replicas"][0])
    array = np.zeros(n, st.REPLICA)
    array["index"] = array["wake_place"] = np.arange(n)
    array["wake_at"] = np.inf
    array["wake_kind"] = 9
    for name in (
        "late",
        "queue_head",
        "queue_tail",
        "run_head",
        "run_tail",
        "inbox_first",
        "inbox_last",
        "held_head",
        "dropped",
    ):
        array[name] = st.NONE
    array["slots_free"] = settings["max_num_seqs"][0]
    array["free"] = settings["num_blocks"][0] - 1
    if settings["caching"][0]:
        array["blank_count"] = settings["num_blocks"][0] - 1
    return array


def new_state(
    calls: pa.Table, policy: Policy, profile: Profile, fleet: Fleet, seed: int, *, trace: bool = False
) -> st.State:
    """Everything that a run of `calls` needs, at its beginning."""
    engine = profile.engine
    caching = engine.prefix_caching
    keys = block_keys(calls, engine.block_size) if caching else content_keys(calls.num_rows)
    array = call_array(calls, policy, engine, keys)
    settings = settings_record(array, keys, policy, profile, fleet, seed)
    settings["trace"] = trace
    replicas, seqs = fleet.replicas, engine.max_num_seqs
    slots = np.zeros(replicas * seqs + 1, st.SLOT)  # the last one is for what lingers
    slots["execution"] = st.NONE
    i4 = np.int32
    blocks = engine.num_blocks if caching else 1
    sequence_blocks = int((array["prompt"].astype(np.int64) + array["output"]).max(initial=1)) // engine.block_size + 2
    pool = np.zeros(replicas * blocks, st.BLOCK)
    pool["key"] = pool["chain"] = st.NONE
    pool["state"] = 1 << 30
    stories = np.zeros(len(pool), st.STORY)
    stories["producer"] = st.NONE
    residues = np.zeros((replicas, engine.block_size), st.RESIDUE)
    residues["head"] = residues["tail"] = st.NONE
    progress = np.zeros(1, st.PROGRESS)
    progress["next_sample"] = np.inf
    progress["ledgers"] = st.NO_PAGE + 1
    lazy = caching and policy.cancellation.kv_release_delay_s > 0
    settings["linger_most"] = seqs * sequence_blocks if lazy else 0
    first_block = np.arange(replicas, dtype=i4)[:, None] * blocks
    buckets = int(array["bucket"].max(initial=0)) + 1
    n = len(array) + 16
    return st.State(
        settings=settings[0],
        progress=progress[0],
        step_seconds=step_seconds(profile.step_time, engine.max_num_batched_tokens + seqs),
        calls=array,
        attempts=np.zeros(n, st.ATTEMPT),
        executions=np.zeros(n, st.EXECUTION),
        ledgers=np.zeros(n + seqs, st.LEDGER),
        replicas=replica_array(settings),
        wakes=np.arange(replicas, dtype=i4),
        slots=slots,
        free_slots=(np.arange(replicas, dtype=i4)[:, None] * seqs + np.arange(seqs - 1, -1, -1, dtype=i4)),
        chunks=np.zeros(seqs, i4),
        parts=np.zeros((replicas, seqs + 1), i4),
        flights=np.zeros((replicas, 2), st.FLIGHT),
        chunk_costs=np.zeros((len(slots), 2), st.CHUNK),
        completed=np.zeros((2 * replicas, seqs, 2), np.int64),
        draining=np.zeros((2 * replicas, seqs, 2), np.int64),
        stale=np.zeros((replicas, seqs), i4),
        finished=np.zeros(seqs, i4),
        finishing=np.full((replicas, int(settings["finish_mask"][0]) + 1), st.NONE, i4),
        residues=residues,
        blocks=pool,
        stories=stories,
        buckets=np.full((replicas, int(settings["table_mask"][0]) + 1 if caching else 1), st.NONE, i4),
        ring=np.zeros((replicas, int(settings["ring_mask"][0]) + 1 if caching else 1), i4),
        blank=first_block + np.arange(blocks, 0, -1, dtype=i4)[None, 1:] if caching else np.zeros((replicas, 1), i4),
        table=np.zeros((replicas * seqs + 1 if caching else 1, sequence_blocks), i4),
        hits=np.zeros(sequence_blocks, i4),
        hashes=keys.keys,
        key_execution=np.full(int(array["key"].max(initial=0)) + 1, st.NONE, i4),
        budgets=np.full(buckets, 0.0 if policy.budget is None else policy.budget.initial),
        heap=np.zeros(seqs + 1024, st.EVENT),
        soon=np.zeros(power_of_two(seqs + 64), st.EVENT),
        inbox=np.zeros(n, i4),
        due=np.full((replicas, int(settings["due_mask"][0]) + 1), st.NONE, i4),
        held=np.full((replicas, int(settings["finish_mask"][0]) + 1), st.NONE, i4),
        lingering=np.zeros(power_of_two(2 * int(settings["linger_most"][0]) + 2), i4),
        samples=np.zeros(replicas + 1024, st.SAMPLE),
        steps=np.zeros(4096 if trace else 1, st.STEP),
        rows=np.zeros(2 * seqs + 4096 if trace else 1, st.ROW),
    )


def grown(state: st.State) -> st.State:
    """The same state with twice the room in every array that one more event might fill (see `loop.has_room`)."""
    progress, seqs = state.progress, int(state.settings["max_num_seqs"])
    wanted = {
        "attempts": progress["attempts"] + 1,
        "executions": progress["executions"] + 1,
        "ledgers": progress["ledgers"] + seqs,
        "heap": progress["heap"] + seqs + 8,
        "inbox": progress["executions"] + 1,
        "samples": progress["samples"] + state.settings["replicas"],
        "steps": progress["traced_steps"] + 2,
        "rows": progress["traced_rows"] + 2 * seqs,
    }
    larger = {}
    for name in GROWN:
        array = getattr(state, name)
        if int(wanted[name]) >= len(array) > 1:
            larger[name] = np.zeros(2 * len(array), array.dtype)
            larger[name][: len(array)] = array
    if progress["linger_tail"] - progress["linger_head"] + state.settings["linger_most"] >= len(state.lingering):
        larger["lingering"] = longer_ring(state.lingering, int(progress["linger_head"]), int(progress["linger_tail"]))
    return state._replace(**larger)


def longer_ring(ring: npt.NDArray[Any], head: int, tail: int) -> npt.NDArray[Any]:
    """A ring twice as long, with what stands from `head` to `tail` in its places."""
    longer = np.zeros(2 * len(ring), ring.dtype)
    places = np.arange(head, tail)
    longer[places & (len(longer) - 1)] = ring[places & (len(ring) - 1)]
    return longer
