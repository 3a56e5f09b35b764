"""From the arrays of a finished run to the tables of `trace_schema.results`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from replay.engine import state as st
from trace_schema.fields import TableSchema
from trace_schema.results import ATTEMPT_OUTCOMES, CALL_OUTCOMES, EXECUTIONS, REPLICAS, STEPS, TIMELINE

CALL_OUTCOME = ("unresolved", "delivered", "cancelled", "failed", "failed", "failed")
CALL_REASON = (None, None, None, "retries_exhausted", "budget_exhausted", "rejected:too_long")
ATTEMPT_OUTCOME = ("unresolved", "ok", "timeout", "cancelled", "rejected")
ENDED = ("running_at_end", "finished", "aborted", "never_admitted")
FATE = ("lost", "delivered", "user_cancelled_stream", "duplicate", "running_at_end")

Array = npt.NDArray[Any]


def table(schema: TableSchema, **columns: Any) -> pa.Table:
    """A table of `schema`, from arrays by field name; infinity and -1 become null where a field may be null."""
    arrays = []
    for field in schema.fields:
        values = columns[field.name]
        if isinstance(values, pa.Array):
            arrays.append(values.cast(field.type))
            continue
        mask = None
        if field.nullable:
            mask = np.isinf(values) if values.dtype.kind == "f" else values < 0
        arrays.append(pa.array(np.ascontiguousarray(values), mask=mask).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def names(codes: Array, of: Sequence[str | None]) -> pa.Array:
    """Text for small codes."""
    return pa.array(of, pa.string()).take(pa.array(codes.astype(np.int64)))


def whole_ns(fs: Array) -> Array:
    """Femtoseconds to the nearest nanosecond."""
    return (fs + 500_000) // 1_000_000


def call_outcomes(state: st.State, ids: Array, idle_e2e_s: Array) -> pa.Table:
    """CALL_OUTCOMES of the calls numbered `ids`. `idle_e2e_s`: time that each would take on an idle replica."""
    calls = state.calls
    patience = calls["leaves_at"] - calls["arrival"]
    too_long = calls["status"] == st.TOO_LONG
    return table(
        CALL_OUTCOMES,
        call_id=ids,
        arrival_s=calls["arrival"],
        prompt_tokens=calls["prompt"],
        output_tokens=calls["output"],
        client_timeout_s=calls["timeout"],
        user_cancel_s=patience,
        idle_e2e_s=np.where(too_long, np.inf, idle_e2e_s),
        eligible=(patience > idle_e2e_s) & ~too_long,
        outcome=names(calls["status"], CALL_OUTCOME),
        reason=names(calls["status"], CALL_REASON),
        first_token_s=calls["first_token"],
        end_s=calls["end"],
        attempts=calls["attempts"],
        delivered_execution_id=calls["delivered_by"],
    )


def attempt_outcomes(attempts: Array, ids: Array) -> pa.Table:
    """ATTEMPT_OUTCOMES of the calls numbered `ids`."""
    return table(
        ATTEMPT_OUTCOMES,
        attempt_id=np.arange(len(attempts)),
        call_id=ids[attempts["call"]],
        attempt=attempts["number"],
        execution_id=attempts["execution"],
        joined=attempts["joined"].astype(bool),
        start_s=attempts["start"],
        first_token_s=attempts["first_token"],
        end_s=attempts["end"],
        outcome=names(attempts["status"], ATTEMPT_OUTCOME),
    )


def fates(state: st.State, attempts: Array, executions: Array) -> Array:
    """Codes into FATE, first match."""
    n = len(executions)
    fate = np.zeros(n, np.int64)
    alive = executions["status"] <= st.RUNNING
    fate[alive] = FATE.index("running_at_end")
    delivered = (state.calls["status"] == st.DELIVERED)[executions["call"]]
    elsewhere = delivered & (executions["status"] == st.FINISHED)
    fate[elsewhere] = FATE.index("duplicate")
    left = attempts[(attempts["status"] == st.CANCELLED) & (attempts["first_token"] < np.inf)]
    streamed = (state.calls["stream"] == st.STREAMED)[left["call"]]
    fate[left["execution"][streamed]] = FATE.index("user_cancelled_stream")
    fate[attempts["execution"][attempts["status"] == st.OK]] = FATE.index("delivered")
    return fate


def executions_table(state: st.State, attempts: Array, executions: Array, ids: Array) -> pa.Table:
    """EXECUTIONS of the calls numbered `ids`."""
    admitted = executions["ledger"] != st.NO_PAGE
    pages = state.ledgers.take(executions["ledger"])
    status = executions["status"]
    ended = np.select(
        [status == st.FINISHED, (status == st.ABORTED) & admitted, status == st.ABORTED],
        [ENDED.index("finished"), ENDED.index("aborted"), ENDED.index("never_admitted")],
        ENDED.index("running_at_end"),
    )
    prefill = whole_ns(pages["attended_prefill"]), whole_ns(pages["orphan_prefill"])
    computed = np.maximum(pages["computed_prompt"], 1)
    salvaged = (prefill[0] + prefill[1]) * (np.minimum(pages["salvaged_tokens"], computed) / computed)
    return table(
        EXECUTIONS,
        execution_id=np.arange(len(executions)),
        call_id=ids[executions["call"]],
        replica=executions["replica"],
        attempts=executions["attempts"],
        queued_s=executions["queued"],
        admitted_s=executions["admitted"],
        first_output_s=executions["first_output"],
        end_s=executions["end"],
        ended=names(ended, ENDED),
        fate=names(fates(state, attempts, executions), FATE),
        prompt_tokens=executions["prompt"],
        cached_prompt_tokens=pages["cached"],
        computed_prompt_tokens=pages["computed_prompt"],
        computed_output_tokens=executions["outputs"],
        recomputed_tokens=pages["recomputed"],
        preemptions=pages["preemptions"],
        attended_prefill_ns=prefill[0],
        attended_decode_ns=whole_ns(pages["attended_decode"]),
        orphan_prefill_ns=prefill[1],
        orphan_decode_ns=whole_ns(pages["orphan_decode"]),
        recompute_ns=whole_ns(pages["recompute"]),
        poll_ns=whole_ns(pages["poll"]),
        held_slot_ns=whole_ns(pages["held_slot"]),
        marginal_ns=whole_ns(pages["marginal"]),
        kv_block_ns=pages["kv_block"],
        stranded_kv_block_ns=pages["stranded_kv_block"],
        stranded_kv_ns=pages["stranded_kv"],
        salvaged_ns=salvaged.astype(np.int64),
    )


def timeline(samples: Array) -> pa.Table:
    """TIMELINE."""
    return table(
        TIMELINE,
        sample_s=samples["time"],
        replica=samples["replica"],
        running=samples["running"],
        waiting=samples["waiting"],
        used_blocks=samples["used_blocks"],
        busy_ns=samples["busy_ns"],
        computed_prompt_tokens=samples["computed_prompt"],
        computed_output_tokens=samples["computed_output"],
        counter_prompt_tokens=samples["counter_prompt"],
        preemptions=samples["preemptions"],
    )


def replicas_table(state: st.State, end_s: float) -> pa.Table:
    """REPLICAS."""
    replicas = state.replicas
    return table(
        REPLICAS,
        replica=replicas["index"],
        end_s=np.full(len(replicas), end_s),
        steps=replicas["steps"],
        busy_ns=replicas["busy_ns"],
        allocated_blocks=replicas["allocated"],
        released_blocks=replicas["released"],
        counter_prompt_tokens=replicas["counter_prompt"],
        computed_prompt_tokens=replicas["computed_prompt"],
        unfinished=replicas["running"] + replicas["waiting"],
    )


def steps_table(steps: Array) -> pa.Table:
    """STEPS."""
    return table(
        STEPS,
        replica=steps["replica"],
        step=steps["step"],
        scheduled_at_s=steps["scheduled_at"],
        start_s=steps["start"],
        duration_s=steps["duration"],
        prefill_tokens=steps["prefill"],
        decode_tokens=steps["decode"],
        context_tokens=steps["context"],
        running=steps["running"],
        waiting=steps["waiting"],
        free_blocks=steps["free"],
        preempted=steps["preempted"],
    )


def golden_steps(steps: Array) -> pa.Table:
    """The steps of one replica under the names of a recorded schedule."""
    return pa.table(
        {
            "step": steps["step"],
            "scheduled_at": steps["scheduled_at"],
            "start": steps["start"],
            "duration": steps["duration"],
            "prefill_tokens": steps["prefill"].astype(np.int64),
            "decode_tokens": steps["decode"].astype(np.int64),
            "context_tokens": steps["context"],
            "running": steps["running"].astype(np.int64),
            "waiting": steps["waiting"].astype(np.int64),
            "free_blocks": steps["free"],
            "preempted": steps["preempted"].astype(np.int64),
        }
    )


def golden_outcome(state: st.State, requests: Array) -> pa.Table:
    """What became of each request, under the names of a recorded schedule."""
    executions = state.executions[: state.progress["executions"]]
    order = np.argsort(requests, kind="stable")
    executions = executions[order]
    pages = state.ledgers.take(executions["ledger"])

    def instant(name: str) -> pa.Array:
        values = executions[name]
        return pa.array(values, mask=np.isinf(values))

    return pa.table(
        {
            "request": requests[order].astype(np.int64),
            "admitted": instant("admitted"),
            "first_token": instant("first_output"),
            "finished": instant("end"),
            "status": names(executions["status"], (None, None, "length", "abort")),
            "computed_prompt_tokens": pages["computed_prompt"],
            "computed_tokens": pages["computed"],
            "cached_prompt_tokens": pages["cached"].astype(np.int64),
            "preemptions": pages["preemptions"].astype(np.int64),
            "output_tokens": executions["outputs"].astype(np.int64),
        }
    )
