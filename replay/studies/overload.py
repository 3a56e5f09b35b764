"""The overload study: a warm-up, an overload, a recovery; who comes back, however it retries, cancels and admits.

Loads are shares of what each engine can serve, which is found by simulation: a load of 0.5 is half of its capacity, and
in the overload calls arrive at `PEAK` times its capacity, whatever the load before and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from queries.studies import ask
from replay.policies.catalogue import CATALOGUE
from replay.policies.knobs import Client
from replay.profiles.loader import find_profile, with_settings
from replay.studies.engines import ENGINES, capacity
from replay.studies.results import Tables, basis, gathered
from replay.studies.scenarios import Scenario

OF_THE_PAPER = ("no_retry", "no_cancel", "cancel", "retry_budget", "coalesce", "coalesce_cancel")
BEYOND_IT = (
    "deadline_shed", "codel", "adaptive_lifo", "queue_cap", "adaptive_throttle", "coalesce_budget",
    "priority_retry_last", "coalesce_deadline",
)  # fmt: skip
POLICIES = [name for name in (*OF_THE_PAPER, *BEYOND_IT) if name in CATALOGUE]
SWEPT = ["no_retry", "cancel", "retry_budget", "coalesce"]
"""Policies of the sweeps: one of each kind that the paper tells apart."""

LENGTHS = {"prompt_tokens": "lognormal:mean=4000,cv=0.8", "output_tokens": "lognormal:mean=60,cv=1.2"}
"""Long prompts and short answers: prefill is what the engine is short of, as in the paper's overload."""
ENGINE = {"prefix_caching": False, "max_num_seqs": 256, "max_num_batched_tokens": 2_048}
"""vLLM's own defaults, but for the caching, which has a sweep of its own."""
WARM_UP_S, OVERLOAD_S, RECOVERY_S = 60.0, 40.0, 240.0
PEAK = 2.0
"""Arrivals of the overload over the engine's capacity."""
LOAD = 0.5
"""Of the sweeps, before and after the overload."""
CLIENT = Client(timeout_s=20.0, max_attempts=3)
PATIENT = Client(timeout_s=20.0, max_attempts=16)
"""Goes on trying until its user leaves."""

SEEDS, QUICK_SEEDS = 10, 3
LOADS, QUICK_LOADS = (0.2, 0.35, 0.4, 0.45, 0.5, 0.6, 0.8), (0.2, 0.5, 0.8)
SWEPT_ENGINE = "medium"
SWEEPS: Mapping[str, Sequence[float]] = {
    "peak": (1.25, 1.5, 2.0, 3.0),
    "timeout_s": (5.0, 10.0, 20.0, 40.0),
    "max_attempts": (1, 2, 3, 4, 6),
    "patience_s": (20.0, 30.0, 40.0, 50.0, 60.0, 80.0, 120.0, 160.0),
    "cancel_delay_s": (0.0, 0.5, 2.0, 10.0),
    "cached_attempts": (2, 3, 6),
}
"""What is swept, one at a time, and its values; cached_attempts is max_attempts with prefix caching on."""


def scenarios(root: Path, quick: bool) -> list[Scenario]:
    """Every load on every engine, and the sweeps on one of them; in short, of each sweep three values."""
    return [
        *(
            scenario("map", load, f"{engine}-load-{load:.2f}", engine=engine, load=load, policies=POLICIES)
            for engine in ENGINES
            for load in (QUICK_LOADS if quick else LOADS)
        ),
        *(
            scenario(part, value, f"{part.replace('_', '-')}-{value:g}", **changed(part, value))
            for part, values in SWEEPS.items()
            for value in (sorted({values[0], values[len(values) // 2], values[-1]}) if quick else values)
        ),
    ]


def changed(part: str, value: float) -> dict[str, Any]:
    """What a sweep changes at one of its values."""
    fields = asdict(CLIENT)
    if part == "timeout_s":
        return {"client": Client(**{**fields, part: value})}
    if part in ("max_attempts", "cached_attempts"):
        client = Client(**{**fields, "max_attempts": int(value)})
        return {"client": client, "engine_settings": {**ENGINE, "prefix_caching": part == "cached_attempts"}}
    if part == "patience_s":
        return {"client": PATIENT, part: value}
    return {part: value}


def scenario(
    part: str,
    value: float,
    name: str,
    *,
    engine: str = SWEPT_ENGINE,
    load: float = LOAD,
    policies: Sequence[str] = SWEPT,
    engine_settings: Mapping[str, Any] = ENGINE,
    client: Client = CLIENT,
    peak: float = PEAK,
    cancel_delay_s: float = 0.0,
    patience_s: float | None = None,
) -> Scenario:
    """One load on one engine; users leave after `patience_s`, where it is given."""
    per_s = capacity(with_settings(find_profile(ENGINES[engine]), ENGINE), LENGTHS)
    traffic: dict[str, Any] = {
        "duration_s": WARM_UP_S + OVERLOAD_S + RECOVERY_S,
        "rate_per_s": load * per_s,
        "overload_start_s": WARM_UP_S,
        "overload_s": OVERLOAD_S,
        "overload_factor": peak / load,
        "client_timeout_s": client.timeout_s,
        "max_attempts": client.max_attempts,
        **LENGTHS,
    }
    backlog_s = (peak - 1.0) * OVERLOAD_S
    return Scenario(
        name=name,
        facets={
            "part": part,
            "value": float(value),
            "engine": engine,
            "load": load,
            "peak": peak,
            "capacity_per_s": per_s,
            "timeout_s": client.timeout_s,
            "max_attempts": client.max_attempts,
            "cancel_delay_s": cancel_delay_s,
            "prefix_caching": engine_settings["prefix_caching"],
            "patience_s": patience_of(client) if patience_s is None else patience_s,
            "backlog_s": backlog_s,
            "drain_s": backlog_s / (1.0 - load),
        },
        workload="overload",
        traffic=traffic if patience_s is None else {**traffic, "patience_s": f"{patience_s:g}"},
        settings={
            "profile": ENGINES[engine],
            "engine": dict(engine_settings),
            "client": asdict(client),
            "network": {"cancel_s": cancel_delay_s},
            "policies": list(policies),
            "timeline_interval_s": 5.0,
        },
    )


def patience_of(client: Client) -> float:
    """For how long a client tries: its timeouts, and the longest waits between them."""
    waits = (
        min(client.backoff_base_s * client.backoff_factor**n, client.backoff_cap_s)
        for n in range(client.max_attempts - 1)
    )
    return (client.timeout_s or 0.0) * client.max_attempts + sum(waits)


def tables_of(root: Path, scenarios: list[Scenario], on_progress: Callable[[float], None]) -> Tables:
    """All tables of the study, from its runs."""
    replays = gathered(root, scenarios, "overload_by_replay", on_progress)
    tables = basis(scenarios, replays, POLICIES, "overload_figures")
    tables["outcomes"] = ask("overload_outcomes", tables)
    tables["turning_points"] = ask("overload_turning_points", tables)
    tables["map"] = ask("overload_map", tables)
    tables["sweeps"] = ask("overload_sweeps", tables)
    tables["claims"] = ask("overload_claims", tables)
    return tables
