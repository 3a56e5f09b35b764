"""From attempts to calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trace_schema.calls import CALLS
from trace_schema.check import conform
from trace_schema.columns import is_empty
from trace_schema.fold.account import FoldAccount, account_of
from trace_schema.fold.clients import ObservedClient, common_timeout, observe_client
from trace_schema.fold.groups import Groups, at, having, nullable
from trace_schema.fold.joins import JOINED_BY, JoinRules, join
from trace_schema.fold.leaving import ANNOUNCED_SHARE, told_apart
from trace_schema.fold.sizes import outputs, prompts
from trace_schema.fold.sources import how_joined, prompt_sources, with_calls
from trace_schema.fold.units import Ints, numeric

SAME = ("idempotency_key", "model", "deployment", "tenant", "client", "session_id", "max_tokens", "block_hashes",
        "hash_block_tokens", "stream", "timeout_kind")  # fmt: skip
"""What a call takes from its first attempt."""
FOLDED = list(dict.fromkeys([
    *SAME, *JOINED_BY, "arrival_unix_ns", "ttft_s", "priority", "output_tokens", "received_tokens",
    "client_timeout_s", "gateway_timeout_s", "prompt_token_source", "cancel_reason", "http_status", "response_bytes",
]))  # fmt: skip
"""Columns of ATTEMPTS that `fold` reads."""
KINDS_MOST = 50
"""Announced timeouts that are held against what is seen."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Calls, and what is known of how they came to be."""

    calls: pa.Table
    """Schema CALLS, in order of arrival."""
    client: ObservedClient
    account: FoldAccount
    call: Ints
    """The call of each attempt, in the order in which they were given; -1: left out."""
    attempts: pa.Table | None = None
    """The attempts in order of their calls, with `call_id`, their place in it, and how they were joined."""


def fold(
    attempts: pa.Table,
    rules: JoinRules | None = None,
    bytes_per_token: float | None = None,
    *,
    keep_attempts: bool = False,
) -> Folded:
    """Calls of attempts (schema ATTEMPTS, or its columns FOLDED and the source's file and row).

    A call arrives when its first attempt is sent. Its output is what a whole response holds, where an attempt says so;
    else the most that any attempt received, which is a lower bound (`output_censored`) unless one had it all. Times
    count from the first arrival when the log's clock is absolute, else from the log's own zero. A call of which nothing
    says how long its prompt was is left out. `bytes_per_token` estimates prompts of unknown length from their bytes.
    """
    rules = rules or JoinRules()
    joined = join(attempts, rules)
    groups = Groups(attempts, joined.call)
    given = attempts
    attempts, departures = told_apart(at(attempts.select(FOLDED), groups.order), groups)
    client = observe_client(attempts, groups)
    sizes, estimated = prompts(attempts, groups, bytes_per_token)
    delivering = np.minimum.reduceat(
        np.where(having(attempts, "ok"), np.arange(attempts.num_rows), attempts.num_rows), groups.first
    )
    written = outputs(attempts, groups, delivering < attempts.num_rows, bytes_per_token)
    sized = ~np.isnan(sizes)
    fields = {
        **told(attempts, groups, client, delivering),
        **how_joined(groups, joined),
        "prompt_tokens": pa.array(np.nan_to_num(sizes).astype(np.int64)),
        "prompt_token_source": prompt_sources(attempts, groups, estimated),
        "output_tokens": pa.array(written.tokens),
        "output_censored": pa.array(written.censored),
    }
    table = pa.table(fields)
    table = table if sized.all() else table.filter(pa.array(sized))
    numbered = table.append_column("call_id", pa.array(np.arange(table.num_rows)))
    number = np.where(sized, np.cumsum(sized) - 1, -1)
    call = np.empty(attempts.num_rows, np.int64)
    call[groups.order] = number[groups.call]
    account = account_of(
        attempts,
        given,
        groups,
        number,
        joined,
        rules,
        departures,
        estimated_prompts=int((estimated & sized).sum()),
        unsized_calls=int((~sized).sum()),
        estimated_outputs=int((written.estimated & sized).sum()),
        outputs_end_at_limit=written.limited,
    )
    kept = with_calls(attempts, given, groups, joined, call) if keep_attempts else None
    return Folded(conform(numbered, CALLS), client, account, call, kept)


def told(attempts: pa.Table, groups: Groups, client: ObservedClient, delivering: Ints) -> dict[str, Any]:
    """What attempts in `groups` order say of their calls, but for lengths; `delivering`: the first that succeeded."""
    first = at(attempts, groups.first)
    start, length = numeric(attempts, "arrival_s"), numeric(attempts, "e2e_s")
    absolute = not is_empty(attempts["arrival_unix_ns"])
    origin = float(start.min()) if absolute else 0.0
    delivered = delivering < len(start)
    delivering = np.where(delivered, delivering, 0)
    arrival = start[groups.first]
    left = having(attempts, "cancelled")[groups.last] & ~delivered
    last_status = at(attempts.select(["status"]), groups.last)["status"]
    return {
        "content_id": contents(first),
        "source_call": first["retry_group"],
        "arrival_s": np.maximum(arrival - origin, 0.0),
        "priority": pc.fill_null(first["priority"], 0),
        "user_cancel_s": nullable(start[groups.last] + length[groups.last] - arrival, left),
        "patience_censored": ~left,
        "client_timeout_s": timeouts(attempts, groups, client),
        "observed_attempts": groups.size,
        "observed_status": pc.if_else(pa.array(delivered), "ok", last_status),
        "observed_ttft_s": nullable(numeric(attempts, "ttft_s")[delivering], delivered),
        "observed_e2e_s": nullable((start + length)[delivering] - arrival, delivered),
        **{name: first[name] for name in SAME},
    }


def contents(first: pa.Table) -> Ints:
    """One number for each body hash; calls without one are unlike any other."""
    n = first.num_rows
    if is_empty(first["body_hash"]):
        return np.arange(n)
    codes = np.asarray(pc.fill_null(pc.dictionary_encode(first["body_hash"].combine_chunks()).indices, -1))
    values = np.where(codes >= 0, codes, np.arange(n) + n)
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def timeouts(attempts: pa.Table, groups: Groups, client: ObservedClient) -> pa.Array:
    """How long each call's client waits for an attempt.

    As long as it says, or as its attempts show whose clients say the same but give up sooner (code around a client has
    a timeout of its own); else as the log shows of all. A gateway that tries again by itself is a client, too.
    """
    announced = numeric(attempts, "client_timeout_s")
    waits = announced[groups.first]
    timed_out = having(attempts, "timeout")
    length = numeric(attempts, "e2e_s")
    for value in np.unique(announced[timed_out & ~np.isnan(announced)])[:KINDS_MOST]:
        ended = common_timeout(length[timed_out & (announced == value) & ~np.isnan(length)])
        if ended is not None and ended < ANNOUNCED_SHARE * value:
            shown = client.timeout_s or ended
            waits = np.where(waits == value, shown if ANNOUNCED_SHARE * shown <= ended else ended, waits)
    if client.timeout_s is not None:
        waits = np.where(np.isnan(waits), client.timeout_s, waits)
    gateway = np.fmin.reduceat(numeric(attempts, "gateway_timeout_s"), groups.first)
    waits = np.where(np.isnan(gateway), waits, gateway)
    return pa.array(waits, mask=np.isnan(waits))
