"""Random scenarios, small and nasty, as hypothesis draws them; and as files, to be replayed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from replay.policies.knobs import (
    Admission,
    Cancellation,
    Client,
    Fleet,
    Gateway,
    Network,
    Policy,
    RetryBudget,
    Throttle,
)
from replay.profiles.profile import EngineSettings, Overhead, Profile, StepTime


@dataclass(frozen=True)
class Scenario:
    """The arguments of one simulation. Its repr is JSON that `Scenario.load` reads."""

    calls: list[dict[str, Any]]
    policy: Policy
    profile: Profile
    fleet: Fleet
    seed: int

    def __repr__(self) -> str:
        parts = {name: msgspec.to_builtins(getattr(self, name)) for name in self.__dataclass_fields__}
        return json.dumps(parts)

    @classmethod
    def load(cls, text: str) -> Scenario:
        """The scenario that a failing example printed."""
        parts = json.loads(text)
        kinds = {"policy": Policy, "profile": Profile, "fleet": Fleet}
        return cls(**{k: msgspec.convert(v, kinds[k]) if k in kinds else v for k, v in parts.items()})

    @property
    def table(self) -> pa.Table:
        table = pa.Table.from_pylist(self.calls)
        if "block_hashes" in table.column_names:
            hashes = table["block_hashes"].cast(pa.list_(pa.uint64()))
            table = table.set_column(table.column_names.index("block_hashes"), "block_hashes", hashes)
        return table


ROUND = st.sampled_from([0.0, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0])
"""Seconds that often coincide with one another and with multiples of a step."""


@st.composite
def engines(draw: st.DrawFn) -> EngineSettings:
    """Small pools, small budgets, odd block sizes."""
    seqs = draw(st.integers(1, 6))
    return EngineSettings(
        mode=draw(st.sampled_from(["sync", "async"])),
        policy=draw(st.sampled_from(["fcfs", "fcfs", "priority"])),
        max_model_len=draw(st.sampled_from([60, 4096])),
        max_num_seqs=seqs,
        max_num_batched_tokens=draw(st.integers(seqs, 40)),
        block_size=draw(st.sampled_from([1, 3, 4, 16])),
        num_blocks=draw(st.integers(4, 60)),
        prefix_caching=draw(st.booleans()),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 5, 12])),
        long_prefill_token_threshold_adaptive=draw(st.sampled_from([False, False, True])),
        long_prefill_alone=draw(st.sampled_from(["whole", "whole", "chunked"])),
        self_preempted=draw(st.sampled_from(["pass_ends", "pass_goes_on"])),
        eviction_skips=draw(st.sampled_from([False, False, True])),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.1])),
        admission_needs=draw(st.sampled_from(["sequence", "sequence", "chunk"])),
        freed_blocks_go=draw(st.sampled_from(["unhashed_first", "unhashed_first", "to_the_back"])),
        batching=draw(st.sampled_from(["mixed", "mixed", "prefill_first"])),
        reserve_share=draw(st.sampled_from([0.0, 0.0, 0.5, 1.0])),
        preempts=draw(st.sampled_from(["last_admitted", "last_admitted", "fewest_outputs"])),
        disconnect=draw(st.sampled_from(["push", "push", "next_token", "timer"])),
        disconnect_timer_s=draw(st.sampled_from([0.0, 0.05, 0.3])),
        disconnect_timer_streaming_s=draw(st.sampled_from([0.0, 0.02, 0.1])),
        prefill_runs_on=draw(st.booleans()),
        aborts_read=draw(st.sampled_from(["step_end", "step_end", "loop_top"])),
    )


step_times = st.builds(
    StepTime,
    knots_tokens=st.just((1, 8, 24)),
    knots_s=st.sampled_from([(0.01, 0.01, 0.01), (0.004, 0.011, 0.03), (0.0, 0.007, 0.021)]),
    decode_s=st.sampled_from([0.0, 0.001]),
    kv_token_s=st.sampled_from([0.0, 1e-5]),
    mixed_kv_factor=st.sampled_from([1.0, 2.0]),
    prefill_attention_s=st.sampled_from([0.0, 1e-6]),
    prefill_context_s=st.sampled_from([0.0, 1e-5]),
    overhead_s=st.sampled_from([0.0, 0.01]),
    sequence_s=st.sampled_from([0.0, 0.0005]),
)


cancellations = st.builds(
    Cancellation,
    detection=st.sampled_from([None, "push", "poll", "poll", "timer", "oracle", "never"]),
    timer_s=st.sampled_from([0.02, 0.3]),
    poll_every_tokens=st.sampled_from([1, 2, 3, 8]),
    poll_lag=st.sampled_from(["full", "phase"]),
    poll_cost_s=st.sampled_from([0.0, 0.001]),
    kv_release_delay_s=st.sampled_from([0.0, 0.0, 0.013, 0.4]),
    repack=st.booleans(),
)


def budgets(scope: str) -> st.SearchStrategy[RetryBudget]:
    """Any limit of retries."""
    return st.builds(
        RetryBudget,
        scope=st.just(scope),
        deposit_per_call=st.sampled_from([0.0, 0.2, 1.0]),
        deposit_per_success=st.sampled_from([0.0, 0.1]),
        cost_per_retry=st.sampled_from([0.0, 1.0, 1.0]),
        cost_per_timeout_retry=st.sampled_from([None, None, 2.0]),
        cost_per_failure=st.sampled_from([0.0, 0.0, 1.0]),
        refunds=st.booleans(),
        retry_above=st.sampled_from([None, None, 1.0]),
        initial=st.sampled_from([0.0, 1.0, 3.0]),
        cap=st.sampled_from([0.0, 2.0, 10.0]),
        ttl_s=st.sampled_from([None, None, 0.2, 10.0]),
        share_of_active=st.sampled_from([None, None, 0.0, 0.2, 0.5]),
        concurrent_retries_min=st.sampled_from([0, 1]),
    )


admissions = st.builds(
    Admission,
    hold_beyond_steps=st.sampled_from([None, 0.0, 0.0, 1.0, 2.0]),
    max_queued_requests=st.sampled_from([None, None, 0, 1, 3]),
    max_queued_tokens=st.sampled_from([None, None, 0, 60]),
    order=st.sampled_from(["fifo", "lifo", "adaptive_lifo"]),
    lifo_above=st.sampled_from([0, 1, 3]),
    shed=st.sampled_from(["never", "never", "attempt", "call"]),
    codel_target_s=st.sampled_from([None, None, 0.0, 0.02]),
    codel_interval_s=st.sampled_from([0.01, 0.1]),
    retry_after_s=st.sampled_from([None, None, 0.0, 0.03, 0.4]),
)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Any policy, extreme knobs included."""
    delay = draw(st.sampled_from([0.0, 0.0, 0.003]))
    scope = draw(st.sampled_from(["global", "tenant"]))
    return Policy(
        name="drawn",
        client=Client(
            timeout_s=draw(st.sampled_from([None, 0.0, 0.05, 0.2, 1.0])),
            timeout_kind=draw(st.sampled_from(["total", "total", "first_token", "idle"])),
            deadline_s=draw(st.sampled_from([None, None, None, 0.0, 0.3])),
            max_attempts=draw(st.integers(1, 4)),
            retries_rejections=draw(st.booleans()),
            heeds_retry_after=draw(st.sampled_from([True, True, False])),
            retry_after_most_s=draw(st.sampled_from([None, None, 0.05])),
            streams_retried=draw(st.sampled_from(["always", "always", "before_first_token", "never"])),
            hedge_after_s=draw(st.sampled_from([None, None, None, 0.0, 0.05])),
            backoff_base_s=draw(ROUND),
            backoff_factor=draw(st.sampled_from([1.0, 2.0])),
            backoff_cap_s=draw(st.sampled_from([0.1, 60.0])),
            backoff_grows=draw(st.sampled_from(["by_factor", "by_sum"])),
            backoff_floor_s=draw(st.sampled_from([0.0, 0.0, 0.02])),
            backoff_jitter=draw(st.sampled_from([0.0, 0.25, 1.0])),
        ),
        budget=draw(st.none() | budgets(scope)),
        throttle=draw(
            st.none()
            | st.builds(
                Throttle,
                scope=st.just(scope),
                multiplier=st.sampled_from([0.5, 1.1, 2.0]),
                window_s=st.sampled_from([0.3, 120.0]),
            )
        ),
        network=Network(
            client_gateway_s=delay, gateway_engine_s=draw(st.sampled_from([delay, 0.001])), cancel_s=draw(ROUND)
        ),
        gateway=Gateway(
            routing=draw(
                st.sampled_from(
                    ["round_robin", "random", "least_outstanding", "power_of_two", "prefix_affinity", "session"]
                )
            ),
            affinity_min_share=draw(st.sampled_from([0.0, 0.3, 1.0])),
            balance_gap=draw(st.sampled_from([0, 1, 64])),
            orphan_ttl_s=draw(st.sampled_from([None, 0.0, 0.0, 0.1])),
            coalesce=draw(st.booleans()),
            coalesce_by=draw(st.sampled_from(["key_or_content", "key_or_content", "key", "content", "call"])),
            result_ttl_s=draw(st.sampled_from([0.0, 0.3, 100.0])),
            retries=draw(st.sampled_from(["alike", "alike", "last", "first"])),
        ),
        admission=draw(st.just(Admission()) | admissions),
        cancellation=draw(st.just(Cancellation()) | cancellations),
    )


@st.composite
def call_rows(draw: st.DrawFn, block_size: int) -> list[dict[str, Any]]:
    """A few calls; some share contents, prefixes or instants."""
    n = draw(st.integers(1, 14))
    gaps = draw(st.lists(st.sampled_from([0.0, 0.0, 0.01, 0.013, 0.03, 0.4]), min_size=n, max_size=n))
    arrivals = [round(float(t), 6) for t in np.cumsum(gaps)]
    contents = draw(st.integers(1, n))
    sizes = [(draw(st.integers(1, 50)), draw(st.integers(1, 12)), draw(st.integers(0, 1))) for _ in range(contents)]
    hashed = draw(st.booleans())
    size = draw(st.sampled_from([block_size, 2 * block_size, 8]))
    rows = []
    for i in range(n):
        content = draw(st.integers(0, contents - 1))
        prompt, output, family = sizes[content]
        row: dict[str, Any] = {
            "call_id": i,
            "content_id": content,
            "arrival_s": arrivals[i],
            "prompt_tokens": prompt,
            "output_tokens": output,
            "max_tokens": draw(st.sampled_from([None, output, output + 9])),
            "priority": draw(st.integers(0, 2)),
            "tenant": draw(st.sampled_from(["a", "b", None])),
            "stream": draw(st.sampled_from([True, False, None])),
            "user_cancel_s": draw(st.none() | ROUND),
            "user_cancel_tokens": draw(st.sampled_from([None, None, 1, 2, 5])),
            "idempotency_key": draw(st.sampled_from([None, None, "k", "m"])),
            "previous_call_id": draw(st.none() | st.none() | st.integers(0, i)),
            "think_time_s": draw(st.none() | ROUND),
            "session_id": draw(st.sampled_from(["x", "y", "z", None])),
        }
        if hashed:
            shared = min(2, prompt // size)
            own = [1000 * (content + 1) + j for j in range(shared, -(-prompt // size))]
            row["block_hashes"] = [10 * (family + 1) + j for j in range(shared)] + own
            row["hash_block_tokens"] = size
        rows.append(row)
    return rows


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Everything at once."""
    engine = draw(engines())
    return Scenario(
        calls=draw(call_rows(engine.block_size)),
        policy=draw(policies()),
        profile=Profile(
            name="drawn",
            engine=engine,
            step_time=draw(step_times),
            overheads={engine.mode: Overhead(step_s=draw(ROUND), sequence_s=draw(st.sampled_from([0.0, 0.001])))},
            api_server_s=draw(st.sampled_from([0.0, 0.0, 0.004])),
        ),
        fleet=Fleet(replicas=draw(st.sampled_from([1, 1, 2, 3]))),
        seed=draw(st.integers(0, 3)),
    )
