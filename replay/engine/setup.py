"""From tables and records to the arrays of a run, and from full arrays to larger ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from replay.engine import state as st
from replay.engine.budgets import COLUMNS, TOKENS
from replay.engine.identity import BlockKeys, block_keys, content_keys, dense, numbered
from replay.engine.lobby import NEVER
from replay.engine.memory import zeros
from replay.engine.settings import power_of_two, settings_record
from replay.errors import BadConfig
from replay.policies.knobs import Client, Policy, RetryBudget
from replay.profiles.profile import EngineSettings, Profile, StepTime

ALIKE = (
    "mode", "policy", "block_size", "prefix_caching", "admission_needs", "freed_blocks_go", "aborts_read", "batching",
    "reserve_share", "preempts", "disconnect", "disconnect_timer_s", "disconnect_timer_streaming_s", "prefill_runs_on",
)  # fmt: skip
"""Settings in which the engines of a fleet must agree."""
GROWN = ("attempts", "executions", "ledgers", "heap", "inbox", "samples", "steps", "rows")
"""Arrays whose need is not known beforehand."""
ATTEMPTS_FORESEEN = 4
"""Attempts of a call that there is room for from the start. What is not used takes no memory."""
TIMERS_IN_LINE = 65_536
"""Timeouts that may wait in line, a power of two."""


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


def shortest_step(profile: Profile, seconds: npt.NDArray[np.float64]) -> float:
    """Seconds below which no step of the engine lasts; `seconds` is its f(T)."""
    step = profile.timed
    return float(seconds[1:].min() + step.overhead_s + step.sequence_s) if step.decode_s >= 0.0 else 0.0


def column(calls: pa.Table, name: str, missing: float, kind: Any) -> npt.NDArray[Any]:
    """A column of the calls as an array; `missing` where it is absent or null."""
    if name not in calls.column_names:
        return np.full(calls.num_rows, missing, kind)
    return np.asarray(pc.fill_null(calls[name].cast(pa.from_numpy_dtype(np.dtype(kind))), missing), dtype=kind)


def coalescing_keys(calls: pa.Table, by: str = "key_or_content") -> npt.NDArray[np.int64]:
    """One number for the calls that may join each other: see `Gateway.coalesce_by`."""
    each = np.arange(calls.num_rows, dtype=np.int64)
    if by == "call":
        return each
    if by == "key":
        return by_key(calls, each)
    by_content = numbered(calls["content_id"])
    for name in ("tenant", "model"):
        if name in calls.column_names:
            part = dense(calls[name])
            by_content = dense(pa.array(by_content * (part.max(initial=0) + 1) + part))
    return by_content if by == "content" else by_key(calls, by_content)


def by_key(calls: pa.Table, others: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """One number for each idempotency key, and for each of `others` among the calls without one."""
    if "idempotency_key" not in calls.column_names:
        return others
    named = np.asarray(pc.is_valid(calls["idempotency_key"]))
    by_name = dense(calls["idempotency_key"]) + others.max(initial=0) + 1
    return np.unique(np.where(named, by_name, others), return_inverse=True)[1].astype(np.int64)


def budget_buckets(calls: pa.Table, policy: Policy) -> npt.NDArray[np.int64]:
    """The bucket of each call, of which it draws retries or in which it is counted. Raises BadConfig."""
    limits = {"budget": policy.budget, "throttle": policy.throttle}
    scopes = {f"{name}.scope": limit.scope for name, limit in limits.items() if limit is not None and limit.scope}
    if len(set(scopes.values())) > 1:
        raise BadConfig(f"policy {policy.name}: budget.scope and throttle.scope must be the same")
    for name, scope in scopes.items():
        if scope == "global":
            break
        if scope not in calls.column_names:
            raise BadConfig(f"{name} is {scope!r}, but the trace does not say the {scope} of its calls")
        return dense(calls[scope])
    return np.zeros(calls.num_rows, np.int64)


def sessions(calls: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """For each call, the row of the turn that waits for its end, else NONE; and how long that turn is thought about.

    A turn waits if it names the one before it (an earlier row) and a time to think; a call is waited for by one turn.
    """
    following = np.full(calls.num_rows, st.NONE, np.int64)
    think = column(calls, "think_time_s", np.nan, np.float64)
    before = column(calls, "previous_call_id", st.NONE, np.int64)
    turns = np.flatnonzero((before >= 0) & ~np.isnan(think))
    if len(turns):
        ids = column(calls, "call_id", 0, np.int64) if "call_id" in calls.column_names else np.arange(calls.num_rows)
        order = np.argsort(ids, kind="stable")
        places = np.searchsorted(ids[order], before[turns]).clip(max=len(ids) - 1)
        rows = order[places]
        known = (ids[rows] == before[turns]) & (rows < turns)
        rows, firsts = np.unique(rows[known], return_index=True)
        following[rows] = turns[known][firsts]
    return following, np.maximum(np.nan_to_num(think), 0.0)


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


def call_array(calls: pa.Table, policy: Policy, engine: EngineSettings, keys: BlockKeys) -> npt.NDArray[Any]:
    """The calls as the kernel reads them."""
    array = zeros(calls.num_rows, st.CALL)
    array["arrival"] = column(calls, "arrival_s", 0.0, np.float64)
    array["prompt"] = prompt = column(calls, "prompt_tokens", 0, np.int64)
    wanted = column(calls, "output_tokens", 1, np.int64)
    array["output"] = np.clip(wanted, 1, np.maximum(engine.max_model_len - prompt, 1))
    limit = column(calls, "max_tokens", 0, np.int64)
    array["reserve"] = np.minimum(np.where(limit > 0, limit, wanted), np.maximum(engine.max_model_len - prompt, 1))
    array["priority"] = column(calls, "priority", 0, np.int64)
    array["content"] = numbered(calls["content_id"])
    array["stream"] = column(calls, "stream", st.UNKNOWN, np.int8)
    if policy.gateway.coalesce:
        array["key"] = coalescing_keys(calls, policy.gateway.coalesce_by)
    array["patience"] = column(calls, "user_cancel_s", np.inf, np.float64)
    array["leaves_tokens"] = column(calls, "user_cancel_tokens", 0, np.int64)
    array["timeout"] = timeouts(calls, policy.client)
    array["bucket"] = budget_buckets(calls, policy)
    array["following"], array["think"] = sessions(calls)
    array["waits"][array["following"][array["following"] != st.NONE]] = st.FOR_ITS_TURN
    if policy.gateway.routing == "session" and "session_id" in calls.column_names:
        places = pc.dictionary_encode(calls["session_id"].combine_chunks()).indices
        array["session"] = np.asarray(pc.fill_null(places, st.NONE))
    else:
        array["session"] = st.NONE
    array["hash_start"], array["hash_count"] = keys.first, keys.number
    array["end"] = array["first_token"] = np.inf
    array["attempt"] = array["hedge"] = array["delivered_by"] = st.NONE
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
    kinds = list({id(profile): profile for profile in engines}.values())
    caching = engine.prefix_caching
    keys = block_keys(calls, engine.block_size) if caching else content_keys(calls.num_rows)
    array = call_array(calls, policy, engine, keys)
    settings = settings_record(array, keys, policy, engines, seed)
    settings["trace"] = trace
    replicas, seqs = len(engines), int(settings["max_num_seqs"][0])
    most_tokens = max(profile.engine.max_num_batched_tokens for profile in engines)
    tables = [step_seconds(kind.timed, most_tokens + seqs) for kind in kinds]
    if policy.cancellation.detection != "oracle":
        settings["step_least"] = min(map(shortest_step, kinds, tables))
    affinity = policy.gateway.routing == "prefix_affinity"
    slots = np.zeros(replicas * seqs + 1, st.SLOT)  # the last one is for what lingers
    slots["execution"] = st.NONE
    slots["private_from"] = st.NO_PRIVATE
    i4, i8 = np.int32, np.int64
    blocks = max(profile.engine.num_blocks for profile in engines) if caching else 1
    sequence_blocks = int((array["prompt"].astype(np.int64) + array["output"]).max(initial=1)) // engine.block_size + 2
    pool = np.zeros(replicas * blocks, st.BLOCK)
    pool["key"] = pool["chain"] = st.NONE
    pool["state"] = st.BLANK
    stories = np.zeros(len(pool), st.STORY)
    stories["producer"] = st.NONE
    residues = np.zeros((replicas, engine.block_size), st.RESIDUE)
    residues["head"] = residues["tail"] = st.NONE
    progress = np.zeros(1, st.PROGRESS)
    progress["next_sample"] = np.inf
    progress["next_call"] = np.argmin(array["waits"])
    progress["lets_go_at"] = NEVER
    for end in ("fresh_head", "fresh_tail", "retry_head", "retry_tail"):
        progress[end] = st.NONE
    progress["ledgers"] = st.NO_PAGE + 1
    lazy = caching and policy.cancellation.kv_release_delay_s > 0
    settings["linger_most"] = seqs * sequence_blocks if lazy else 0
    privates = zeros(int(array["content"].max(initial=0)) + 1 if caching else 1, st.PRIVATE)
    privates["execution"] = st.DISCLOSED if lazy or settings["blanks_to_back"][0] else st.NONE
    n = len(array) * min(policy.client.max_attempts, ATTEMPTS_FORESEEN) + 16
    return st.State(
        settings=settings[0],
        progress=progress[0],
        step_seconds=np.stack(tables),
        calls=array,
        attempts=zeros(n, st.ATTEMPT),
        executions=zeros(n, st.EXECUTION),
        ledgers=zeros(n + seqs, st.LEDGER),
        replicas=replica_array(engines, kinds),
        wakes=np.arange(replicas, dtype=i4),
        slots=slots,
        free_slots=(np.arange(replicas)[:, None] * seqs + np.arange(seqs - 1, -1, -1)),
        chunks=np.zeros(seqs, i8),
        parts=np.zeros((replicas, seqs + 1), i8),
        flights=np.zeros((replicas, 2), st.FLIGHT),
        chunk_costs=np.zeros((len(slots), 2), st.CHUNK),
        completed=np.zeros((2 * replicas, seqs, 2), np.int64),
        draining=np.zeros((2 * replicas, seqs, 2), np.int64),
        stale=np.zeros((replicas, seqs), i8),
        finished=np.zeros(seqs, i8),
        finishing=np.full((replicas, int(settings["finish_mask"][0]) + 1), st.NONE, i8),
        residues=residues,
        blocks=pool,
        stories=stories,
        buckets=np.full((replicas, int(settings["table_mask"][0]) + 1 if caching else 1), st.NONE, i4),
        ring=np.zeros((replicas, int(settings["ring_mask"][0]) + 1 if caching else 1), i4),
        numbers=free_numbers(engines, blocks) if caching else np.zeros((replicas, 1), i4),
        privates=privates,
        table=np.zeros((replicas * seqs + 1 if caching else 1, sequence_blocks), i4),
        hits=np.zeros(sequence_blocks, i4),
        hashes=keys.keys,
        sent_prefix=np.full(keys.content_base + 1 if affinity else 1, st.NONE, i4),
        sent_content=np.full(int(array["content"].max(initial=0)) + 1 if affinity else 1, st.NONE, i4),
        key_execution=np.full(int(array["key"].max(initial=0)) + 1, st.NONE, i8),
        budgets=new_buckets(int(array["bucket"].max(initial=0)) + 1, policy.budget),
        heap=np.zeros(st.EVENTS_AT_ONCE * seqs + 1024, st.EVENT),
        timers=zeros(TIMERS_IN_LINE, st.EVENT),
        soon=np.zeros(power_of_two(2 * st.EVENTS_AT_ONCE * seqs + 64), st.EVENT),
        inbox=zeros(n, i8),
        due=np.full((replicas, int(settings["due_mask"][0]) + 1), st.NONE, i8),
        held=np.full((replicas, int(settings["finish_mask"][0]) + 1), st.NONE, i8),
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
        "heap": progress["heap"] + st.EVENTS_AT_ONCE * seqs + 16,
        "inbox": progress["executions"] + 1,
        "samples": progress["samples"] + state.settings["replicas"],
        "steps": progress["traced_steps"] + 2,
        "rows": progress["traced_rows"] + 2 * seqs,
    }
    larger = {}
    for name in GROWN:
        array = getattr(state, name)
        if int(wanted[name]) >= len(array) > 1:
            larger[name] = zeros(2 * len(array), array.dtype)
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
