"""The door of the engine: calls and a policy in, what became of them out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from replay.engine import loop, tables
from replay.engine import state as st
from replay.engine.events import ABORT_ARRIVES
from replay.engine.intake import column
from replay.engine.kernel import is_compiled
from replay.engine.memory import counted, release, zeros
from replay.engine.setup import grown, new_state, with_room_for_samples
from replay.errors import BadConfig, BadInput, RunFailed
from replay.policies.knobs import Client, Fleet, Gateway, Policy
from replay.profiles.profile import EngineSettings, Profile, StepTime

EVENTS_PER_SLICE = 2_000_000
"""Events between two looks at progress and interrupts."""
ATTEMPTS_LEAST, ATTEMPTS_PER_CALL = 10_000_000, 100
"""A run with more attempts than both allow is given up: clients that retry without end or wait fill the memory."""

RUN_ALONE = ("call_extras", "execution_extras", "hashes", "privates", "inbox")
"""Large arrays of which the tables need nothing."""
LARGEST = 2**31 - 1
"""Of a time (s) or a number of tokens."""

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Results:
    """What a simulation wrote: tables with the schemas of `trace_schema.results`."""

    calls: pa.Table
    attempts: pa.Table
    executions: pa.Table
    timeline: pa.Table
    replicas: pa.Table
    steps: pa.Table | None = None


def simulate(
    calls: pa.Table,
    policy: Policy,
    profile: Profile | Sequence[Profile],
    fleet: Fleet | None = None,
    seed: int = 0,
    *,
    until_s: float | None = None,
    drain_s: float | None = None,
    timeline_interval_s: float = 1.0,
    steps: bool = False,
    on_progress: Progress | None = None,
) -> Results:
    """Replay `calls` under `policy` on a fleet of `profile`.

    A pure function of its arguments: equal inputs give equal tables.

    Parameters
    ----------
    profile
        That of all replicas, or one for each.
    calls
        Table of `trace_schema.calls.CALLS`, ordered by `arrival_s`; columns that are absent count as null.
    until_s
        Simulated second at which to stop; what has not ended by then is unresolved.
    drain_s
        Stop so many seconds after the last arrival (default: when everything has ended).
    timeline_interval_s
        Seconds between two rows of the timeline of a replica; 0 for none.
    steps
        Keep the table of steps.
    on_progress
        Called now and then with the share of calls that have arrived.

    Raises
    ------
    BadInput
        The calls are empty, unordered, or have sizes or times that cannot be replayed.
    RunFailed
        The run does not end: clients retry for ever, or a replica makes no progress.
    """
    check_calls(calls)
    engines = [profile] * (fleet or Fleet()).size if isinstance(profile, Profile) else list(profile)
    state = new_state(calls, policy, engines, seed, trace=steps)
    until = end_of_run(state.calls["arrival"], until_s, drain_s)
    state.settings["until"] = until
    if timeline_interval_s > 0:
        state.settings["sample_interval"] = timeline_interval_s
        state.progress["next_sample"] = 0.0
        state = with_room_for_samples(state)
    state = run(state, on_progress)
    end = float(state.progress["now"]) if np.isinf(until) else until
    ids = column(calls, "call_id", 0, np.int64) if "call_id" in calls.column_names else np.arange(calls.num_rows)
    return results(state, ids, end, steps=steps)


def check_calls(calls: pa.Table) -> None:
    """Raise BadInput for what the kernel would misread."""
    if calls.num_rows == 0:
        raise BadInput("the trace has no calls")
    for name, least in (("arrival_s", 0.0), ("prompt_tokens", 1), ("output_tokens", 1)):
        values = np.asarray(calls[name])
        if not least <= values.min() <= values.max() <= LARGEST:
            row = int(np.flatnonzero(~((values >= least) & (values <= LARGEST)))[0])
            raise BadInput.at("calls", f"{values[row]:g} is not a value >= {least:g}", row=row + 1, field=name)
    arrivals = np.asarray(calls["arrival_s"])
    in_order = arrivals[1:] >= arrivals[:-1]
    if not in_order.all():
        row = int(np.argmin(in_order)) + 2
        raise BadInput.at("calls", "arrives before the call above it", row=row, field="arrival_s")


def end_of_run(arrivals: npt.NDArray[np.float64], until_s: float | None, drain_s: float | None) -> float:
    """The simulated second at which a run is cut, infinity where it is not."""
    until = np.inf if until_s is None else until_s
    if drain_s is not None:
        until = min(until, float(arrivals[-1]) + drain_s)
    return float(until)


def run(state: st.State, on_progress: Progress | None = None) -> st.State:
    """Run to the end, with larger arrays where they fill up. Raises RunFailed."""
    if not is_compiled():
        print("compiling the engine (once for each version, about half a minute) ...", file=sys.stderr)
    while True:
        came_back = loop.run(state, EVENTS_PER_SLICE)
        if came_back == st.DONE:
            return state
        if came_back == st.STUCK:
            raise RunFailed(
                f"a replica makes no progress at {state.progress['now']:.3f} s: "
                "its KV pool is too small for the requests that it holds"
            )
        if came_back == st.OUT_OF_ROOM:
            attempts = int(state.progress["attempts"])
            if attempts > max(ATTEMPTS_LEAST, ATTEMPTS_PER_CALL * len(state.calls)):
                raise RunFailed(
                    f"{attempts:,} attempts by {state.progress['now']:.3f} s: clients retry without end; "
                    "lower client.max_attempts, or raise client.timeout_s or client.backoff_base_s"
                )
            state = grown(state)
        if on_progress is not None:
            on_progress(int(state.progress["next_call"]) / len(state.calls))


def results(state: st.State, ids: npt.NDArray[np.int64], end_s: float, *, steps: bool) -> Results:
    """The tables of a run that came to its end at `end_s`; `ids` are the numbers of its calls. Uses up `state`."""
    state.progress["now"] = end_s
    loop.close_books(state)
    unasked = state.calls[state.progress["next_call"] :]
    unasked["status"][unasked["waits"] != st.HAS_COME] = st.LIVE
    state.calls["status"][state.calls["waits"] == st.FOR_ITS_TURN] = st.LIVE
    idle_s, travel_s = idle_e2e_s(state)
    for name in RUN_ALONE:
        release(getattr(state, name))
    replicas = tables.replicas_table(state, end_s)
    fates = np.zeros(int(state.progress["executions"]), np.int8)
    numbers = counted(max(int(state.progress["attempts"]), len(fates)))
    attempts = tables.attempt_outcomes(state, ids, numbers, fates)
    executions = tables.executions_table(state, ids, numbers, fates)
    return Results(
        calls=tables.call_outcomes(state, ids, idle_s, travel_s),
        attempts=attempts,
        executions=executions,
        timeline=tables.timeline(state.samples[: state.progress["samples"]]),
        replicas=replicas,
        steps=tables.steps_table(state.steps[: state.progress["traced_steps"]]) if steps else None,
    )


def idle_e2e_s(state: st.State) -> tuple[npt.NDArray[np.float64], float]:
    """Seconds that each call would take, were it alone on the fastest replica for it; and seconds of travel."""
    best = np.empty(0)
    _, first_of_kind = np.unique(state.replicas["table"], return_index=True)
    for r in first_of_kind:
        seconds = zeros(len(state.calls), np.float64)
        loop.idle_seconds(state, r, seconds)
        best = np.minimum(best, seconds, out=best) if len(best) else seconds
    return best, 2.0 * (float(state.settings["to_gateway"]) + float(state.settings["to_engine"]))


def schedule_requests(
    requests: pa.Table, engine: Mapping[str, Any], step_time: Mapping[str, float]
) -> dict[str, pa.Table]:
    """The schedule of one replica for requests that nobody retries: the loop of `simulate` with trivial clients.

    Parameters
    ----------
    requests
        request, arrival (s), prompt_tokens, output_tokens, priority, cancel (s or null: when its abort reaches the
        engine), block_hashes (list: identity of each full prompt block, chained), content (equal: same tokens).
    engine
        Fields of `EngineSettings`.
    step_time
        base, prefill, decode, ctx: a step lasts `base + prefill * P + decode * D + ctx * C` seconds, with C the
        context of all its rows after it.

    Returns
    -------
    dict
        "steps", "scheduled" and "outcome": one row for each step, for each request in a step, for each request.
    """
    order = np.lexsort((np.arange(requests.num_rows), np.asarray(requests["arrival"])))
    requests = requests.take(pa.array(order))
    settings = msgspec.convert(dict(engine), EngineSettings)
    profile = Profile(name="given", engine=settings, step_time=linear_step_time(step_time))
    policy = Policy(name="none", client=Client(max_attempts=1), gateway=Gateway(orphan_ttl_s=None))
    state = new_state(plain_calls(requests, settings.block_size), policy, [profile], 0, trace=True)
    too_long = np.flatnonzero(state.calls["status"] == st.TOO_LONG)
    if len(too_long):
        raise BadInput.at("requests", "longer than the model or the KV pool takes", row=int(order[too_long[0]]) + 1)
    post_cancels(state, requests)
    state = run(state)
    loop.close_books(state)
    names = np.asarray(requests["request"])
    steps, rows = state.steps[: state.progress["traced_steps"]], state.rows[: state.progress["traced_rows"]]
    return {
        "steps": tables.golden_steps(steps),
        "scheduled": pa.table({"step": rows["step"], "request": names[rows["execution"]], "tokens": rows["tokens"]}),
        "outcome": tables.golden_outcome(state, names),
    }


def linear_step_time(step_time: Mapping[str, float]) -> StepTime:
    """`base + prefill * P + decode * D + ctx * C` in the terms of StepTime, whose context excludes the chunk itself."""
    unknown = set(step_time) - {"base", "prefill", "decode", "ctx"}
    if unknown:
        raise BadConfig(f"step_time: unknown key {min(unknown)!r}; valid: base, ctx, decode, prefill")
    base, prefill, decode, ctx = (float(step_time.get(k, 0.0)) for k in ("base", "prefill", "decode", "ctx"))
    token = prefill + ctx
    return StepTime(
        knots_tokens=(1, 2),
        knots_s=(token, 2.0 * token),
        decode_s=decode - token,
        kv_token_s=ctx,
        prefill_context_s=ctx,
        overhead_s=base,
    )


def plain_calls(requests: pa.Table, block_size: int) -> pa.Table:
    """The calls whose executions are `requests`."""
    n = requests.num_rows
    columns = {
        "call_id": pa.array(np.arange(n)),
        "content_id": requests["content"].cast(pa.int64()) if "content" in requests.column_names else np.arange(n),
        "arrival_s": requests["arrival"],
        "prompt_tokens": requests["prompt_tokens"],
        "output_tokens": requests["output_tokens"],
    }
    for name in ("priority", "block_hashes"):
        if name in requests.column_names:
            columns[name] = requests[name]
    calls = pa.table(columns)
    return calls.append_column("hash_block_tokens", pa.array(np.full(n, block_size, np.int32)))


def post_cancels(state: st.State, requests: pa.Table) -> None:
    """Aborts that reach the engine at given times: events of execution i, which is that of request i."""
    if "cancel" not in requests.column_names:
        return
    cancels = np.asarray(requests["cancel"].cast(pa.float64()).fill_null(np.nan))
    rows = np.flatnonzero(~np.isnan(cancels))
    for x in rows[np.lexsort((np.asarray(requests["request"])[rows], cancels[rows]))]:
        loop.post_event(state, float(cancels[x]), ABORT_ARRIVES, int(x))
