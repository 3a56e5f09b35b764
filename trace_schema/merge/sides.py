"""The two logs of a merge as arrays: requests that the one tells of, and executions that the other knows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trace_schema.fold.sizes import BytesLaw, kinds, learned
from trace_schema.fold.units import FAILED, Floats, Ints, Mask, Units, numeric, units_of

STRAY_SHARE = 0.98
"""Share of the known pairs that a tolerance holds."""
LAG_LEAST_S, LAG_MOST_S = -0.25, 1.0
"""From a gateway's start of a request to an engine's, where no known pair says more."""


@dataclass(slots=True)
class Requests:
    """What `main` tells of, an entry a unit of its attempts."""

    table: pa.Table
    units: Units
    end: Floats
    """NaN: unknown."""
    limit: Floats
    """Tokens; NaN: unknown."""
    prompt: Floats
    size: Floats
    """Bytes of the request."""
    kind: Floats
    """Whether it was to be streamed, as `sizes.kinds` says."""
    left: Mask
    """Its client went away."""
    taken: Mask
    """Some execution belongs to it."""

    @classmethod
    def of(cls, table: pa.Table) -> Requests:
        units = units_of(table, having_failed(table))
        source = np.asarray(table["prompt_token_source"].to_numpy(zero_copy_only=False), object)
        counted = np.where(np.asarray(source == "client_tokenizer"), np.nan, numeric(table, "prompt_tokens"))
        ends = numeric(table, "arrival_s") + numeric(table, "e2e_s")
        return cls(
            table=table,
            units=units,
            end=ends[units.tail],
            limit=most(units, numeric(table, "max_tokens")),
            prompt=most(units, counted),
            size=most(units, numeric(table, "request_bytes")),
            kind=kinds(table)[units.head],
            left=np.asarray(pc.equal(table["status"], "cancelled"))[units.tail],
            taken=np.zeros(units.number, bool),
        )

    @property
    def start(self) -> Floats:
        return self.units.start


@dataclass(slots=True)
class Executions:
    """What `other` knows, an entry a row."""

    table: pa.Table
    start: Floats
    """On its own clock, as are ends."""
    end: Floats
    """NaN: unknown."""
    failed: Mask
    limit: Floats
    prompt: Floats
    owner: Ints
    """The unit of `Requests` that it belongs to; -1: none is known."""

    @classmethod
    def of(cls, table: pa.Table) -> Executions:
        start = numeric(table, "arrival_s")
        return cls(
            table=table,
            start=start,
            end=start + numeric(table, "e2e_s"),
            failed=having_failed(table),
            limit=numeric(table, "max_tokens"),
            prompt=numeric(table, "prompt_tokens"),
            owner=np.full(table.num_rows, -1),
        )


@dataclass(frozen=True, slots=True)
class Fit:
    """What pairs that are known say of those that are not: by how much clocks, starts and sizes differ."""

    offset_s: float
    """The clock of executions less that of requests."""
    lag_s: tuple[float, float]
    """From a request's start to its first execution's, by the clock of requests."""
    usual_lag_s: float
    law: BytesLaw | None
    stray_tokens: float
    """By how much a prompt may differ from what the bytes of its request say."""

    def agrees(self, requests: Requests, unit: int, executions: Executions, row: int) -> bool:
        """Whether nothing that is known of both says that they are not the same request."""
        for own, other in ((requests.limit, executions.limit), (requests.prompt, executions.prompt)):
            if own[unit] != other[row] and not np.isnan(own[unit]) and not np.isnan(other[row]):
                return False
        apart = self.tokens_apart(requests, unit, executions, row)
        return not apart > self.stray_tokens

    def tokens_apart(self, requests: Requests, unit: int, executions: Executions, row: int) -> float:
        """How far an execution's prompt lies from what the request's bytes say; NaN where they say nothing."""
        if self.law is None:
            return float("nan")
        return float(abs(self.law.tokens(requests.size[[unit]], requests.kind[[unit]])[0] - executions.prompt[row]))


def fit_of(requests: Requests, executions: Executions, offset_s: float | None = None) -> Fit:
    """What the pairs that have been found say; `offset_s` where it is known otherwise."""
    rows = np.flatnonzero(executions.owner >= 0)
    owner = executions.owner[rows]
    law = learned(requests.size[owner], executions.prompt[rows], requests.kind[owner])
    stray = 0.0
    if law is not None:
        apart = np.abs(law.tokens(requests.size[owner], requests.kind[owner]) - executions.prompt[rows])
        stray = 1.0 + 2.0 * float(np.nanquantile(apart, STRAY_SHARE))
    offset = clock_offset(requests, executions, rows) if offset_s is None else offset_s
    lags = executions.start[rows] - offset - requests.start[owner]
    lags = lags[(lags > LAG_LEAST_S) & (lags < LAG_MOST_S)]
    if not len(lags):
        return Fit(offset, (LAG_LEAST_S, LAG_MOST_S), 0.0, law, stray)
    low, usual, high = (float(q) for q in np.quantile(lags, [1.0 - STRAY_SHARE, 0.5, STRAY_SHARE]))
    return Fit(offset, (min(low, 0.0) - 0.05, 2.0 * high + 0.1), usual, law, stray)


def clock_offset(requests: Requests, executions: Executions, rows: Ints) -> float:
    """The clock of executions less that of requests, by the ends or by the starts of pairs, whichever agree better.

    A proxy's request ends with its last execution, and one that is tried once starts with its only one.
    """
    owner = executions.owner[rows]
    best, least = 0.0, np.inf
    for own, other in ((requests.start, executions.start), (requests.end, executions.end)):
        apart = other[rows] - own[owner]
        apart = apart[~np.isnan(apart)]
        if len(apart):
            middle = float(np.median(apart))
            spread = float(np.median(np.abs(apart - middle)))
            if spread < least:
                best, least = middle, spread
    # Clocks of one host differ by nothing, and what differs then is the way between the two.
    return 0.0 if abs(best) < LAG_MOST_S / 2.0 else best


def having_failed(table: pa.Table) -> Mask:
    return np.asarray(pc.is_in(table["status"], value_set=pa.array(FAILED)))


def most(units: Units, values: Floats) -> Floats:
    """The largest value of each unit; NaN where none is known."""
    found = np.full(units.number, np.nan)
    np.fmax.at(found, units.of, values)
    return found
