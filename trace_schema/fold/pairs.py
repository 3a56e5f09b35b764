"""A retry and the attempt that it repeats: who comes into question, and who is taken."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from trace_schema.columns import is_empty
from trace_schema.fold.units import Floats, Ints, Mask, Units, codes_of, numeric


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

    def differ(self, head: int, tail: int, bytes_apart_most: float) -> bool:
        """Whether what is known of both says that they are not the same request."""
        if any(own[head] >= 0 and other[tail] >= 0 and own[head] != other[tail] for own, other in self.told):
            return True
        return bool(self.bytes_apart(head, tail) > bytes_apart_most)

    def bytes_apart(self, head: int, tail: int) -> float:
        apart = abs(self.bytes_head[head] - self.bytes_tail[tail])
        return 0.0 if np.isnan(apart) else float(apart)

    def pairs(
        self, keys: Ints, heads: Mask, tails: Mask, window_s: tuple[float, float], bytes_apart_most: float = np.inf
    ) -> Iterator[tuple[int, int, bool]]:
        """(head, tail, whether no other tail would have fitted) of equal keys (by attempt), in order of time.

        A head begins at most `window_s` before and after its tail ends. Whoever asks marks both as taken before the
        next one is asked for.
        """
        units = self.units
        open_ = np.flatnonzero(tails & ~units.claimed & (keys[units.tail] >= 0))
        asking = np.flatnonzero(heads & (units.before < 0) & (keys[units.head] >= 0))
        asking = asking[np.isin(keys[units.head[asking]], keys[units.tail[open_]])]
        asking = asking[np.argsort(units.start[asking], kind="stable")]
        open_ = open_[np.isin(keys[units.tail[open_]], keys[units.head[asking]])]
        open_ = open_[np.argsort(units.end[open_], kind="stable")]
        by_key: dict[int, tuple[list[float], list[int]]] = {}
        for tail, key in zip(open_.tolist(), keys[units.tail[open_]].tolist(), strict=True):
            ends, held = by_key.setdefault(key, ([], []))
            ends.append(float(units.end[tail]))
            held.append(tail)
        early, late = window_s
        for head, key in zip(asking.tolist(), keys[units.head[asking]].tolist(), strict=True):
            ends, held = by_key[key]
            start = float(units.start[head])
            near = held[bisect_left(ends, start - late) : bisect_right(ends, start + early)]
            fit = [tail for tail in near if self.fits(head, tail, bytes_apart_most)]
            if fit:
                nearest = min(fit, key=lambda t: (self.bytes_apart(head, t), abs(start - units.end[t])))
                yield head, nearest, len(fit) == 1

    def fits(self, head: int, tail: int, bytes_apart_most: float) -> bool:
        units = self.units
        if units.claimed[tail] or not units.begun[tail] < units.start[head]:
            return False
        told = units.tail_count[tail]
        if units.count[head] > 0 and not np.isnan(told) and told != units.count[head] - 1:
            return False
        return not self.differ(head, tail, bytes_apart_most)


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
