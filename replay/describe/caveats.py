"""What changes the meaning of a replay of a trace: each a sentence that says what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from replay.describe.figures import Description

COARSE_S = 0.5
"""Resolution from which calls of one tick are a burst that nobody sent."""
FEW_CALLS = 100
CENSORED_SHARE, ESTIMATED_SHARE, FAILED_SHARE = 0.05, 0.05, 0.01
"""Shares of the calls from which cut outputs, guessed lengths and failures without retries are worth a word."""


class Caveat(msgspec.Struct, frozen=True):
    """A warning, by a name that programs may look for."""

    name: str
    says: str


def caveats(d: Description) -> list[Caveat]:
    """What to know before a replay of the trace is believed, the weightiest first."""
    found = [*of_the_traffic(d), *of_the_clock(d), *of_the_rows(d), *of_what_is_hidden(d)]
    return [Caveat(name, says) for name, says in found]


def of_the_traffic(d: Description) -> list[tuple[str, str]]:
    """Too little, or nothing that a policy could answer."""
    found = []
    if not (d.waits or d.client.timeouts or d.leavers):
        found.append(
            (
                "nobody_is_impatient",
                "no call has a timeout and no user leaves: policies of retries and cancellation can hardly differ on "
                "it; lay users over it (--synthetic), or give clients (--set client=openai-python)",
            )
        )
    if d.calls < FEW_CALLS:
        found.append(("few_calls", f"{d.calls:,} calls are few: rates of it have wide intervals"))
    return found


def of_the_clock(d: Description) -> list[tuple[str, str]]:
    """Times that are coarser than the traffic."""
    report = d.report
    if report is None or report.time_resolution_s < COARSE_S:
        return []
    tick = f"{report.time_resolution_s:g} s"
    if report.jitter_s:
        return [
            ("calls_were_spread", f"the log's times are {tick} apart: calls of one tick were spread over it by lot")
        ]
    return [
        (
            "coarse_times",
            f"the log's times are {tick} apart: calls of one tick are replayed as a burst; "
            "--jitter-within-resolution spreads them",
        )
    ]


def of_the_rows(d: Description) -> list[tuple[str, str]]:
    """Rows that were dropped, and lengths that nobody counted."""
    report, found = d.report, []
    if report is None:
        return []
    read = sum(file.rows_read for file in report.files)
    dropped = read - sum(file.rows_emitted for file in report.files)
    if dropped:
        reasons = dict.fromkeys(reason for file in report.files for reason in file.dropped)
        found.append(("dropped_rows", f"{dropped:,} of {read:,} rows could not be used: {'; '.join(reasons)}"))
    if report.fold is not None:
        guessed = max(report.fold.estimated_prompts, report.fold.estimated_outputs)
        if guessed > ESTIMATED_SHARE * d.calls:
            found.append(
                ("estimated_lengths", f"the lengths of {guessed:,} calls are estimates: merge an engine's log (--with)")
            )
        if report.fold.unsized_calls:
            unsized = report.fold.unsized_calls
            found.append(
                ("unsized_calls", f"{unsized:,} calls without a length were left out: merge an engine's log (--with)")
            )
    if d.censored_outputs > CENSORED_SHARE * d.calls:
        share = d.censored_outputs / d.calls
        found.append(
            (
                "cut_outputs",
                f"{share:.0%} of the outputs were cut short: a replay draws the rest from the law of the others "
                "(--uncensor none takes them as they are)",
            )
        )
    return found


def of_what_is_hidden(d: Description) -> list[tuple[str, str]]:
    """What a log of its kind cannot show."""
    report, found = d.report, []
    if report is None:
        return []
    if not report.failures_visible:
        found.append(
            (
                "only_successes",
                "no row has failed: what was refused, timed out or was never answered may be missing, "
                "and with it the worst of the load",
            )
        )
    elif not report.aborts_visible:
        found.append(
            ("aborts_invisible", "no abort is told: a user who left looks like one who timed out or was served")
        )
    failed = sum(count for name, count in d.outcomes.items() if name not in ("ok", "unknown"))
    if not report.retries_visible and failed > FAILED_SHARE * d.calls:
        found.append(
            (
                "retries_invisible",
                f"{failed:,} calls failed and no retry is recognised: if clients retried, their retries count as "
                "calls of their own here, and a replay would add more",
            )
        )
    return found
