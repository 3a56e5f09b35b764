"""What folding did, for its report: by which rules attempts were joined, with examples, and what became of the rest."""

from __future__ import annotations

from itertools import chain, zip_longest
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from trace_schema.attempts import CERTAINTIES
from trace_schema.fold.groups import Groups
from trace_schema.fold.joins import Joined, JoinRules, Words
from trace_schema.fold.leaving import Departures
from trace_schema.fold.units import Ints

EXAMPLES_MOST = 10


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule joined."""

    name: str
    calls: int
    """Calls that have a retry by it."""
    attempts: int
    """Retries joined by it: the first attempt of a call is joined to nothing."""
    certain: int
    inferred: int
    ambiguous: int
    """Retries that would have fitted another attempt too."""


class Try(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt of an example."""

    file: str
    row: int
    arrival_s: float
    e2e_s: float | None
    status: str
    joined_by: str | None
    certainty: str | None


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was joined of several attempts."""

    call_id: int
    attempts: list[Try]


class FoldAccount(msgspec.Struct, frozen=True, kw_only=True):
    """How attempts became calls."""

    retry_window_s: float
    inferred: bool
    """Whether joining by guess was allowed."""
    joined_calls: int = 0
    """Calls of more than one attempt."""
    rules: list[Rule] = []
    examples: list[Example] = []
    sizes_tell: bool | None = None
    """Whether equal sizes of a caller's requests were believed to be one request; null: not asked."""
    unmatched_retries: int = 0
    """Attempts that say they are retries, of which no attempt was found that they repeat."""
    departures: Departures = Departures()
    estimated_prompts: int = 0
    """Calls whose prompt length is an estimate."""
    estimated_outputs: int = 0
    """Calls whose output length is an estimate."""
    unsized_calls: int = 0
    """Calls that were left out because nothing says how long their prompt was."""
    outputs_end_at_limit: bool = False
    """Whole responses are as long as their max_tokens, so that those cut short are taken to be, too."""


def account_of(
    attempts: pa.Table,
    places: pa.Table,
    groups: Groups,
    call_ids: Ints,
    joined: Joined,
    rules: JoinRules,
    departures: Departures,
    **more: Any,
) -> FoldAccount:
    """The account of `attempts` in `groups` order, where groups are the calls `call_ids` (-1: left out).

    `places`: the attempts' files and rows, in the log's order.
    """
    told = {
        "retry_window_s": rules.retry_window_s,
        "inferred": rules.infer,
        "sizes_tell": joined.sizes_tell,
        "departures": departures,
        "unmatched_retries": unmatched(attempts, groups),
        **more,
    }
    if joined.source is None or joined.certainty is None or not (groups.size > 1).any():
        return FoldAccount(**told)
    source, certainty = joined.source[groups.order], joined.certainty[groups.order]
    return FoldAccount(
        **told,
        joined_calls=int((groups.size > 1).sum()),
        rules=rules_of(groups, source, certainty),
        examples=examples(attempts, places, groups, call_ids, source, certainty),
    )


def rules_of(groups: Groups, source: Words, certainty: Words) -> list[Rule]:
    """What each rule joined, those of most calls first; `source` and `certainty` in `groups` order."""
    retry = np.flatnonzero(groups.number > 0)
    names, rule = coded(source[retry])
    words, sure = coded(certainty[retry])
    counts = np.bincount(rule * len(words) + sure, minlength=len(names) * len(words)).reshape(len(names), len(words))
    calls = np.bincount(np.unique(groups.call[retry] * len(names) + rule) % len(names), minlength=len(names))
    found = []
    for place in np.argsort(-calls, kind="stable").tolist():
        by = dict(zip(words, counts[place].tolist(), strict=True))
        kinds = {word: by.get(word, 0) for word in CERTAINTIES}
        found.append(Rule(name=names[place], calls=int(calls[place]), attempts=int(counts[place].sum()), **kinds))
    return found


def coded(words: Words) -> tuple[list[str], Ints]:
    """(the distinct words, the place of each one among them)."""
    encoded = pa.array(words, pa.string()).dictionary_encode()
    return encoded.dictionary.to_pylist(), np.asarray(encoded.indices).astype(np.int64)


def unmatched(attempts: pa.Table, groups: Groups) -> int:
    """Calls whose first attempt says that it is a retry."""
    counts = np.asarray(attempts["retry_index"].fill_null(0))
    return int((counts[groups.first] > 0).sum())


def examples(
    attempts: pa.Table, places: pa.Table, groups: Groups, call_ids: Ints, source: Words, certainty: Words
) -> list[Example]:
    """Calls of several attempts, of each rule and certainty in turn."""
    several = np.flatnonzero((groups.size > 1) & (call_ids >= 0))
    second = groups.first[several] + 1
    names, rule = coded(source[second])
    words, sure = coded(certainty[second])
    kind = rule * len(words) + sure
    kinds = [several[kind == one][:EXAMPLES_MOST].tolist() for one in range(len(names) * len(words))]
    turns = chain.from_iterable(zip_longest(*kinds))
    chosen = [call for call in turns if call is not None][:EXAMPLES_MOST]
    return [
        Example(call_id=int(call_ids[call]), attempts=[
            one_try(attempts, places, groups, place, source[place] if n else None, certainty[place] if n else None)
            for n, place in enumerate(range(groups.first[call], groups.last[call] + 1))
        ])
        for call in sorted(chosen)
    ]  # fmt: skip


def one_try(
    attempts: pa.Table, places: pa.Table, groups: Groups, place: int, rule: str | None, certainty: str | None
) -> Try:
    """The attempt at `place` in the order of `groups`."""
    row = int(groups.order[place])
    return Try(
        file=places["source_file"][row].as_py(),
        row=places["source_row"][row].as_py(),
        arrival_s=attempts["arrival_s"][place].as_py(),
        e2e_s=attempts["e2e_s"][place].as_py(),
        status=attempts["status"][place].as_py(),
        joined_by=rule,
        certainty=certainty,
    )
