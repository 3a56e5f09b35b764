"""A retry and the attempt that it repeats: who comes into question, and who is taken."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from trace_schema.columns import is_empty
from trace_schema.fold.units import Floats, Ints, Mask, Units, codes_of, numeric

EARLY_S = 0.05
"""A retry may seem to begin so long before its predecessor's end, which is logged later."""
BYTES_APART_MOST = 64.0
"""By how much a retry's request may be longer: its headers count."""
NEAR_MOST = 256
PAUSE_SPREAD = 1.0 / 3.0
"""openai-python draws a pause from the last quarter below its longest: the shortest is a third less."""
Pauses = dict[float, float]
"""The usual pause before a retry, in seconds, by its count."""


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

    def differ(self, head: int, tail: int) -> bool:
        """Whether what is known of both says that they are not the same request."""
        if any(own[head] >= 0 and other[tail] >= 0 and own[head] != other[tail] for own, other in self.told):
            return True
        return self.bytes_apart(head, tail) > BYTES_APART_MOST

    def bytes_apart(self, head: int, tail: int) -> float:
        apart = abs(self.bytes_head[head] - self.bytes_tail[tail])
        return 0.0 if np.isnan(apart) else float(apart)

    def pairs(
        self,
        keys: Ints,
        heads: Mask,
        tails: Mask,
        window_s: tuple[float, float],
        pauses: Pauses | None = None,
    ) -> Iterator[tuple[int, int, bool]]:
        """(head, tail, whether no other tail would have fitted) of equal keys (by attempt), in order of time.

        A head begins at most `window_s` before and after its tail ends; of several, the one is taken whose end lies
        nearest to it, less the pause that is usual for its retry count. Whoever asks marks both as taken before the
        next is asked for.
        """
        pauses = pauses or {}
        for head, near in self.candidates(keys, heads, tails, window_s, pauses):
            fit = [tail for tail in near if self.fits(head, tail)]
            if fit:
                ended = self.units.start[head] - pauses.get(float(self.units.count[head]), 0.0)
                distance = [(self.bytes_apart(head, tail), abs(ended - self.units.end[tail])) for tail in fit]
                yield head, fit[distance.index(min(distance))], len(fit) == 1

    def candidates(
        self, keys: Ints, heads: Mask, tails: Mask, window_s: tuple[float, float], pauses: Pauses
    ) -> Iterator[tuple[int, list[int]]]:
        """Each head that is free, and the tails of its key whose end lies within the window, in order of time.

        No more than `NEAR_MOST` of them, around the usual pause before it: a busy log without callers has thousands.
        """
        units = self.units
        free = np.flatnonzero(tails & ~units.claimed & (keys[units.tail] >= 0))
        asking = np.flatnonzero(heads & (units.before < 0) & (keys[units.head] >= 0))
        asking = asking[np.isin(keys[units.head[asking]], keys[units.tail[free]])]
        asking = asking[np.argsort(units.start[asking], kind="stable")]
        free = free[np.isin(keys[units.tail[free]], keys[units.head[asking]])]
        free = free[np.argsort(units.end[free], kind="stable")]
        by_key: dict[int, tuple[list[float], list[int]]] = {}
        for tail, key in zip(free.tolist(), keys[units.tail[free]].tolist(), strict=True):
            ends, held = by_key.setdefault(key, ([], []))
            ends.append(float(units.end[tail]))
            held.append(tail)
        early, late = window_s
        for head, key in zip(asking.tolist(), keys[units.head[asking]].tolist(), strict=True):
            ends, held = by_key[key]
            start = float(units.start[head])
            low, high = bisect_left(ends, start - late), bisect_right(ends, start + early)
            if high - low > NEAR_MOST:
                middle = bisect_left(ends, start - pauses.get(float(units.count[head]), 0.0))
                low, high = max(low, middle - NEAR_MOST // 2), min(high, middle + NEAR_MOST // 2)
            yield head, held[low:high]

    def pauses(self, keys: Ints, heads: Mask, tails: Mask, window_s: float) -> Pauses:
        """The usual pause before a retry, by its count: where the gaps to all that come into question are densest.

        The right gap is among those of each retry, and the others lie anywhere.
        """
        gaps: dict[float, list[float]] = {}
        for head, near in self.candidates(keys, heads, tails, (EARLY_S, window_s), {}):
            held = gaps.setdefault(float(self.units.count[head]), [])
            held += [self.units.start[head] - self.units.end[t] for t in near if self.fits(head, t)]
        found = {}
        for count, seen in gaps.items():
            values = np.sort(np.maximum(seen, 0.0))
            width = PAUSE_SPREAD * values + EARLY_S
            inside = np.searchsorted(values, values + width, side="right") - np.arange(len(values))
            if len(values):
                densest = int(np.argmax(inside - len(values) * width / window_s))
                found[count] = float(np.median(values[densest : densest + inside[densest]]))
        return found

    def fits(self, head: int, tail: int) -> bool:
        units = self.units
        if units.claimed[tail] or not units.begun[tail] < units.start[head]:
            return False
        told = units.tail_count[tail]
        if units.count[head] > 0 and not np.isnan(told) and told != units.count[head] - 1:
            return False
        return not self.differ(head, tail)


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
