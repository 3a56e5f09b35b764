"""From the table of calls to what the kernel reads of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replay.engine import state as st
from replay.engine.call_records import CallInputs, write_records
from replay.engine.identity import dense, fixed, numbered
from replay.engine.memory import zeros
from replay.engine.paging import TOKENS_MOST
from replay.errors import BadConfig
from replay.policies.knobs import Client, Policy
from replay.profiles.profile import EngineSettings


def column(calls: pa.Table, name: str, missing: float, kind: Any) -> npt.NDArray[Any]:
    """A column of the calls as an array; `missing` where it is absent or null."""
    if name not in calls.column_names:
        return np.full(calls.num_rows, missing, kind)
    return np.asarray(pc.fill_null(calls[name].cast(pa.from_numpy_dtype(np.dtype(kind))), missing), dtype=kind)


def values(calls: pa.Table, name: str, missing: float, kind: Any) -> npt.NDArray[Any]:
    """A column of the calls as compiled code takes it, `missing` where it is null; empty where all of it is."""
    if name not in calls.column_names or calls[name].null_count == calls.num_rows:
        return fixed(np.empty(0, kind))
    return fixed(column(calls, name, missing, kind))


def call_records(
    calls: pa.Table, engine: EngineSettings, following: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[Any]:
    """The calls as the kernel reads them; `following`: the turn that waits for each (see `sessions`)."""
    records = zeros(calls.num_rows, st.CALL)
    given = CallInputs(
        arrival_s=fixed(column(calls, "arrival_s", 0.0, np.float64)),
        prompt_tokens=fixed(column(calls, "prompt_tokens", 0, np.int32)),
        output_tokens=fixed(column(calls, "output_tokens", 1, np.int32)),
        stream=values(calls, "stream", st.UNKNOWN, np.int8),
    )
    longest = min(engine.max_model_len, TOKENS_MOST - 1)
    write_records(given, longest, engine.block_size, engine.num_blocks - 1, records)
    if following is not None:
        records["waits"][following[following != st.NONE]] = st.FOR_ITS_TURN
    return records


def call_limits(calls: pa.Table, client: Client) -> dict[str, npt.NDArray[Any]]:
    """How long clients and users wait: see `limits.py`."""
    of_trace = values(calls, "client_timeout_s", np.inf, np.float64)
    return {
        "timeouts": of_trace if client.timeout_s is None else fixed(timeouts(calls, client)),
        "patiences": values(calls, "user_cancel_s", np.inf, np.float64),
        "leaves_tokens": values(calls, "user_cancel_tokens", 0, np.int32),
    }


def call_extras(
    calls: pa.Table,
    policy: Policy,
    engine: EngineSettings,
    following: npt.NDArray[np.int64],
    think_s: npt.NDArray[np.float64],
) -> npt.NDArray[Any]:
    """What only some policies, engines and traces ask of a call; for `following` and `think_s` see `sessions`.

    Raises BadConfig.
    """
    extras = zeros(calls.num_rows, st.CALL_EXTRA)
    if policy.gateway.coalesce:
        extras["key"] = coalescing_keys(calls, policy.gateway.coalesce_by)
    if policy.gateway.routing == "session":
        extras["session"] = session_numbers(calls)
    if engine.policy == "priority":
        extras["priority"] = column(calls, "priority", 0, np.int64)
    if engine.reserve_share > 0.0:
        prompt, wanted = (column(calls, name, 1, np.int64) for name in ("prompt_tokens", "output_tokens"))
        limit = column(calls, "max_tokens", 0, np.int64)
        extras["reserve"] = np.minimum(np.where(limit > 0, limit, wanted), np.maximum(engine.max_model_len - prompt, 1))
    bucket = budget_buckets(calls, policy)
    if len(bucket):
        extras["bucket"] = bucket
    if policy.client.hedge_after_s is not None:
        extras["hedge"] = st.NONE
    if len(following):
        extras["following"], extras["think"] = following, think_s
    return extras


def session_numbers(calls: pa.Table) -> npt.NDArray[np.int64]:
    """A number for each session; NONE for calls of none."""
    if "session_id" not in calls.column_names:
        return np.full(calls.num_rows, st.NONE, np.int64)
    places = pc.dictionary_encode(calls["session_id"].combine_chunks()).indices
    return np.asarray(pc.fill_null(places, st.NONE), np.int64)


def timeouts(calls: pa.Table, client: Client) -> npt.NDArray[np.float64]:
    """Seconds that each call's client waits for an attempt: the policy's word, else the trace's, else for ever."""
    if client.timeout_s is not None:
        return np.full(calls.num_rows, client.timeout_s)
    return column(calls, "client_timeout_s", np.inf, np.float64)


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
    """The bucket of each call, of which it draws retries or in which it is counted; empty for one. Raises BadConfig."""
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
    return np.empty(0, np.int64)


def sessions(calls: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """For each call, the row of the turn that waits for its end, else NONE; and how long that turn is thought about.

    Both are empty where no turn waits. A turn waits if it names the one before it (an earlier row) and a time to
    think; a call is waited for by one turn.
    """
    before, think = values(calls, "previous_call_id", st.NONE, np.int64), values(calls, "think_time_s", np.nan, float)
    if len(before) == 0 or len(think) == 0:
        return np.empty(0, np.int64), np.empty(0)
    following = np.full(calls.num_rows, st.NONE, np.int64)
    turns = np.flatnonzero((before >= 0) & ~np.isnan(think))
    ids = column(calls, "call_id", 0, np.int64) if "call_id" in calls.column_names else np.arange(calls.num_rows)
    order = np.argsort(ids, kind="stable")
    places = np.searchsorted(ids[order], before[turns]).clip(max=len(ids) - 1)
    rows = order[places]
    known = (ids[rows] == before[turns]) & (rows < turns)
    rows, firsts = np.unique(rows[known], return_index=True)
    following[rows] = turns[known][firsts]
    return following, np.maximum(np.nan_to_num(think), 0.0)
