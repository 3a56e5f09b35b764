"""A retry and the attempt that it repeats: who comes into question, and who is taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trace_schema.columns import is_empty
from trace_schema.fold.units import Floats, Ints, Mask, Units, codes_of, numeric

EARLY_S = 0.05
"""A retry may seem to begin so long before its predecessor's end, which is logged later."""
BYTES_APART_MOST = 64.0
"""By how much a retry's request may be longer: its headers count."""
NEAR_MOST = 128
"""Tails that are looked at for a head, around the usual pause before it: a busy log without callers has thousands."""
PAUSE_SPREAD = 1.0 / 3.0
"""openai-python draws a pause from the last quarter below its longest: the shortest is a third less."""
PAUSES_LEAST = 5
"""Retries of which the pause is known, from which it is for others."""
SAMPLED = 1000
"""Heads by which the usual pause is found where none is known."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Heads and the tails that they repeat; whether no other would have fitted."""

    heads: Ints
    tails: Ints
    alone: Mask


class Pairing:
    """Finds the failed unit that another one repeats."""

    def __init__(self, attempts: pa.Table, units: Units) -> None:
        self.units = units
        told = [name for name in ("body_hash", "model") if not is_empty(attempts[name])]
        counted = [name for name in ("prompt_tokens", "max_tokens") if not is_empty(attempts[name])]
        columns = [codes_of(attempts[name]) for name in told]
        columns += [np.nan_to_num(numeric(attempts, name), nan=-1.0).astype(np.int64) for name in counted]
        self.told = [(column[units.head], column[units.tail]) for column in columns]
        size = numeric(attempts, "request_bytes")
        self.bytes_head, self.bytes_tail = size[units.head], size[units.tail]

    def pairs(self, head_keys: Ints, tail_keys: Ints, heads: Mask, tails: Mask, window_s: tuple[float, float]) -> Pairs:
        """The tail of equal key (by unit; -1: none) that each head repeats, and that both are now taken.

        A head begins at most `window_s` before and after its tail ends. Those with one tail to choose have it first. Of
        several, the one is taken whose size is nearest, and whose end is, less the pause that is usual for a retry of
        its count.
        """
        units = self.units
        free = np.flatnonzero(tails & ~units.claimed & (tail_keys >= 0))
        asking = np.flatnonzero(heads & (units.before < 0) & (head_keys >= 0))
        free, asking = (
            free[np.isin(tail_keys[free], head_keys[asking])],
            asking[np.isin(head_keys[asking], tail_keys[free])],
        )
        if not len(free) or not len(asking):
            return Pairs(asking[:0], free[:0], np.zeros(0, bool))
        asking = asking[np.argsort(units.start[asking], kind="stable")]
        free = free[np.lexsort((units.end[free], tail_keys[free]))]
        low, high = self.reach(asking, free, head_keys, tail_keys, window_s)
        one = high - low == 1
        first, their = self.only(asking[one], free[low[one]])
        self.take(first, their)
        many = high - low > 1
        more = self.nearest(asking[many], free, low[many], high[many], self.pauses(first, their))
        return Pairs(
            np.concatenate([first, more.heads]),
            np.concatenate([their, more.tails]),
            np.concatenate([np.ones(len(first), bool), more.alone]),
        )

    def reach(
        self, asking: Ints, free: Ints, head_keys: Ints, tail_keys: Ints, window_s: tuple[float, float]
    ) -> tuple[Ints, Ints]:
        """Of each head: the first of its tails within the window, and the one after the last."""
        units = self.units
        early, late = window_s
        key, rank = np.unique(tail_keys[free], return_inverse=True)
        origin = min(float(units.start[asking].min()), float(units.end[free].min()))
        apart = max(float(units.start[asking].max()), float(units.end[free].max())) - origin + early + late + 1.0
        ends = rank * apart + units.end[free] - origin
        starts = np.searchsorted(key, head_keys[asking]) * apart + units.start[asking] - origin
        return np.searchsorted(ends, starts - late), np.searchsorted(ends, starts + early, side="right")

    def only(self, heads: Ints, tails: Ints) -> tuple[Ints, Ints]:
        """The pairs of heads with one tail each that fit; of heads that have the same one, the first."""
        fit = self.fits(heads, tails)
        heads, tails = heads[fit], tails[fit]
        _, place = np.unique(tails, return_index=True)
        place.sort()
        return heads[place], tails[place]

    def nearest(self, heads: Ints, free: Ints, low: Ints, high: Ints, pauses: dict[float, float]) -> Pairs:
        """Head by head, in order of time: the best of the tails that are left."""
        units = self.units
        found: list[tuple[int, int, bool]] = []
        if not pauses and len(heads):
            pauses = self.usual(heads, free, low, high)
        for head, a, b in zip(heads.tolist(), low.tolist(), high.tolist(), strict=True):
            ended = units.start[head] - pauses.get(float(units.count[head]), 0.0)
            near = free[a:b]
            if len(near) > NEAR_MOST:
                middle = int(np.searchsorted(units.end[near], ended))
                near = near[max(middle - NEAR_MOST // 2, 0) : middle + NEAR_MOST // 2]
            near = near[~units.claimed[near]]
            near = near[self.fits(np.full(len(near), head), near)]
            if len(near):
                order = np.lexsort((np.abs(units.end[near] - ended), self.bytes_apart(np.full(len(near), head), near)))
                tail = int(near[order[0]])
                self.take(np.array([head]), np.array([tail]))
                found.append((head, tail, len(near) == 1))
        columns = list(zip(*found, strict=True)) or [(), (), ()]
        return Pairs(np.array(columns[0], np.int64), np.array(columns[1], np.int64), np.array(columns[2], bool))

    def take(self, heads: Ints, tails: Ints) -> None:
        self.units.before[heads] = tails
        self.units.claimed[tails] = True

    def pauses(self, heads: Ints, tails: Ints) -> dict[float, float]:
        """The usual pause before a retry, in seconds, by its count, of pairs that are known."""
        counts = self.units.count[heads]
        gaps = self.units.start[heads] - self.units.end[tails]
        of = {float(c): gaps[counts == c] for c in np.unique(counts[~np.isnan(counts)])}
        return {count: float(np.median(seen)) for count, seen in of.items() if len(seen) >= PAUSES_LEAST}

    def usual(self, heads: Ints, free: Ints, low: Ints, high: Ints) -> dict[float, float]:
        """The usual pause where no pair is known: where the gaps to all that come into question are densest.

        The right gap is among those of each retry, and the others lie anywhere.
        """
        units = self.units
        gaps: dict[float, list[Floats]] = {}
        step = max(len(heads) // SAMPLED, 1)
        for head, a, b in zip(heads[::step].tolist(), low[::step].tolist(), high[::step].tolist(), strict=True):
            near = free[max(a, b - 4 * NEAR_MOST) : b]
            near = near[self.fits(np.full(len(near), head), near)]
            gaps.setdefault(float(units.count[head]), []).append(units.start[head] - units.end[near])
        found = {}
        for count, seen in gaps.items():
            values = np.sort(np.maximum(np.concatenate(seen), 0.0))
            if len(values) and not np.isnan(count):
                width = PAUSE_SPREAD * values + EARLY_S
                inside = np.searchsorted(values, values + width, side="right") - np.arange(len(values))
                densest = int(np.argmax(inside - len(values) * width / max(float(values[-1]), EARLY_S)))
                found[count] = float(np.median(values[densest : densest + inside[densest]]))
        return found

    def fits(self, heads: Ints, tails: Ints) -> Mask:
        """Whether each head may repeat its tail: it began later, and nothing says that they are unequal requests."""
        units = self.units
        fit = units.begun[tails] < units.start[heads]
        for own, other in self.told:
            fit &= (own[heads] < 0) | (other[tails] < 0) | (own[heads] == other[tails])
        return np.asarray(fit & ~(self.bytes_apart(heads, tails) > BYTES_APART_MOST))

    def bytes_apart(self, heads: Ints, tails: Ints) -> Floats:
        """By how much the requests of both are unequally long; 0 where one of them is not known."""
        return np.asarray(np.nan_to_num(np.abs(self.bytes_head[heads] - self.bytes_tail[tails])))


def followed_share(units: Units, keys: Ints, heads: Mask, window_s: tuple[float, float]) -> tuple[float, int]:
    """(the share of answered units that one with an equal key follows within the window, how many are answered)."""
    answered = np.flatnonzero(units.answered & (keys[units.tail] >= 0))
    asking = np.flatnonzero(heads & (units.before < 0) & (keys[units.head] >= 0))
    if not len(answered) or not len(asking):
        return 0.0, len(answered)
    early, late = window_s
    apart = float(units.end.max() - units.start.min()) + early + late + 1.0
    times: Floats = np.sort(units.start[asking] + keys[units.head[asking]] * apart)
    ends = units.end[answered] + keys[units.tail[answered]] * apart
    first = np.searchsorted(times, ends - early)
    found = (first < len(times)) & (times[np.minimum(first, len(times) - 1)] <= ends + late)
    return float(found.mean()), len(answered)
