"""Which attempts are tries of one call: what the log says, and, where it says nothing, what a careful reader would.

The rules, the surest first. Each leaves the rest to the next, and none joins anything to an attempt that succeeded.

1. `retry_group`: the log itself names the call.
2. An idempotency key, or a trace id, that a failed attempt had too.
3. A retry count (x-stainless-retry-count of openai-python and its kin) says that an attempt is a retry, but not of
   what: of the failed attempt of the same caller with the same body or sizes whose count is one less; else, of the
   same caller alone.
4. The same caller, model and body hash, sent shortly after an attempt that failed. A guess: people send a prompt again
   on purpose, too.
5. The same caller, model and sizes, likewise, where sizes tell calls apart: where next to no request follows so upon an
   equal one that was answered, since those are no retries.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trace_schema.columns import is_empty, words
from trace_schema.fold.pairs import EARLY_S, Pairing, Pairs, followed_share
from trace_schema.fold.units import FAILED, Ints, Mask, coarseness, keys_of, units_of

RETRY_WINDOW_S = 9.0
"""From the end of an attempt to its retry: clients wait at most 8 s (openai-python), and the network takes its time."""
RETRY_AFTER_MOST_S = 120.0
"""openai-python obeys a Retry-After of up to so long; only a retry count tells such a retry."""
CHANCE_MOST = 0.02
"""Share of answered requests that may be followed by an equal one before sizes tell nothing."""
ANSWERED_LEAST = 20
"""Answered requests from which that share is known."""
VARIED_SHARE = 0.2
"""Distinct sizes by attempt, where so few are answered that chance is not known; a call has a few attempts."""
CALLER = ("tenant", "client", "session_id")
CONTENTS = ("body_hash", "request_bytes", "prompt_tokens")
"""What tells one request of a caller from another, the surest first."""
LOGGED = "retry group"
"""How attempts are joined that the log joins, unless it says how in `retry_source`."""
JOINED_BY = ["retry_group", "retry_index", "retry_source", "retry_certainty", "idempotency_key", "trace_id", *CALLER,
             "model", *CONTENTS, "max_tokens", "arrival_s", "e2e_s", "status"]  # fmt: skip
"""Columns of ATTEMPTS that are read here."""

Words = npt.NDArray[np.object_]


class JoinRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the user says about joining."""

    retry_window_s: float = RETRY_WINDOW_S
    """A retry begins at most so long after its predecessor ended."""
    infer: bool = True
    """Join by rules 4 and 5 too, and by rule 3 where nothing but the count tells."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The call of each attempt, by a number of no meaning; None where each attempt is a call of its own."""

    call: Ints | None
    source: Words | None = None
    """The rule by which an attempt was joined to the one before it; for those that begin a call it means nothing."""
    certainty: Words | None = None
    sizes_tell: bool | None = None
    """Whether rule 5 was believed; None where there was nothing to be judged."""


def join(attempts: pa.Table, rules: JoinRules) -> Joined:
    """The calls of `attempts` (columns JOINED_BY of ATTEMPTS, any order)."""
    grouped, counted = (not is_empty(attempts[name]) for name in ("retry_group", "retry_index"))
    if not grouped and not counted and not words(attempts["status"]) & set(FAILED):
        return Joined(None)
    failed = np.asarray(pc.is_in(attempts["status"], value_set=pa.array(FAILED)))
    joining = Joining(attempts, failed, rules)
    failed_units = bool(joining.units.failed.any())
    if failed_units:
        joining.by_ids()
    if counted:
        joining.by_count()
    if failed_units and rules.infer:
        joining.by_guess()
    return joining.joined()


class Joining:
    """Units on their way to calls."""

    def __init__(self, attempts: pa.Table, failed: Mask, rules: JoinRules) -> None:
        self.attempts = attempts
        self.units = units_of(attempts, failed)
        self.rules = rules
        self.pairing = Pairing(attempts, self.units)
        self.source: Words = np.full(self.units.number, None, object)
        self.certainty: Words = np.full(self.units.number, None, object)
        self.caller = [name for name in (*CALLER, "model") if not is_empty(attempts[name])]
        self.early_s = max(EARLY_S, coarseness(self.units.end))
        self.sizes_tell: bool | None = None

    def take(self, rule: str, sure: str, keys: Ints, heads: Mask, window_s: tuple[float, float]) -> None:
        """Join those of `heads` that repeat a failed unit of their key (by attempt)."""
        units = self.units
        self.note(rule, sure, self.pairing.pairs(keys[units.head], keys[units.tail], heads, units.failed, window_s))

    def take_counted(self, rule: str, sure: str, keys: Ints, late_s: float) -> None:
        """Join retries by their count: to what has their key, and a count one less, or none, which is as good as 0."""
        units = self.units
        most = int(np.nanmax(units.count, initial=0.0)) + 2
        head_keys, tail_keys = keys[units.head], keys[units.tail]
        counted = np.nan_to_num(units.count).astype(np.int64)
        head_keys = np.where(head_keys < 0, -1, head_keys * most + counted - 1)
        tail_keys = np.where(tail_keys < 0, -1, tail_keys * most + np.nan_to_num(units.tail_count).astype(np.int64))
        # What is known to be repeated failed, whether the log says so or says nothing.
        window_s = (self.rules.retry_window_s, late_s)
        self.note(rule, sure, self.pairing.pairs(head_keys, tail_keys, units.count > 0, ~units.answered, window_s))

    def note(self, rule: str, sure: str, pairs: Pairs) -> None:
        """Remember by which rule pairs were found."""
        self.source[pairs.heads] = rule
        self.certainty[pairs.heads] = np.where(pairs.alone, sure, "ambiguous")

    def by_ids(self) -> None:
        """Rule 2."""
        anyone = np.ones(self.units.number, bool)
        for rule, name, late in (
            ("idempotency key", "idempotency_key", max(self.rules.retry_window_s, RETRY_AFTER_MOST_S)),
            ("trace id", "trace_id", self.rules.retry_window_s),
        ):
            if not is_empty(self.attempts[name]):
                self.take(rule, "certain", keys_of(self.attempts, [name], []), anyone, (self.early_s, late))

    def by_count(self) -> None:
        """Rule 3."""
        window = self.rules.retry_window_s
        contents = [self.content_keys(name) for name in CONTENTS if self.differs(name)]
        for late in (window, max(window, RETRY_AFTER_MOST_S)):
            for keys in contents:
                self.take_counted("retry count", "certain", keys, late)
        if self.rules.infer:
            self.take_counted("retry count alone", "inferred", keys_of(self.attempts, [], self.caller), window)

    def by_guess(self) -> None:
        """Rules 4 and 5. A count of 0 says that no client library tried before; the code around it may have."""
        window = (self.early_s, self.rules.retry_window_s)
        if not is_empty(self.attempts["body_hash"]):
            unmarked = ~(self.units.count > 0)
            self.take("body hash", "inferred", self.content_keys("body_hash"), unmarked, window)
        unmarked = np.isnan(self.units.count)
        if not self.caller or not unmarked.any():
            return
        for name in ("request_bytes", "prompt_tokens"):
            if is_empty(self.attempts[name]):
                continue
            keys = self.content_keys(name)
            share, answered = followed_share(self.units, keys, unmarked, window)
            tell = share <= CHANCE_MOST and (answered >= ANSWERED_LEAST or self.varied(name))
            self.sizes_tell = bool(self.sizes_tell) or tell
            if tell:
                self.take("sizes", "inferred", keys, unmarked, window)

    def differs(self, name: str) -> bool:
        """Whether a column says anything of which request is which."""
        values = len(pc.unique(self.attempts[name].drop_null()))
        return values > 1 or (values == 1 and self.units.number < ANSWERED_LEAST)

    def varied(self, name: str) -> bool:
        """Whether a column differs so much that equal values of one caller are rare."""
        values = len(pc.unique(self.attempts[name]))
        return values >= max(ANSWERED_LEAST, VARIED_SHARE * self.units.number)

    def content_keys(self, name: str) -> Ints:
        """Numbers of equal caller, model and content."""
        beside = [*self.caller, *(["max_tokens"] if name == "prompt_tokens" else [])]
        return keys_of(self.attempts, [name], beside)

    def joined(self) -> Joined:
        """The calls, by attempt."""
        units, attempts = self.units, self.attempts
        if is_empty(attempts["retry_group"]) and not (units.before >= 0).any():
            return Joined(None, sizes_tell=self.sizes_tell)
        is_head = np.zeros(attempts.num_rows, bool)
        is_head[units.head] = True
        logged, sure = (
            np.full(attempts.num_rows, default, object)
            if is_empty(attempts[name])
            else pc.fill_null(attempts[name], default).to_numpy(zero_copy_only=False)
            for name, default in (("retry_source", LOGGED), ("retry_certainty", "certain"))
        )
        return Joined(
            units.roots()[units.of],
            np.where(is_head, self.source[units.of], logged),
            np.where(is_head, self.certainty[units.of], sure),
            self.sizes_tell,
        )
