"""Both studies in small: enough scenarios that every table and plot has something in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.runner import InlineExecutor, Store, execute_all
from replay.studies import cancellation, overload
from replay.studies.results import Tables
from replay.studies.scenarios import Scenario, plans_of

CALLS, SEEDS = 300, 2
WORKLOADS = ("moderate_cancel_rate", "kv_pressure_cancel_heavy")


def run_all(root: Path, scenarios: list[Scenario]) -> None:
    store = Store(str(root))
    execute_all(plans_of(scenarios, SEEDS), store, InlineExecutor(store), lambda _: None)


@pytest.fixture(scope="session")
def cancellation_tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    root = tmp_path_factory.mktemp("cancellation")
    own, real, *others = cancellation.variants(root)
    tight = next(variant for variant in others if variant.tight)
    scenarios = [
        *(cancellation.grid(variant, name, CALLS) for variant in (own, real) for name in WORKLOADS),
        cancellation.grid(tight, WORKLOADS[0], CALLS),
        *(cancellation.swept(own, name, rate, CALLS) for name in WORKLOADS for rate in (0.06, 0.18, 0.35)),
        *(cancellation.lengthened(own, factor, CALLS) for factor in (0.5, 1.0, 2.0)),
    ]
    run_all(root, scenarios)
    return cancellation.tables_of(root, scenarios, lambda _: None)


@pytest.fixture(scope="session")
def overload_tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    root = tmp_path_factory.mktemp("overload")
    scenarios = [
        *(
            overload.scenario("map", load, f"load-{load}", load=load, policies=overload.OF_THE_PAPER)
            for load in (0.2, 0.5)
        ),
        *(
            overload.scenario(part, value, f"{part}-{value:g}", **overload.changed(part, value))
            for part, values in overload.SWEEPS.items()
            for value in (values[0], 3.0 if part.endswith("attempts") else values[-1])
        ),
    ]
    run_all(root, scenarios)
    return overload.tables_of(root, scenarios, lambda _: None)
