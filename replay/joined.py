"""What an ingest says of how logs were merged and attempts joined, in lines for a person."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from replay.ingest.report import Merged, Report
from trace_schema.fold import Departures, Example, FoldAccount, Try

WIDTH = 118
WAYS = {
    "by_id": "by id",
    "by_trace": "by trace id",
    "by_time": "by time",
    "by_nearest": "to the nearest of several",
    "by_chain": "as its gateway's own retries",
}


def joined_lines(report: Report) -> list[str]:
    """Which logs were merged, how many calls were joined and by which rule, who left, and what lengths are guesses."""
    text = [line for merged in report.merged for line in merged_lines(merged)]
    fold = report.fold
    if fold is None:
        return text
    return text + rule_lines(fold) + departure_lines(fold.departures) + length_lines(fold)


def merged_lines(merged: Merged) -> list[str]:
    """What became of a log that was merged into another."""
    ways = ", ".join(f"{getattr(merged, way):,} {words}" for way, words in WAYS.items() if getattr(merged, way))
    if merged.set_aside:
        return [
            f"merged          nothing: {merged.by_time:,} of {merged.requests:,} requests of the {merged.into} log "
            f"could be paired with one of {merged.rows:,} of the {merged.log} log, which is read alone"
        ]
    ways = ways or "none of which belongs to it"
    text = [f"merged          {merged.log} into {merged.into}: {merged.rows:,} rows, {ways}"]
    if merged.left_out:
        text.append(f"                {merged.left_out:,} rows belong to no request of the {merged.into} log: left out")
    if merged.added:
        text.append(f"                {merged.added:,} rows are requests of their own")
    if merged.incomplete:
        text.append(f"                {merged.incomplete:,} of {merged.requests:,} requests have no row in it")
    if merged.clock_offset_s:
        text.append(f"                its clock is {merged.clock_offset_s:+,.3f} s off")
    return text


def rule_lines(fold: FoldAccount) -> list[str]:
    """Which rules joined how many attempts."""
    if not fold.joined_calls:
        text = ["joined          no attempts: each is a call of its own"]
    else:
        text = [f"joined          {fold.joined_calls:,} calls have several attempts"]
    for rule in fold.rules:
        kinds = {"certain": rule.certain, "inferred": rule.inferred, "ambiguous": rule.ambiguous}
        sure = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
        text.append(f"                by {rule.name}: {rule.attempts:,} retries of {rule.calls:,} calls ({sure})")
    if fold.unmatched_retries:
        text.append(
            f"                {fold.unmatched_retries:,} attempts say they are retries of what is not in the log"
        )
    if fold.sizes_tell is False:
        text.append("                equal sizes were not believed: too many requests of a caller are equally long")
    return text


def departure_lines(departures: Departures) -> list[str]:
    """What became of attempts whose clients went away."""
    if not (departures.left or departures.timed_out or departures.untold):
        return []
    at = ", ".join(f"{timeout:g} s" for timeout in departures.timeouts_s)
    timed_out = f"; {departures.timed_out:,} cancelled attempts timed out" + (f" (they cluster at {at})" if at else "")
    text = [f"went away       {departures.left:,} users left{timed_out if departures.timed_out else ''}"]
    if departures.untold:
        text.append(
            f"                {departures.untold:,} attempts of which nothing says why, or how long they lasted"
        )
    return text


def length_lines(fold: FoldAccount) -> list[str]:
    """Which lengths nobody counted."""
    text = []
    if fold.estimated_prompts:
        text.append(
            f"lengths         {fold.estimated_prompts:,} prompt lengths are estimates from the bytes of the request"
        )
    if fold.estimated_outputs:
        text.append(
            f"                {fold.estimated_outputs:,} output lengths are estimates from the bytes of the response"
        )
    if fold.unsized_calls:
        text.append(f"left out        {fold.unsized_calls:,} calls, of which nothing says how long their prompt was")
    if fold.outputs_end_at_limit:
        text.append(
            "outputs         every whole response is as long as its max_tokens: so are those that were cut short"
        )
    return text


def note_lines(notes: Sequence[str]) -> list[str]:
    """What a file cannot show."""
    return [line for note in notes for line in wrapped(f"  cannot show: {note}")]


def example_lines(examples: Sequence[Example]) -> list[str]:
    """Calls that were joined."""
    if not examples:
        return []
    lines = [line for example in examples for line in wrapped(example_words(example))]
    return ["", "calls joined, for example", *lines]


def example_words(example: Example) -> str:
    """A call's attempts, each with the pause before it."""
    first, *retries = example.attempts
    text = f"  call {example.call_id}: row {first.row} at {first.arrival_s:.3f} s, {outcome(first)}"
    before = first
    for retry in retries:
        pause = retry.arrival_s - before.arrival_s - (before.e2e_s or 0.0)
        text += f"; {pause:+.2f} s: row {retry.row}, {outcome(retry)} ({retry.certainty}, by {retry.joined_by})"
        before = retry
    return text


def outcome(attempt: Try) -> str:
    """How an attempt ended."""
    return attempt.status if attempt.e2e_s is None else f"{attempt.status} after {attempt.e2e_s:.2f} s"


def wrapped(text: str) -> list[str]:
    """A sentence in lines that fit a page."""
    return textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
