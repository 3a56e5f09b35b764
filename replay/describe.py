"""What a trace holds, for a person and for a program."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from connectors.synthetic import Added
from replay.ingest import Report, Sessions, Trace
from replay.joined import example_lines, joined_lines, note_lines
from replay.phases import Phase
from trace_schema.fold import ObservedClient

Floats = npt.NDArray[np.float64]


class Spread(msgspec.Struct, frozen=True):
    """A distribution in five numbers."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Floats) -> Spread | None:
        """The spread of the values that are numbers; None when none is."""
        values = values[~np.isnan(values)]
        if not len(values):
            return None
        p50, p90, p99 = (float(q) for q in np.quantile(values, [0.5, 0.9, 0.99]))
        return cls(float(values.mean()), p50, p90, p99, float(values.max()))


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
    peak_calls_per_s: dict[str, float]
    """Highest arrival rate in windows of 1, 10, 60 and 600 s, not finer than the log's times, and twice in it."""
    dispersion: dict[str, float]
    """Variance over mean of the arrivals in such windows: 1 for a Poisson process."""
    phases: list[PhaseFigures]
    phase_rule: str
    client: ObservedClient
    report: Report | None
    added: Added | None
    loop: Sessions | None

    def text(self) -> str:
        """For a person."""
        return "\n".join(lines(self))


class Windows(msgspec.Struct, frozen=True):
    """The arrivals in each window, of which most may be empty in a long trace."""

    most: int
    dispersion: float

    @classmethod
    def of(cls, arrivals: Floats, window_s: float) -> Windows:
        windows = (arrivals / window_s).astype(np.int64)
        counts = np.diff(np.flatnonzero(np.diff(windows, prepend=-1, append=windows[-1] + 1)))
        mean = len(arrivals) / (int(windows[-1]) + 1)
        variance = float((counts.astype(np.float64) ** 2).sum()) / (int(windows[-1]) + 1) - mean**2
        return cls(int(counts.max()), variance / mean)


def describe(trace: Trace) -> Description:
    """The figures of a trace."""
    calls = trace.calls
    arrivals = np.asarray(calls["arrival_s"])
    status = calls["observed_status"]
    counts = pc.value_counts(pc.fill_null(status, "unknown")).to_pylist()
    finest = trace.report.time_resolution_s if trace.report else 0.0
    windows = [w for w in (1.0, 10.0, 60.0, 600.0) if finest <= w <= arrivals[-1] / 2]
    binned = {w: Windows.of(arrivals, w) for w in windows}
    return Description(
        calls=calls.num_rows,
        span_s=float(arrivals[-1]),
        attempts=int(np.asarray(calls["observed_attempts"]).sum()),
        outcomes={c["values"]: c["counts"] for c in sorted(counts, key=lambda c: -c["counts"])},
        attempts_per_call=spread(trace, "observed_attempts"),
        prompt_tokens=spread(trace, "prompt_tokens"),
        output_tokens=spread(trace, "output_tokens"),
        censored_outputs=int(np.asarray(calls["output_censored"]).sum()),
        e2e_s=spread(trace, "observed_e2e_s"),
        peak_calls_per_s={f"{w:g}": b.most / w for w, b in binned.items()},
        dispersion={f"{w:g}": b.dispersion for w, b in binned.items()},
        phases=[phase_figures(trace, phase) for phase in trace.phases],
        phase_rule=trace.about.phase_rule,
        client=trace.client,
        report=trace.report,
        added=trace.about.added,
        loop=trace.about.sessions,
    )


def spread(trace: Trace, name: str) -> Spread | None:
    return Spread.of(np.asarray(trace.calls[name].cast("double").fill_null(np.nan)))


def phase_figures(trace: Trace, phase: Phase) -> PhaseFigures:
    """Rate and delivery among the calls that arrive in a phase."""
    arrivals = np.asarray(trace.calls["arrival_s"])
    inside = phase.holds(arrivals)
    last = float(arrivals[-1])
    end = last if phase.end_s is None else min(phase.end_s, last)
    status = trace.calls["observed_status"].to_numpy(zero_copy_only=False)[inside]
    known = sum(s not in (None, "unknown") for s in status)
    rate = float(np.mean(status == "ok")) if known else None
    seconds = max(end - phase.start_s, 1e-9)
    return PhaseFigures(phase.name, phase.start_s, end, int(inside.sum()), float(inside.sum() / seconds), rate)


def lines(d: Description) -> list[str]:
    """The description as aligned text."""
    text = [f"{d.calls:,} calls in {d.span_s:,.1f} s"]
    if d.attempts:
        text[0] += f", {d.attempts:,} attempts"
        text.append("outcomes        " + ", ".join(f"{name} {count:,}" for name, count in d.outcomes.items()))
    if d.peak_calls_per_s:
        text += [
            "rate            " + ", ".join(f"peak {v:.2f}/s over {w} s" for w, v in d.peak_calls_per_s.items()),
            "burstiness      " + ", ".join(f"{v:.2f} at {w} s" for w, v in d.dispersion.items()) + "  (1: Poisson)",
        ]
    text += [
        "",
        f"{'':16}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}{'max':>10}",
    ]
    for label, s in (
        ("prompt tokens", d.prompt_tokens),
        ("output tokens", d.output_tokens),
        ("attempts", d.attempts_per_call if d.attempts else None),
        ("latency s", d.e2e_s),
    ):
        if s is not None:
            text.append(f"{label:16}" + "".join(f"{v:>10,.4g}" for v in (s.mean, s.p50, s.p90, s.p99, s.max)))
    if d.censored_outputs:
        text.append(f"{d.censored_outputs:,} output lengths are lower bounds: every attempt was cut short")
    text += ["", f"{'phase':10}{'from s':>10}{'to s':>10}{'calls':>10}{'calls/s':>10}{'delivered':>11}"]
    for p in d.phases:
        rate = "-" if p.delivered_call_rate is None else f"{p.delivered_call_rate:.3f}"
        text.append(f"{p.name:10}{p.start_s:>10.1f}{p.end_s:>10.1f}{p.calls:>10,}{p.calls_per_s:>10.2f}{rate:>11}")
    text += [f"  {d.phase_rule}", ""]
    if d.attempts:
        text += client_lines(d.client)
    examples = d.report.fold.examples if d.report and d.report.fold else []
    return text + report_lines(d.report) + session_lines(d.loop) + added_lines(d.added) + example_lines(examples)


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
    return [
        f"clients         {shown}",
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


def as_dict(description: Description) -> dict[str, Any]:
    """For a program: JSON types only."""
    built: dict[str, Any] = msgspec.to_builtins(description)
    return built
