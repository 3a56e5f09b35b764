"""Traces that nobody observed, in whole or in part: made from nothing, scaled, or with users laid over a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from connectors.synthetic import lay_over, make, scaled_trace
from replay.errors import BadConfig
from replay.ingest.trace import About, Trace
from replay.phases import Phase, around
from trace_schema.check import check_calls

SYNTHETIC = "synthetic:"
"""Begins what stands in a file's place where a trace is made from nothing: synthetic:overload."""


def made_trace(path: str, options: Mapping[str, Any] | None = None) -> Trace:
    """The trace that synthetic:WORKLOAD names. Raises UnknownName and BadConfig."""
    name = path.removeprefix(SYNTHETIC)
    made = make(name, options)
    if made.overload_s is None:
        phases, rule = [Phase("all", 0.0)], f"{path} is made without an overload"
    else:
        phases, rule = around(*made.overload_s), f"{path} is made with this overload"
    return Trace(check_calls(made.calls), About(phases=phases, phase_rule=rule, added=made.added))


def lay_users(trace: Trace, options: Mapping[str, Any]) -> Trace:
    """`trace` with users laid over it: who leaves and when, how long clients wait; options as in docs/synthetic.md.

    Arrivals, lengths and everything else stay as they are. Raises BadConfig, also when the trace shows users already.
    """
    calls, added = lay_over(trace.calls, trace.client, options)
    return Trace(check_calls(calls), msgspec.structs.replace(trace.about, added=added))


def scale_trace(trace: Trace, options: Mapping[str, Any]) -> Trace:
    """`trace` with more or fewer sessions, or longer or shorter calls; options as in docs/synthetic.md.

    Raises BadConfig.
    """
    calls, added = scaled_trace(trace.calls, options, trace.about.added)
    factor = float(added.scales[-1].get("stretch", 1.0))
    phases = [
        Phase(p.name, factor * p.start_s, None if p.end_s is None else factor * p.end_s) for p in trace.about.phases
    ]
    return Trace(check_calls(calls), msgspec.structs.replace(trace.about, added=added, phases=phases))


def refuse_beside_synthetic(paths: Sequence[str], others: Mapping[str, Any]) -> None:
    """Raises BadConfig for what cannot stand beside a trace that is made from nothing."""
    path = next(path for path in paths if path.startswith(SYNTHETIC))
    if len(paths) > 1:
        raise BadConfig(f"{path} is a trace of its own: it cannot be read together with others")
    given = [name for name, value in others.items() if value]
    if given:
        hint = "say users with --option too" if given == ["synthetic"] else "it is no file"
        raise BadConfig(f"{path} takes no --{given[0]}: {hint}")
