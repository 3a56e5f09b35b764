"""The figures of `replay describe`: what a trace holds, in numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connectors.synthetic import Added
from replay.describe.caveats import Caveat, caveats
from replay.describe.conversations import Conversations, Names, conversations, names
from replay.describe.episodes import Episode, episodes
from replay.describe.prefixes import Sharing, sharing
from replay.describe.spread import Spread, Windows
from replay.ingest import Report, Sessions, Trace
from replay.phases import Phase
from trace_schema.columns import is_empty
from trace_schema.fold import ObservedClient

WINDOWS_S = (0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)
WINDOWS_MOST = 10_000_000
"""A trace is not cut into more windows of a length."""


class PhaseFigures(msgspec.Struct, frozen=True):
    name: str
    start_s: float
    end_s: float
    calls: int
    calls_per_s: float
    delivered_call_rate: float | None
    """Share of its calls that the log shows as delivered; null where the log shows no outcomes."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of `replay describe`."""

    calls: int
    span_s: float
    attempts: int
    outcomes: dict[str, int]
    attempts_per_call: Spread | None
    prompt_tokens: Spread | None
    output_tokens: Spread | None
    censored_outputs: int
    e2e_s: Spread | None
    ttft_s: Spread | None
    streamed_share: float | None
    """Share of the calls that were streamed, of those of which it is known."""
    leavers: int
    """Calls whose user leaves."""
    waits: int
    """Calls whose client waits for a time that the trace tells."""
    calls_per_s: float
    peak_calls_per_s: dict[str, float]
    """Highest arrival rate in windows of 0.1 s to an hour, not finer than the log's times, and twice in it."""
    dispersion: dict[str, float]
    """Index of dispersion: variance over mean of the arrivals in such windows; 1 for a Poisson process."""
    gap_cv: float | None
    """Standard deviation over mean of the gaps between arrivals; 1 for a Poisson process."""
    repeated_contents: int
    """Calls with the content of an earlier one."""
    sharing: Sharing | None
    conversations: Conversations | None
    names: dict[str, Names]
    episodes: list[Episode]
    episode_rule: str
    phases: list[PhaseFigures]
    phase_rule: str
    client: ObservedClient
    report: Report | None
    added: Added | None
    loop: Sessions | None
    caveats: list[Caveat] = []
    """What changes the meaning of a replay of it."""

    def text(self) -> str:
        """For a person."""
        from replay.describe.text import lines

        return "\n".join(lines(self))


def describe(trace: Trace) -> Description:
    """The figures of a trace."""
    calls = trace.calls
    arrivals = np.asarray(calls["arrival_s"])
    finest = trace.report.time_resolution_s if trace.report else 0.0
    windows = [w for w in WINDOWS_S if finest <= w <= arrivals[-1] / 2 and arrivals[-1] / w <= WINDOWS_MOST]
    binned = {w: Windows.of(arrivals, w) for w in windows}
    found, rule = episodes(calls)
    described = Description(
        calls=calls.num_rows,
        span_s=float(arrivals[-1]),
        attempts=int(pc.sum(calls["observed_attempts"]).as_py()),
        outcomes=outcomes(calls["observed_status"]),
        attempts_per_call=spread(trace, "observed_attempts"),
        prompt_tokens=spread(trace, "prompt_tokens"),
        output_tokens=spread(trace, "output_tokens"),
        censored_outputs=int(pc.sum(calls["output_censored"]).as_py()),
        e2e_s=spread(trace, "observed_e2e_s"),
        ttft_s=spread(trace, "observed_ttft_s"),
        streamed_share=None if is_empty(calls["stream"]) else float(pc.mean(calls["stream"].cast("int8")).as_py()),
        leavers=calls.num_rows - both_null(trace, "user_cancel_s", "user_cancel_tokens"),
        waits=calls.num_rows - calls["client_timeout_s"].null_count,
        calls_per_s=calls.num_rows / max(float(arrivals[-1] - arrivals[0]), 1e-9),
        peak_calls_per_s={f"{w:g}": b.most / w for w, b in binned.items()},
        dispersion={f"{w:g}": b.dispersion for w, b in binned.items()},
        gap_cv=gap_cv(arrivals),
        repeated_contents=repeated(np.asarray(calls["content_id"])),
        sharing=sharing(calls),
        conversations=conversations(calls),
        names=names(calls),
        episodes=found,
        episode_rule=rule,
        phases=[phase_figures(trace, phase) for phase in trace.phases],
        phase_rule=trace.about.phase_rule,
        client=trace.client,
        report=trace.report,
        added=trace.about.added,
        loop=trace.about.sessions,
    )
    return msgspec.structs.replace(described, caveats=caveats(described))


def spread(trace: Trace, name: str) -> Spread | None:
    """The spread of a column where it is known."""
    column = trace.calls[name]
    return None if is_empty(column) else Spread.of(np.asarray(column.drop_null()))


def outcomes(status: pa.ChunkedArray) -> dict[str, int]:
    """How many calls ended how in the log, the most frequent first."""
    if is_empty(status):
        return {"unknown": len(status)}
    counts: Counter[str] = Counter()
    for c in pc.value_counts(status).to_pylist():
        counts[c["values"] or "unknown"] += c["counts"]
    return dict(counts.most_common())


def repeated(contents: npt.NDArray[np.int64]) -> int:
    """Calls with the content of an earlier one."""
    if (contents[1:] > contents[:-1]).all():
        return 0
    return len(contents) - len(np.unique(contents))


def both_null(trace: Trace, one: str, other: str) -> int:
    """Calls that are null in both columns."""
    if is_empty(trace.calls[other]):
        return int(trace.calls[one].null_count)
    return int(pc.sum(pc.and_(pc.is_null(trace.calls[one]), pc.is_null(trace.calls[other]))).as_py())


def gap_cv(arrivals: Any) -> float | None:
    """Coefficient of variation of the gaps between arrivals; None where there are none, or all are 0."""
    gaps = np.diff(arrivals)
    return float(gaps.std() / gaps.mean()) if len(gaps) and gaps.mean() > 0 else None


def delivered_rate(status: pa.ChunkedArray, inside: npt.NDArray[np.bool_]) -> float | None:
    """Share of the calls in a phase that the log shows as delivered; None where it shows no outcomes."""
    if is_empty(status):
        return None
    known = np.asarray(pc.fill_null(pc.not_equal(status, "unknown"), False))[inside]
    ok = np.asarray(pc.fill_null(pc.equal(status, "ok"), False))[inside]
    return float(ok.mean()) if known.any() else None


def phase_figures(trace: Trace, phase: Phase) -> PhaseFigures:
    """Rate and delivery among the calls that arrive in a phase."""
    arrivals = np.asarray(trace.calls["arrival_s"])
    inside = phase.holds(arrivals)
    last = float(arrivals[-1])
    end = last if phase.end_s is None else min(phase.end_s, last)
    rate = delivered_rate(trace.calls["observed_status"], inside)
    seconds = max(end - phase.start_s, 1e-9)
    return PhaseFigures(phase.name, phase.start_s, end, int(inside.sum()), float(inside.sum() / seconds), rate)


def as_dict(description: Description) -> dict[str, Any]:
    """For a program: JSON types only."""
    built: dict[str, Any] = msgspec.to_builtins(description)
    return built
