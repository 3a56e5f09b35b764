"""What a log cut short: outputs by an abort, patience by a completion. At replay the rest is drawn from the log itself.

An output that an abort ended was at least as long as what was received; a user who was served would have waited at
least as long as that took, and might have left had the service been slower. Taken as they are, such bounds make calls
too short and users too patient. Kaplan and Meier's estimate (J. Am. Stat. Assoc. 53, 1958) of the law behind whole and
cut observations says how long each would have been, given that it is longer than its bound.

- Outputs are taken to depend on the prompt's length: the estimate is made for calls of about the same. Beyond the
  longest output that was seen whole, where the estimate ends above zero, it goes on as an exponential law that has the
  same survival there (Brown, Hollander and Korwar, 1974). No output is drawn beyond the client's `max_tokens`. A call
  that was cut before anything came, as one that is not streamed is, says nothing of its length: where long outputs are
  cut so, those that were seen whole are the short ones, and so are the draws.
- Patience is estimated from all users. Where the estimate ends above zero, or fewer than `WATCHED_LEAST` users were
  still waiting, nobody was seen to leave later: those who are drawn beyond that stay for ever. Where fewer than
  `LEAVERS_LEAST` left, nothing is drawn.
- A client's timeout is a setting of its client and no draw: announced, or found where the timeouts of a log cluster, in
  which case the calls that were served in time have it already.

Draws are `hash(seed, purpose, call)`: no policy shifts another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Uncensor = Literal["kaplan-meier", "none"]
Floats = npt.NDArray[np.float64]
Truths = npt.NDArray[np.bool_]

DRAW_OUTPUT, DRAW_PATIENCE = 101, 102
"""Purposes of draws; the engine's are smaller."""
BUCKETS_MOST = 8
WHOLE_LEAST = 50
"""Whole outputs from which the law of a bucket of prompt lengths is estimated."""
LEAVERS_LEAST = 5
"""Users who left, from which the law of patience is estimated."""
WATCHED_LEAST = 10
"""Users still waiting, down to whom it is."""
TOKENS_MOST = 2**31 - 1


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn for calls of a trace: counts of calls."""

    outputs: int = 0
    """Outputs that were cut short, and are drawn."""
    outputs_in_tail: int = 0
    """Those of them that are longer than every output seen whole, of prompts of such length."""
    outputs_kept: int = 0
    """Outputs that were cut short, and stay so: the log has no whole one."""
    patience: int = 0
    """Users who did not leave in the log, and are given a moment at which they would."""

    def __add__(self, other: Drawn) -> Drawn:
        return Drawn(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


def in_words(drawn: Drawn) -> list[str]:
    """What a person should know of it."""
    said = []
    if drawn.outputs:
        said.append(
            f"{drawn.outputs:,} outputs were cut short in the log: they are drawn from those that were not "
            "(Kaplan-Meier, by prompt length), given that they are longer; --uncensor none takes what was received"
        )
    if drawn.outputs_in_tail:
        said.append(f"{drawn.outputs_in_tail:,} of them are longer than any that was seen whole: an exponential tail")
    if drawn.outputs_kept:
        said.append(f"{drawn.outputs_kept:,} outputs were cut short in the log, and no whole one is there to draw from")
    if drawn.patience:
        said.append(
            f"users of {drawn.patience:,} calls stayed in the log, and may leave where they wait longer: when, is "
            "drawn from those who left (Kaplan-Meier); --uncensor none has them stay for ever"
        )
    return said


@dataclass(frozen=True, slots=True)
class Survival:
    """An estimated law: at each of `times` (increasing, those of whole observations) it falls to `share`."""

    times: Floats
    share: Floats

    @classmethod
    def estimated(cls, values: Floats, whole: Truths, watched_least: int = 1) -> Survival:
        """Kaplan and Meier's product limit: at each end, times the share of those still watched who did not end then.

        An observation that is cut at a moment was watched at it. Ends of fewer than `watched_least` are not told.
        """
        times, ends = np.unique(values[whole], return_counts=True)
        watched = len(values) - np.searchsorted(np.sort(values), times, side="left")
        told = watched >= watched_least
        return cls(times[told], np.cumprod(1.0 - ends[told] / watched[told], dtype=np.float64))

    def at(self, bound: Floats) -> Floats:
        """The share that is longer than `bound`."""
        return np.concatenate([[1.0], self.share])[np.searchsorted(self.times, bound, side="right")]

    def longer_than(self, bound: Floats, uniform: Floats) -> tuple[Floats, Truths]:
        """(a draw for each bound of what is longer, infinity beyond the law's end; whether it lies there).

        With U uniform in (0, 1): the first moment at which the law has fallen to U times what it is at the bound.
        """
        target = self.at(bound) * uniform
        place = np.searchsorted(-self.share, -target, side="left")
        beyond = place >= len(self.times)
        return np.append(self.times, np.inf)[place], beyond

    def in_tail(self, bound: Floats, uniform: Floats) -> Floats:
        """Draws beyond the law's end, of an exponential law that falls as fast as this one did on its whole way."""
        end, left = self.times[-1], self.share[-1]
        mean = end / -np.log(left)
        return np.asarray(np.maximum(bound, end) - mean * np.log(self.at(bound) * uniform / left))


def uncensored(calls: pa.Table, seed: int) -> tuple[pa.Table, Drawn]:
    """`calls` (schema CALLS) with drawn outputs and patience where the log has bounds, and how many those are.

    A pure function; the calls as they are where nothing is censored.
    """
    calls, outputs = with_outputs(calls, seed)
    calls, patience = with_patience(calls, seed)
    return calls, outputs + patience


def to_draw(parts: Sequence[pa.Table]) -> Drawn:
    """What is drawn for the parts of a trace under the first seed; another has other tails."""
    return sum((uncensored(calls, 0)[1] for calls in parts), Drawn())


def with_outputs(calls: pa.Table, seed: int) -> tuple[pa.Table, Drawn]:
    """`calls` with whole outputs."""
    cut = np.asarray(calls["output_censored"])
    if not cut.any():
        return calls, Drawn()
    if cut.all():
        return calls, Drawn(outputs_kept=int(cut.sum()))
    seen = np.asarray(calls["output_tokens"], dtype=np.float64)
    bound = np.where(cut & (seen <= 1.0), 0.0, seen)  # a call of which nothing was received has one token all the same
    bucket = buckets(np.asarray(calls["prompt_tokens"]), ~cut)
    draws = uniform(seed, DRAW_OUTPUT, np.asarray(calls["call_id"]))
    tokens, tail = seen.copy(), 0
    for number in np.unique(bucket[cut]):
        here = bucket == number
        mine = here & cut
        law = Survival.estimated(bound[here], ~cut[here])
        longer, beyond = law.longer_than(bound[mine], draws[mine])
        if beyond.any():
            longer[beyond] = np.ceil(law.in_tail(bound[mine][beyond], draws[mine][beyond]))
        tokens[mine], tail = longer, tail + int(beyond.sum())
    limit = np.asarray(pc.fill_null(calls["max_tokens"], TOKENS_MOST), dtype=np.float64)
    tokens = np.where(cut, np.maximum(np.minimum(tokens, limit), seen), seen)
    column = pa.array(tokens.astype(np.int64)).cast(calls.schema.field("output_tokens").type)
    return put(calls, "output_tokens", column), Drawn(outputs=int(cut.sum()), outputs_in_tail=tail)


def buckets(prompt: npt.NDArray[np.int32], whole: Truths) -> npt.NDArray[np.int64]:
    """The bucket of each prompt length: as many whole outputs in each, at least `WHOLE_LEAST` where there are two."""
    number = min(max(int(whole.sum()) // WHOLE_LEAST, 1), BUCKETS_MOST)
    edges = np.unique(np.quantile(prompt[whole], np.arange(1, number) / number, method="higher"))
    return np.searchsorted(edges[edges < prompt[whole].max()], prompt, side="left")


def with_patience(calls: pa.Table, seed: int) -> tuple[pa.Table, Drawn]:
    """`calls` in which users who stayed have a moment at which they would have left."""
    left = np.asarray(calls["user_cancel_s"].is_valid())
    unknown = np.asarray(calls["patience_censored"]) & ~left
    if left.sum() < LEAVERS_LEAST or not unknown.any():
        return calls, Drawn()
    waited = np.where(left, as_floats(calls["user_cancel_s"]), watched_for(calls))
    law = Survival.estimated(waited[left | unknown], left[left | unknown], WATCHED_LEAST)
    draws = uniform(seed, DRAW_PATIENCE, np.asarray(calls["call_id"]))
    moments, stays = law.longer_than(waited, draws)
    leaves = np.where(left, waited, np.where(unknown & ~stays, moments, np.inf))
    column = pa.array(leaves, mask=np.isinf(leaves))
    return put(calls, "user_cancel_s", column), Drawn(patience=int((unknown & ~stays).sum()))


def watched_for(calls: pa.Table) -> Floats:
    """How long each user is known to have stayed: until the response, or through a client's timeout; else 0."""
    served = pc.fill_null(calls["observed_e2e_s"], 0.0)
    timed_out = pc.fill_null(pc.equal(calls["observed_status"], "timeout"), False)
    waited = pc.if_else(timed_out, pc.fill_null(calls["client_timeout_s"], 0.0), served)
    return as_floats(waited)


def as_floats(column: pa.ChunkedArray) -> Floats:
    """A column with NaN for null."""
    return np.asarray(pc.fill_null(column, np.nan), dtype=np.float64)


def put(calls: pa.Table, name: str, column: pa.Array) -> pa.Table:
    """The calls with `column` in the place of their own."""
    place = calls.column_names.index(name)
    return calls.set_column(place, calls.schema.field(place), column)


def uniform(seed: int, purpose: int, call: npt.NDArray[np.int64]) -> Floats:
    """A number in (0, 1) for each call, which depends on the arguments alone.

    The engine's draw (`replay.engine.events.draw`) of attempt 0, in the middle of its 2^53 steps.
    """
    golden = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        x = mixed(golden + np.full(len(call), seed, np.int64).astype(np.uint64))
        x = mixed(x + np.uint64(purpose) * golden)
        x = mixed(x + call.astype(np.uint64) * golden)
        x = mixed(x)
    return np.asarray(((x >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)


def mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finalizer."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
