"""Thresholds: conditions on the figures of a run under which it fails, as a pipeline asks for.

    [POLICY:]FIGURE OP NUMBER

`delivered_call_rate < 99%` fails a run that delivers fewer of its calls. FIGURE is a column of the query `summary`, or
QUERY.COLUMN of any other with its default parameters, of which every row is judged; a row without a value breaches.
Without POLICY the log's own policy is judged: it is the service as it is, and the others are what-ifs, of which some
are meant to be bad. Where the log's own is not known, every policy is judged; `*:` asks for every policy in any case.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from queries import names, run_query, run_sql
from replay.errors import BadConfig, BadInput, UnknownName
from replay.files import write_whole
from replay.report.tables import plain, text
from replay.report.words import percent

NAME = "thresholds.json"
GRAMMAR = "[POLICY:]FIGURE OP NUMBER, such as 'delivered_call_rate < 99%' or 'cancel:recovery.recovery_time_s > 60'"
EVERY = "*"
"""In place of a policy: all of them."""
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
WORDS = re.compile(
    r"(?:(?P<policy>[\w-]+|\*)\s*:\s*)?(?P<figure>\w+(?:\.\w+)?)\s*(?P<op><=|>=|==|!=|<|>)\s*"
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<percent>%?)"
)
CELL = ("policy", "profile", "fleet")
PLACES = ("seed", "start_s", "replica", "attempt", "prompt_tokens_from", "place", "call_id")
"""Columns that tell the rows of a policy apart, besides those that are words."""


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """One condition: the run fails where `query.column` of `policy` stands in relation `op` to `number`."""

    written: str
    policy: str | None
    """None: the log's own, or every one where that is not known; `*`: every one."""
    query: str
    column: str
    op: str
    number: float
    percent: bool

    @property
    def figure(self) -> str:
        """The figure as a person writes it."""
        return self.column if self.query == "summary" else f"{self.query}.{self.column}"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What a threshold found in the rows of one policy on one fleet of one profile."""

    threshold: str
    figure: str
    policy: str | None
    """None where the query is not about policies."""
    profile: str
    fleet: str
    breached: bool
    rows: int
    """Rows that were judged."""
    rows_breached: int
    where: dict[str, Any]
    """Which of the rows is the worst: its words and numbers beside the figures."""
    value: float | None
    """The figure in that row; null where it has none, which breaches, and where it is infinite."""
    sentence: str


def parse(written: str) -> Threshold:
    """A threshold from its words. Raises BadConfig with the grammar."""
    found = WORDS.fullmatch(written.strip())
    if found is None:
        raise BadConfig(f"threshold {written!r}: must be {GRAMMAR}; OP is one of {' '.join(OPERATORS)}")
    query, _, column = found["figure"].rpartition(".")
    share = bool(found["percent"])
    number = float(Decimal(found["number"]) / (100 if share else 1))
    return Threshold(
        written=written.strip(),
        policy=found["policy"],
        query=query or "summary",
        column=column,
        op=found["op"],
        number=number,
        percent=share,
    )


def parse_all(written: Iterable[str]) -> list[Threshold]:
    """Thresholds whose figures exist, known before a run is made. Raises BadConfig and UnknownName."""
    from queries.blank import columns

    thresholds = [parse(words) for words in written]
    for threshold in thresholds:
        if threshold.query not in names():
            raise BadConfig(f"threshold {threshold.written!r}: {UnknownName.of('query', threshold.query, names())}")
    if not thresholds:
        return []
    known = columns(*dict.fromkeys(t.query for t in thresholds))
    for threshold in thresholds:
        check_figure(threshold, known[threshold.query])
    return thresholds


def check_figure(threshold: Threshold, columns: Mapping[str, str]) -> None:
    """Raise BadConfig for a column that the query does not have, or that holds words; name the nearest figures."""
    figures = [name for name, kind in columns.items() if kind not in ("VARCHAR", "BOOLEAN")]
    if threshold.column not in columns:
        valid = figures if threshold.query == "summary" else [f"{threshold.query}.{name}" for name in figures]
        elsewhere = others(threshold) if threshold.query == "summary" else []
        raise BadConfig(
            f"threshold {threshold.written!r}: {UnknownName.of('figure', threshold.figure, [*valid, *elsewhere])}"
        )
    if threshold.column not in figures:
        raise BadConfig(f"threshold {threshold.written!r}: {threshold.figure} is no figure; {', '.join(figures)} are")
    if threshold.policy is not None and "policy" not in columns:
        raise BadConfig(f"threshold {threshold.written!r}: {threshold.query} tells no policies apart")


def others(threshold: Threshold) -> list[str]:
    """Figures of other queries that are called as this one, which summary does not have."""
    from queries.blank import columns

    return [f"{query}.{threshold.column}" for query, held in columns(*names()).items() if threshold.column in held]


def check_policies(thresholds: Iterable[Threshold], policies: Sequence[str]) -> None:
    """Raise BadConfig for a policy that the run does not have."""
    for threshold in thresholds:
        if threshold.policy not in (None, EVERY, *policies):
            raise BadConfig(
                f"threshold {threshold.written!r}: {UnknownName.of('policy', str(threshold.policy), policies)}"
            )


def judge(run: str, thresholds: Sequence[Threshold]) -> list[Judgement]:
    """What each threshold finds in a finished run, the breached ones first. Raises BadConfig and BadInput."""
    if not thresholds:
        return []
    policies = [row["policy"] for row in run_sql(run, "SELECT policy FROM policies ORDER BY position").to_pylist()]
    check_policies(thresholds, policies)
    own = run_sql(run, "SELECT as_logged FROM run")["as_logged"][0].as_py()
    tables = {name: run_query(run, name).to_pylist() for name in dict.fromkeys(t.query for t in thresholds)}
    found = [j for t in thresholds for j in judged(t, tables[t.query], own)]
    return sorted(found, key=lambda j: not j.breached)


def judged(threshold: Threshold, rows: Sequence[Mapping[str, Any]], own: str | None) -> list[Judgement]:
    """One judgement for each policy, profile and fleet among the rows that the threshold is about."""
    policy = own if threshold.policy is None else threshold.policy
    mine = [row for row in rows if policy in (None, EVERY) or row.get("policy", policy) == policy]
    if not mine:
        return [
            judgement(threshold, {"policy": None if policy == EVERY else policy, "profile": "", "fleet": ""}, [], own)
        ]
    groups = groupby(mine, key=lambda row: {key: row.get(key) for key in CELL})
    return [judgement(threshold, cell, list(group), own) for cell, group in groups]


def judgement(
    threshold: Threshold, cell: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], own: str | None
) -> Judgement:
    """What a threshold finds in the rows of one policy on one fleet."""
    values = [None if row[threshold.column] is None else float(row[threshold.column]) for row in rows]
    breaches = [value is None or OPERATORS[threshold.op](value, threshold.number) for value in values]
    worst = max(range(len(rows)), key=lambda k: badness(threshold, values[k], breaches[k]), default=None)
    where = {} if worst is None else place(rows[worst], threshold)
    value = None if worst is None else values[worst]
    return Judgement(
        threshold=threshold.written,
        figure=threshold.figure,
        policy=cell["policy"],
        profile=cell["profile"],
        fleet=cell["fleet"],
        breached=any(breaches),
        rows=len(rows),
        rows_breached=sum(breaches),
        where=where,
        value=plain(value),
        sentence=sentence(threshold, cell, where, value, breaches, own),
    )


def badness(threshold: Threshold, value: float | None, breach: bool) -> tuple[bool, bool, float]:
    """What orders the rows of a threshold: no value is worst, then the farthest beyond the number."""
    if value is None:
        return breach, True, 0.0
    beyond = value - threshold.number
    return breach, False, -beyond if "<" in threshold.op else beyond if ">" in threshold.op else abs(beyond)


def place(row: Mapping[str, Any], threshold: Threshold) -> dict[str, Any]:
    """What tells a row from the others of its policy."""
    return {
        key: value
        for key, value in row.items()
        if key not in CELL and key != threshold.column and (isinstance(value, str) or key in PLACES)
    }


def shown(value: float | None, share: bool) -> str:
    """A value as a sentence has it."""
    if value is None:
        return "none"
    if math.isinf(value):
        return "infinity"
    return percent(value) if share else text(value)


def sentence(
    threshold: Threshold,
    cell: Mapping[str, Any],
    where: Mapping[str, Any],
    value: float | None,
    breaches: list[bool],
    own: str | None,
) -> str:
    """The judgement in words: "delivered_call_rate < 99%: 47% with cancel (the log's own)"."""
    if not breaches:
        return f"{threshold.written}: judged nothing, {threshold.query} has no row of it"
    with_policy = f" with {cell['policy']}" if cell["policy"] is not None else ""
    with_policy += " (the log's own)" if own is not None and own == cell["policy"] else ""
    about = "".join(f", {word if isinstance(word, str) else f'{key} {text(word)}'}" for key, word in where.items())
    said = f"{threshold.written}: {shown(value, threshold.percent)}{with_policy}{about}"
    more = sum(breaches) - 1
    return said + (f", and {more:,} more of {len(breaches):,} rows" if more > 0 else "")


def lines(judgements: Sequence[Judgement]) -> list[str]:
    """The judgements for people: what was breached, then how many held."""
    groups = {(j.profile, j.fleet) for j in judgements if j.profile}
    said = []
    for j in judgements:
        if j.breached or not j.rows:
            group = f" ({j.profile}, {j.fleet})" if len(groups) > 1 and j.profile else ""
            said.append(("BREACHED " if j.breached else "not judged ") + j.sentence + group)
    conditions = {j.threshold for j in judgements}
    held = len(conditions - {j.threshold for j in judgements if j.breached or not j.rows})
    if held:
        every = "the threshold held" if held == 1 else f"all {held} thresholds held"
        said.append(f"{held} of {len(conditions)} thresholds held" if said else every)
    return said


def save(run: str, judgements: Sequence[Judgement]) -> None:
    """Write the judgements into the run directory, in place of earlier ones. Raises BadConfig when it cannot."""
    if not judgements:
        (Path(run) / NAME).unlink(missing_ok=True)
        return
    content = json.dumps(msgspec.to_builtins(list(judgements)), indent=1)
    write_whole(Path(run) / NAME, content.encode())


def saved(run: str) -> list[Judgement]:
    """The judgements that a run ended with; none where it had no thresholds. Raises BadInput."""
    path = Path(run) / NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Judgement]) if path.exists() else []
    except (OSError, msgspec.DecodeError) as error:
        raise BadInput.at(path, f"cannot be read: {error}") from error
