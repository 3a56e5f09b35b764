"""A description in aligned text."""

from __future__ import annotations

import textwrap

from connectors.synthetic import Added
from replay.describe.conversations import Conversations, Names
from replay.describe.figures import Description
from replay.describe.prefixes import Sharing
from replay.describe.spread import Spread
from replay.ingest import Report, Sessions
from replay.joined import example_lines, joined_lines, note_lines
from trace_schema.fold import ObservedClient

WIDTH = 118


def lines(d: Description) -> list[str]:
    """The description, line by line."""
    text = [*rate_lines(d), "", *length_lines(d), *who_lines(d.names), *sharing_lines(d.sharing, d.repeated_contents)]
    text += conversation_lines(d.conversations)
    text += ["", *phase_lines(d), *episode_lines(d), ""]
    if d.attempts:
        text += client_lines(d.client)
    text += report_lines(d.report) + session_lines(d.loop) + added_lines(d.added)
    text += caveat_lines(d)
    return text + example_lines(d.report.fold.examples if d.report and d.report.fold else [])


def rate_lines(d: Description) -> list[str]:
    """How many calls came, when, and what became of them."""
    text = [f"{d.calls:,} calls in {d.span_s:,.1f} s, {d.calls_per_s:,.2f}/s"]
    if d.attempts:
        text[0] += f", {d.attempts:,} attempts"
        text.append("outcomes        " + ", ".join(f"{name} {count:,}" for name, count in d.outcomes.items()))
    if d.peak_calls_per_s:
        text += [
            "peaks           " + ", ".join(f"{v:,.2f}/s over {w} s" for w, v in d.peak_calls_per_s.items()),
            "dispersion      " + ", ".join(f"{v:,.2f} at {w} s" for w, v in d.dispersion.items()) + "  (1: Poisson)",
        ]
    if d.gap_cv is not None:
        text.append(f"gaps            {d.gap_cv:.2f} standard deviations to the mean  (1: Poisson)")
    users = []
    if d.streamed_share is not None:
        users.append(f"{d.streamed_share:.0%} of the calls are streamed")
    if d.leavers:
        users.append(f"{d.leavers:,} users leave")
    if d.waits:
        users.append(f"{d.waits:,} calls wait for a limited time")
    return [*text, f"users           {', '.join(users)}"] if users else text


def length_lines(d: Description) -> list[str]:
    """Distributions."""
    text = [f"{'':16}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}{'max':>10}"]
    spreads: tuple[tuple[str, Spread | None], ...] = (
        ("prompt tokens", d.prompt_tokens),
        ("output tokens", d.output_tokens),
        ("attempts", d.attempts_per_call if d.attempts else None),
        ("first token s", d.ttft_s),
        ("latency s", d.e2e_s),
    )
    text += [spread_line(label, s) for label, s in spreads if s is not None]
    if d.censored_outputs:
        text.append(f"{d.censored_outputs:,} output lengths are lower bounds: every attempt was cut short")
    return text


def spread_line(label: str, s: Spread) -> str:
    return f"{label:16}" + "".join(f"{v:>10,.4g}" for v in (s.mean, s.p50, s.p90, s.p99, s.max))


def who_lines(found: dict[str, Names]) -> list[str]:
    """The largest models, tenants and clients."""
    text = []
    for kind, known in found.items():
        shown = ", ".join(f"{share.name} {share.calls:,}" for share in known.largest)
        more = f", {known.count - len(known.largest):,} more" if known.count > len(known.largest) else ""
        text += wrapped(f"{kind + 's':16}{shown}{more}")
    return text


def sharing_lines(found: Sharing | None, repeated: int) -> list[str]:
    """What a prefix cache without limit would find."""
    if found is None:
        return [f"contents        {repeated:,} calls have the content of an earlier one"] if repeated else []
    return [
        f"prefixes        {found.reusable_prompt_share:.1%} of the prompt tokens were in an earlier prompt's blocks "
        f"({found.block_tokens or 'some'} tokens a block)",
        f"                {found.calls_with_a_known_prefix:,} calls begin as an earlier one did; the commonest "
        f"beginning has {found.commonest_prefix_calls:,}; {repeated:,} calls repeat an earlier one",
    ]


def conversation_lines(found: Conversations | None) -> list[str]:
    """Sessions."""
    if found is None:
        return []
    gap = "" if found.gap_s is None else f"; {found.gap_s.p50:,.4g} s between two turns (median)"
    return [
        f"sessions        {found.sessions:,} with {found.calls:,} calls: {found.turns.mean:.3g} turns on average, "
        f"{found.turns.max:,.0f} at most{gap}"
    ]


def phase_lines(d: Description) -> list[str]:
    """The phases of the trace, and how they were found."""
    text = [f"{'phase':10}{'from s':>12}{'to s':>12}{'calls':>12}{'calls/s':>10}{'delivered':>11}"]
    for p in d.phases:
        rate = "-" if p.delivered_call_rate is None else f"{p.delivered_call_rate:.3f}"
        text.append(f"{p.name:10}{p.start_s:>12,.1f}{p.end_s:>12,.1f}{p.calls:>12,}{p.calls_per_s:>10.2f}{rate:>11}")
    return [*text, *wrapped(f"  {d.phase_rule}")]


def episode_lines(d: Description) -> list[str]:
    """Where the service was overloaded."""
    if not d.episodes:
        return wrapped(f"no episode of overload: no {d.episode_rule}")
    text = wrapped(f"episodes of overload: {d.episode_rule}")
    for e in d.episodes:
        why = " and ".join(word for word, holds in (("many calls", e.busy), ("few answers", e.failing)) if holds)
        rate = "" if e.delivered_call_rate is None else f", {e.delivered_call_rate:.0%} delivered"
        text.append(f"  {e.start_s:,.0f} to {e.end_s:,.0f} s: {e.calls:,} calls, {e.calls_per_s:,.2f}/s{rate} ({why})")
    return text


def caveat_lines(d: Description) -> list[str]:
    """What to know before a replay is believed."""
    if not d.caveats:
        return []
    return ["", "before you believe a replay of it", *(line for c in d.caveats for line in wrapped(f"  {c.says}"))]


def wrapped(text: str) -> list[str]:
    """A sentence in lines that fit a page."""
    indent = " " * (16 if not text.startswith("  ") else 4)
    return textwrap.wrap(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


def client_lines(client: ObservedClient) -> list[str]:
    """What the log shows of its clients."""
    if client.timeouts == 0 and client.retries == 0:
        return ["clients         no timeout and no retry in the log"]
    known = {
        "timeout": client.timeout_s and f"{client.timeout_s:g} s",
        "attempts at most": client.max_attempts,
        "first wait": client.backoff_base_s and f"{client.backoff_base_s:g} s",
        "each next wait": client.backoff_factor and f"x {client.backoff_factor:g}",
        "jitter": client.backoff_jitter,
    }
    shown = ", ".join(f"{name} {'unknown' if value is None else value}" for name, value in known.items())
    streams = "; streams are never tried again" if client.streams_retried == "never" else ""
    return [
        f"clients         {shown}{streams}",
        f"                (from {client.timeouts:,} timeouts and {client.retries:,} retries)",
    ]


def report_lines(report: Report | None) -> list[str]:
    """What was read, dropped, and what the log cannot show."""
    if report is None:
        return []
    text = []
    for file in report.files:
        sure = "" if file.confidence == 1.0 else f" (guessed, {file.confidence:.0%} sure)"
        text.append(
            f"read            {file.path}: {file.format}{sure}, {file.rows_emitted:,} of {file.rows_read:,} rows"
        )
        for reason, (count, rows) in file.dropped.items():
            text.append(
                f"  dropped {count:,}: {reason} (row {', '.join(map(str, rows))}{', ...' if count > len(rows) else ''})"
            )
        text += note_lines(file.notes)
    text += joined_lines(report)
    hidden = [
        what
        for what, visible in (
            ("aborts", report.aborts_visible),
            ("timeouts", report.timeouts_visible),
            ("failures", report.failures_visible),
            ("retries", report.retries_visible),
        )
        if not visible
    ]
    if hidden:
        text.append(f"not in the log  {', '.join(hidden)}")
    if report.inversions:
        text.append(f"out of order    {report.inversions:,} rows were sent before the row above them")
    if report.time_resolution_s:
        spread = ", within which calls are spread by lot" if report.jitter_s else ""
        text.append(f"time resolution {report.time_resolution_s:g} s{spread}")
    return text


def session_lines(sessions: Sessions | None) -> list[str]:
    """Whether sessions are open or closed loops, where somebody said."""
    return [] if sessions is None else [sessions.text()]


def added_lines(added: Added | None) -> list[str]:
    """What nobody observed."""
    if added is None:
        return []
    head = f"synthetic       {added.what}: made with seed {added.seed}, not observed"
    return [head, *(f"  {sentence}" for sentence in added.says)]
