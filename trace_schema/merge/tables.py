"""The attempts that a merge makes: a request's, with what its execution knows, or one for each try of a proxy's own."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trace_schema.columns import is_empty
from trace_schema.fold.units import Floats, Ints, Mask, numeric
from trace_schema.merge.sides import Executions, Fit, Requests

ENGINE_FIRST = ("prompt_tokens", "output_tokens", "received_tokens", "max_tokens", "cached_prompt_tokens",
                "block_hashes", "hash_block_tokens")  # fmt: skip
"""What an engine counted goes before what a gateway was told, or made up."""
GATEWAY_FIRST = ("priority", "stream", "model", "deployment", "session_id", "tenant", "body_hash")
EARLY_S = 0.05
"""Executions of one request that begin so long before another ends run beside it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows of the merged table: a row of each log, and what of them is changed."""

    request: Ints
    """Row of the requests' table."""
    execution: Ints
    """Row of the executions' table; -1: none."""
    arrival_s: Floats
    e2e_s: Floats
    status: npt.NDArray[np.object_]
    cancel_reason: npt.NDArray[np.object_]
    retry_group: npt.NDArray[np.object_]
    beside: int
    """Executions that ran beside others of their request, whose tokens are counted with theirs."""


class Planner:
    """Makes the rows of the merged table, unit by unit."""

    def __init__(self, requests: Requests, executions: Executions, fit: Fit) -> None:
        self.requests, self.executions, self.fit = requests, executions, fit
        table = requests.table
        self.start, self.length = numeric(table, "arrival_s"), numeric(table, "e2e_s")
        self.status = table["status"].to_pylist()
        self.reason = table["cancel_reason"].to_pylist()
        self.group = table["retry_group"].to_pylist()
        self.rows: list[tuple[int, int, float, float, str, str | None, str | None]] = []
        self.beside = 0

    def plan(self) -> Plan:
        """All rows, in the order of the requests' log."""
        units, owner = self.requests.units, self.executions.owner
        belongs = np.flatnonzero(owner >= 0)
        rows, tries = np.bincount(units.of, minlength=units.number), np.bincount(owner[belongs], minlength=units.number)
        simple = (rows == 1) & (tries <= 1)
        own = np.full(units.number, -1)
        own[owner[belongs]] = belongs
        pairs = zip(units.head[simple].tolist(), own[simple].tolist(), strict=True)
        alone = [(r, x, self.start[r], self.length[r], self.status[r], self.reason[r], self.group[r]) for r, x in pairs]
        self.add_others(~simple)
        found = sorted([*alone, *self.rows], key=operator.itemgetter(0, 2))
        request, execution, arrival, length, status, reason, group = zip(*found, strict=True)
        return Plan(
            np.array(request, np.int64),
            np.array(execution, np.int64),
            np.array(arrival, np.float64),
            np.array(length, np.float64),
            np.array(status, object),
            np.array(reason, object),
            np.array(group, object),
            self.beside,
        )

    def add_others(self, which: Mask) -> None:
        """The rows of units of several attempts, or of several executions."""
        held: dict[int, list[int]] = {}
        of: dict[int, list[int]] = {}
        owner, unit = self.executions.owner, self.requests.units.of
        for row in np.flatnonzero((owner >= 0) & which[owner]).tolist():
            held.setdefault(int(owner[row]), []).append(row)
        for place in np.flatnonzero(which[unit]).tolist():
            of.setdefault(int(unit[place]), []).append(place)
        for number, places in of.items():
            places.sort(key=self.start.__getitem__)
            tries = sorted(held.get(number, []), key=self.executions.start.__getitem__)
            self.add(places, one_after_another(self, tries))

    def add(self, places: list[int], tries: list[int]) -> None:
        """A unit's rows: its own, or one for each execution where those are more."""
        if len(tries) > len(places):
            self.add_tries(places, tries)
            return
        waiting = list(tries)
        for n, place in enumerate(places):
            ended = self.start[place] + self.length[place]
            last = n == len(places) - 1
            own = [t for t in waiting if last or not self.executions.start[t] - self.fit.offset_s > ended]
            execution = own[0] if own else -1
            if own:
                waiting.remove(execution)
            self.rows.append((place, execution, self.start[place], self.length[place], self.status[place],
                              self.reason[place], self.group[place]))  # fmt: skip

    def add_tries(self, places: list[int], tries: list[int]) -> None:
        """Each execution as a try: those before the last failed, and the last ended as the request did."""
        last = places[-1]
        group = self.group[last] or f"request {last}"
        failures = [self.status[p] for p in places if self.status[p] in ("timeout", "error", "rejected")]
        start, end = self.start[places[0]], self.start[last] + self.length[last]
        arrival_least = -np.inf
        for n, execution in enumerate(tries):
            began = self.executions.start[execution] - self.fit.offset_s
            ended = self.executions.end[execution] - self.fit.offset_s
            arrival = start if n == 0 else max(began - self.fit.usual_lag_s, arrival_least)
            arrival_least = ended
            if n < len(tries) - 1:
                status, reason = (failures or ["timeout"])[0], "gateway_timeout"
            else:
                status, reason = self.status[last], self.reason[last]
                ended = end if end >= began and status in ("ok", "cancelled") else ended
            self.rows.append((last, execution, arrival, ended - arrival, status, reason, group))


def one_after_another(planner: Planner, rows: list[int]) -> list[int]:
    """Executions of one request without those that run beside another: n answers at once are one try."""
    kept: list[int] = []
    until = -np.inf
    for row in rows:
        if planner.executions.start[row] >= until - EARLY_S:
            kept.append(row)
        else:
            planner.beside += 1
        end = planner.executions.end[row]
        until = max(until, planner.executions.start[row] if np.isnan(end) else end)
    return kept


def merged_table(requests: Requests, executions: Executions, plan: Plan) -> pa.Table:
    """The attempts of `plan`."""
    table = requests.table.take(pa.array(plan.request))
    known = plan.execution >= 0
    other = executions.table.take(pa.array(plan.execution, mask=~known))
    count = len(plan.request)
    shift = pa.array(np.round((plan.arrival_s - numeric(table, "arrival_s")) * 1e9).astype(np.int64))
    status, reason = outcomes(table, other, plan)
    columns = {
        "arrival_s": pa.array(plan.arrival_s),
        "arrival_unix_ns": pc.add(table["arrival_unix_ns"], shift),
        "e2e_s": pa.array(plan.e2e_s, mask=np.isnan(plan.e2e_s)),
        "status": status,
        "cancel_reason": reason,
        "retry_group": pa.array(plan.retry_group, pa.string()),
        "engine_request_id": pc.coalesce(other["source_request_id"], table["engine_request_id"]),
        "prompt_token_source": pc.if_else(other["prompt_tokens"].is_valid(), "engine", table["prompt_token_source"]),
        "ttft_s": ttft(table, other, plan),
        **{name: either(other[name], table[name]) for name in ENGINE_FIRST if name in table.column_names},
        **{name: either(table[name], other[name]) for name in GATEWAY_FIRST if name in table.column_names},
    }  # fmt: skip
    for name, values in columns.items():
        place = table.column_names.index(name)
        table = table.set_column(place, table.schema.field(name), values)
    new = ~np.isin(np.arange(count), np.unique(plan.request, return_index=True)[1])
    return table if not new.any() else with_source(table, new)


def outcomes(table: pa.Table, other: pa.Table, plan: Plan) -> tuple[pa.Array, pa.Array]:
    """(status, cancel_reason): a gateway's, else an engine's.

    A gateway that does not say whether a response was complete takes a stream whose client left for one that was
    served; its engine was told to abort it.
    """
    status, reason = pa.array(plan.status, pa.string()), pa.array(plan.cancel_reason, pa.string())
    unsaid = pc.equal(status, "unknown")
    cut = pc.and_(pc.equal(status, "ok"), pc.equal(pc.fill_null(other["status"], "unknown"), "cancelled"))
    if "finish_reason" in table.column_names:
        cut = pc.and_(cut, table["finish_reason"].is_null())
    status = pc.if_else(cut, "cancelled", pc.if_else(unsaid, pc.fill_null(other["status"], "unknown"), status))
    return status, pc.if_else(cut, "client_disconnect", reason)


def either(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.ChunkedArray:
    """The first where it says something, else the second."""
    if not first.null_count or is_empty(second):
        return first
    return second if is_empty(first) else pc.if_else(first.is_valid(), first, second)


def with_source(table: pa.Table, new: npt.NDArray[np.bool_]) -> pa.Table:
    """Tries that the engine's log added to a request say so."""
    mask = pa.array(new)
    for name, value in (("retry_source", "gateway's own retries"), ("retry_certainty", "inferred")):
        place = table.column_names.index(name)
        table = table.set_column(place, table.schema.field(name), pc.if_else(mask, value, table[name]))
    return table


def ttft(table: pa.Table, other: pa.Table, plan: Plan) -> pa.ChunkedArray:
    """A gateway's time to first token, else the engine's, from the gateway's start."""
    waited = numeric(other, "arrival_s") - plan.arrival_s
    of_engine = pc.add(other["ttft_s"], pa.array(np.maximum(np.nan_to_num(waited), 0.0)))
    return pc.coalesce(table["ttft_s"], of_engine)


def rest_of(executions: Executions) -> pa.Table:
    """Executions of which no request is known."""
    return executions.table.filter(pa.array(executions.owner < 0))
