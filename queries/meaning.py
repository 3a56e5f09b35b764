"""What the tables of `views.sql` hold, in words: rows, units and meaning of columns."""

from __future__ import annotations

from trace_schema.calls import CALLS
from trace_schema.results import RESULTS

ROWS = {
    **{schema.name: schema.row for schema in RESULTS},
    "replays": "one replay: the figures in which policies are compared",
    "observed": "one call as the log saw it",
    "policies": "one policy, in the order of the reports",
    "possible": "the most that any policy could deliver, of all calls and of those of a phase",
    "profiles": "one engine profile",
    "phases": "one phase: before, during or after the overload",
    "run": "the run",
}
"""What one row of each table is."""

EVERYWHERE = {
    "policy": ("name", "policy that was replayed"),
    "profile": ("name", "engine profile that it was replayed on"),
    "fleet": ("name", "engines behind the gateway, such as 8x: eight of them"),
    "seed": ("count", "which replay: another seed has other random waits"),
    "phase": ("name", "before, during or after the overload, by arrival"),
}
ADDED = {
    "calls": {
        "delivered": ("", "its outcome is delivered"),
        "stays": ("", "the trace has no user leave it: such calls are the same under every policy"),
        "latency_s": ("s", "from arrival to the whole response; null: not delivered"),
        "on_time": ("", "delivered within the SLO, by default the client's timeout for one attempt"),
        "counted": ("", "it arrived after the warm-up, and not too close to a cut of the run to have ended"),
    },
    "executions": {
        "attended_ns": ("ns", "GPU time while a client was waiting"),
        "orphan_ns": ("ns", "GPU time while no client was waiting"),
        "useful_ns": ("ns", "of both, what went into a response that was delivered, or a stream that was watched"),
        "abandoned_ns": ("ns", "waste: attended, and its client gave up"),
        "post_cancel_ns": ("ns", "waste: nobody was waiting any more"),
        "duplicate_ns": ("ns", "waste: the call was delivered by another execution"),
        "unresolved_ns": ("ns", "neither: the run ended"),
    },
    "replays": {
        "delivered_call_rate": ("", "share of eligible calls that were delivered"),
        "on_time_rate": ("", "share of eligible calls that were delivered within the SLO"),
        "wasted_compute_frac": ("", "waste / busy"),
        "wasted_gpu_s": ("s", "GPU time that was wasted"),
        "busy_gpu_s": ("s", "GPU time that was spent"),
        "survivor_p95_s": ("s", "latency of calls whose user never leaves, undelivered ones counted as infinite"),
        "attempts": ("count", "attempts that clients sent"),
    },
    "policies": {
        "position": ("count", "its place in reports; the log's own policy is first"),
        "summary": ("", "what it does"),
        "cuts_steps": ("", "an abort gives back what is left of the running step (oracle), which no engine can do"),
    },
    "possible": {
        "cuts_steps": ("", "for policies that do: a little more is possible for them"),
        "phase": ("name", "of the calls that arrived in it; null: of all"),
        "calls": ("count", "eligible calls that figures count"),
        "delivered": ("count", "no policy delivers more of them"),
        "on_time": ("count", "no policy delivers more of them within the SLO"),
    },
    "profiles": {
        "source": ("", "where its step times come from"),
        "error": ("", "how far its step times are off those that were measured"),
        "weakness": ("", "what it is known not to show"),
        "num_blocks": ("blocks", "KV blocks of one replica"),
        "block_size": ("tokens", "tokens of a KV block"),
    },
    "phases": {
        "start_s": ("s", "when it begins"),
        "end_s": ("s", "when it ends; infinite: with the trace"),
    },
    "run": {
        "as_logged": ("name", "policy that the log was recorded under; null: not known"),
        "slo_s": ("s", "a call is on time when delivered so long after its arrival; null: the client's timeout"),
        "until_s": ("s", "when simulations were cut; null: they ended by themselves"),
        "warmup_s": ("s", "calls that arrived before are left out of figures"),
        "seeds": ("count", "replays of each policy on each fleet of each profile"),
        "replays": ("count", "replays that were planned, each part of the trace by itself"),
        "closed_turns": ("count", "calls that come after the turn before has ended, and some time to think"),
        "drawn_outputs": ("count", "calls whose output was cut short in the log, and is drawn"),
        "drawn_outputs_in_tail": ("count", "those of them that are longer than any that was seen whole"),
        "drawn_outputs_kept": ("count", "calls whose output was cut short, with no whole one to draw from"),
        "drawn_patience": ("count", "calls whose user stayed in the log, and is given a moment to leave at"),
    },
}
"""Columns that no schema of `trace_schema` has: (unit, meaning)."""


def meaning(table: str, column: str) -> tuple[str, str]:
    """Unit and meaning of a column of a table; both empty where it is not one of a run's."""
    if column in ADDED.get(table, {}):
        return ADDED[table][column]
    schemas = [CALLS] if table == "observed" else [schema for schema in RESULTS if schema.name == table]
    for field in (field for schema in schemas for field in schema.fields if field.name == column):
        return field.unit, field.doc
    return EVERYWHERE.get(column, ("", "")) if table in ROWS else ("", "")
