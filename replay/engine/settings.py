"""What a run reads and never changes: the knobs of its policy and its engines, as numbers and codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay.engine import state as st
from replay.engine.identity import BlockKeys
from replay.engine.paging import reciprocal
from replay.policies.knobs import Admission, Cancellation, Client, Policy, RetryBudget
from replay.policies.waits import longest_waits_s, told_wait_s
from replay.profiles.profile import EngineSettings, Profile

ROUTING = {
    "round_robin": st.ROUND_ROBIN,
    "least_outstanding": st.LEAST_OUTSTANDING,
    "random": st.RANDOM,
    "power_of_two": st.POWER_OF_TWO,
    "prefix_affinity": st.PREFIX_AFFINITY,
    "session": st.SESSION,
}
DETECTION = {
    "push": st.PUSH,
    "poll": st.POLL,
    "oracle": st.ORACLE,
    "never": st.NEVER,
    "timer": st.TIMER,
    "next_token": st.NEXT_TOKEN,
}
TIMEOUT_KIND = {"total": st.TOTAL, "first_token": st.FIRST_TOKEN, "idle": st.IDLE}
STREAMS_RETRIED = {"always": st.ALWAYS, "before_first_token": st.BEFORE_FIRST_TOKEN, "never": st.NEVER_AGAIN}
RETRIES = {"alike": st.ALIKE, "last": st.RETRIES_LAST, "first": st.RETRIES_FIRST}
ORDER = {"fifo": st.FIFO, "lifo": st.LIFO, "adaptive_lifo": st.ADAPTIVE_LIFO}
SHEDDING = {"never": st.SHED_NONE, "attempt": st.SHED_ATTEMPT, "call": st.SHED_CALL}
LINE_MOST = 1 << 14
"""Events in a line; more of a kind than stand in one go to the heap."""
NO_LIMIT = 1 << 62
"""Of a queue without a cap."""


def settings_record(
    calls: npt.NDArray[Any], keys: BlockKeys, policy: Policy, engines: Sequence[Profile], seed: int
) -> npt.NDArray[Any]:
    """The numbers that a run reads and never changes."""
    engine, client, gateway = engines[0].engine, policy.client, policy.gateway
    most_blocks = max(profile.engine.num_blocks for profile in engines)
    longest = longest_sequence(calls)
    block_reciprocal, block_shift = reciprocal(engine.block_size)
    record = np.zeros(1, st.SETTINGS)
    values: dict[str, Any] = {
        "to_gateway": policy.network.client_gateway_s,
        "to_engine": policy.network.gateway_engine_s + 0.5 * engines[0].api_server_s,
        "cancel_delay": policy.network.cancel_s,
        "orphan_ttl": forever(gateway.orphan_ttl_s),
        "result_ttl": gateway.result_ttl_s,
        "coalesce": gateway.coalesce,
        "routing": ROUTING[gateway.routing],
        "affinity_share": gateway.affinity_min_share,
        "balance_gap": gateway.balance_gap,
        "balance_ratio": gateway.balance_ratio,
        "retries": RETRIES[gateway.retries],
        "until": np.inf,
        "sample_interval": np.inf,
        "seed": seed,
        "calls": len(calls),
        "block_size": engine.block_size,
        "block_reciprocal": block_reciprocal,
        "block_shift": block_shift,
        "max_num_seqs": max(profile.engine.max_num_seqs for profile in engines),
        "caching": engine.prefix_caching,
        "by_priority": engine.policy == "priority",
        "depth": 2 if engine.mode == "async" else 1,
        "chunk_admission": engine.admission_needs == "chunk",
        "blanks_to_back": engine.freed_blocks_go == "to_the_back",
        "late_aborts": engine.aborts_read == "loop_top",
        "chunks_alone": engine.long_prefill_alone == "chunked",
        "fair_chunks": engine.long_prefill_token_threshold_adaptive,
        "eviction_skips": engine.policy == "priority" and engine.eviction_skips,
        "pass_goes_on": engine.policy == "priority" and engine.self_preempted == "pass_goes_on",
        "prefill_first": engine.batching == "prefill_first",
        "reserve_share": engine.reserve_share,
        "evicts_fewest": engine.preempts == "fewest_outputs",
        "prefill_runs_on": engine.prefill_runs_on,
        "ring_mask": power_of_two(2 * most_blocks) - 1,
        "line_mask": power_of_two(min(len(calls), LINE_MOST)) - 1,
        "table_mask": power_of_two(2 * most_blocks) - 1,
        "finish_mask": power_of_two(int(calls["output"].max(initial=1)) + 2) - 1,
        "stride": (longest // engine.block_size + 2) | 1,
        "content_base": keys.content_base,
        "replicas": len(engines),
    }
    values |= client_settings(client) | waits_settings(policy) | admission_settings(policy.admission)
    values |= cancellation_settings(policy.cancellation, engine)
    if policy.budget is not None:
        values |= budget_settings(policy.budget)
    if policy.throttle is not None:
        throttle = policy.throttle
        values |= {"throttles": True, "throttle": throttle.multiplier, "throttle_window": throttle.window_s}
    values["has_turns"] = bool(calls["waits"].any())
    answers_matter = values["hedges"] or values["has_turns"]
    values["reaches_out"] = len(engines) > 1 and (values["holds"] or answers_matter)
    for name, value in values.items():
        record[name] = value
    return record


def longest_sequence(calls: npt.NDArray[Any]) -> int:
    """Tokens of the longest call, or more: its prompt and its output."""
    return int(calls["prompt"].max(initial=1)) + int(calls["output"].max(initial=1))


def forever(seconds: float | None) -> float:
    """Infinity for what has no limit."""
    return np.inf if seconds is None else seconds


def client_settings(client: Client) -> dict[str, Any]:
    """How clients wait and try again."""
    return {
        "max_attempts": client.max_attempts,
        "timeout_kind": TIMEOUT_KIND[client.timeout_kind],
        "deadline": forever(client.deadline_s),
        "retries_rejections": client.retries_rejections,
        "streams_retried": STREAMS_RETRIED[client.streams_retried],
        "hedges": client.hedge_after_s is not None,
        "hedge_after": forever(client.hedge_after_s),
    }


def waits_settings(policy: Policy) -> dict[str, Any]:
    """How long clients wait before they try again."""
    client, told_s = policy.client, told_wait_s(policy)
    return {
        "backoff_base": client.backoff_base_s,
        "backoff_factor": client.backoff_factor,
        "backoff_by_sum": client.backoff_grows == "by_sum",
        "backoff_cap": client.backoff_cap_s,
        "backoff_floor": client.backoff_floor_s,
        "backoff_jitter": client.backoff_jitter,
        "backoff_total": longest_waits_s(policy),
        "retry_after": st.NONE if told_s is None else told_s,
    }


def budget_settings(budget: RetryBudget) -> dict[str, Any]:
    """What limits retries."""
    timeout_cost = budget.cost_per_timeout_retry
    return {
        "has_budget": True,
        "budget_deposit": budget.deposit_per_call,
        "budget_success": budget.deposit_per_success,
        "budget_cost": budget.cost_per_retry,
        "budget_timeout_cost": budget.cost_per_retry if timeout_cost is None else timeout_cost,
        "budget_failure": budget.cost_per_failure,
        "refunds": budget.refunds,
        "budget_above": -np.inf if budget.retry_above is None else budget.retry_above,
        "budget_cap": budget.cap,
        "budget_ttl": forever(budget.ttl_s),
        "budget_share": np.inf if budget.share_of_active is None else budget.share_of_active,
        "retries_least": NO_LIMIT if budget.share_of_active is None else budget.concurrent_retries_min,
    }


def admission_settings(admission: Admission) -> dict[str, Any]:
    """Which requests may wait, and in which order."""
    most, most_tokens = admission.max_queued_requests, admission.max_queued_tokens
    return {
        "holds": admission.hold_beyond_steps is not None,
        "hold_steps": admission.hold_beyond_steps or 0.0,
        "most_queued": NO_LIMIT if most is None else most,
        "most_queued_tokens": NO_LIMIT if most_tokens is None else most_tokens,
        "order": ORDER[admission.order],
        "lifo_above": admission.lifo_above,
        "shed": SHEDDING[admission.shed],
        "codel_target": forever(admission.codel_target_s),
        "codel_interval": admission.codel_interval_s,
    }


def cancellation_settings(cancellation: Cancellation, engine: EngineSettings) -> dict[str, Any]:
    """How engines handle cancels; a look costs each row of each step its share of an interval."""
    detection = cancellation.detection or engine.disconnect
    polls = detection == "poll"
    every = cancellation.poll_every_tokens if polls else 1
    poll = cancellation.poll_cost_s / every if polls else 0.0
    return {
        "detection": DETECTION[detection],
        "timer": cancellation.timer_s if cancellation.detection == "timer" else engine.disconnect_timer_s,
        "timer_streaming": (
            cancellation.timer_s if cancellation.detection == "timer" else engine.disconnect_timer_streaming_s
        ),
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
