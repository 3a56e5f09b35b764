"""The cancellation study: nine ways to notice that users have left, on the benchmark's six workloads and beyond.

The benchmark states its own limits: steps linear in the batch, one 7B engine, no preemption, no network delay. Its
setting is the first variant here; each other variant lifts one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from connectors.synthetic import WORKLOADS, workload
from queries.studies import ask
from replay.policies.catalogue import CATALOGUE
from replay.profiles.loader import find_profile
from replay.studies.engines import LARGE, MEDIUM, SMALL, capacity, engine_file, linear, pace
from replay.studies.results import Tables, basis, gathered
from replay.studies.scenarios import Scenario

POLICIES = [name for name, entry in CATALOGUE.items() if entry.family == "cancellation"]
WORKLOAD_NAMES = [name for name, one in WORKLOADS.items() if "user_cancel_rate" in one.options]
"""Those in which users leave."""

CALLS, QUICK_CALLS = 1_200, 400
QUICK_WORKLOADS = ("moderate_cancel_rate", "kv_pressure_cancel_heavy")
SEEDS, QUICK_SEEDS = 5, 3
SWEPT = ["no_cancel_handling", "poll_every_1", "poll_every_4", "poll_every_8", "push_cancel"]
"""Policies of the sweep over cancel rates."""
CANCEL_RATES, QUICK_CANCEL_RATES = (0.06, 0.12, 0.18, 0.25, 0.35), (0.06, 0.18, 0.35)
ISOLATED = ["no_cancel_handling", "push_cancel", "push_cancel_lazy_kv", "push_cancel_no_repack"]
"""Policies that differ in one effect of an abort."""
LENGTHENED = "moderate_cancel_rate"
"""Workload whose outputs are made longer, at a rate as much lower."""
LENGTHS = (0.5, 1.0, 2.0, 4.0)
"""By so much."""
TIGHT_POOL = 0.8
"""KV blocks of the variant with preemption: this share of what the workload would hold were no user to leave."""
NETWORK = {"gateway_engine_s": 0.005, "cancel_s": 0.2}
"""Of the variant with a network: a cancel passes more hops, and waits in more queues, than a request."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One of the benchmark's limits lifted, or none."""

    name: str
    model: str
    profile: str
    """Profile's name, or the file that holds it."""
    batch_cost: str = "calibrated"
    network: Mapping[str, float] = {}
    tight: bool = False
    """Whether the KV pool is too small for the workload."""
    preemption: str = "as it comes"

    @property
    def facets(self) -> dict[str, Any]:
        """Its columns."""
        return {
            "variant": self.name,
            "batch_cost": self.batch_cost,
            "model": self.model,
            "preemption": self.preemption,
            "cancel_delay_ms": 1e3 * (self.network.get("cancel_s", 0.0) + self.network.get("gateway_engine_s", 0.0)),
        }


def variants(root: Path) -> list[Variant]:
    """The benchmark's own setting first."""
    return [
        Variant(
            name="benchmark",
            batch_cost="linear",
            model="7B",
            profile=engine_file(root / "engines", linear()),
            preemption="none",
        ),
        Variant(name="calibrated", model="8B", profile=SMALL),
        Variant(name="medium_model", model="32B", profile=MEDIUM),
        Variant(name="large_model", model="70B", profile=LARGE),
        Variant(name="preemption", model="8B", profile=SMALL, tight=True, preemption="forced"),
        Variant(name="network_delay", model="8B", profile=SMALL, network=NETWORK),
    ]


def scenarios(root: Path, quick: bool) -> list[Scenario]:
    """Every workload under every variant; the sweep over cancel rates, and over output lengths, in the first one.

    In short, two workloads are enough for the variants that no plot shows, and three cancel rates.
    """
    calls, rates = (QUICK_CALLS, QUICK_CANCEL_RATES) if quick else (CALLS, CANCEL_RATES)
    own, real, *others = variants(root)
    return [
        *(grid(variant, name, calls) for variant in (own, real) for name in WORKLOAD_NAMES),
        *(grid(variant, name, calls) for variant in others for name in (QUICK_WORKLOADS if quick else WORKLOAD_NAMES)),
        *(swept(own, name, rate, calls) for name in WORKLOAD_NAMES for rate in rates),
        *(lengthened(own, factor, calls) for factor in LENGTHS),
    ]


def grid(variant: Variant, name: str, calls: int) -> Scenario:
    """One workload under one variant, with all policies."""
    return scenario(variant, name, "grid", f"{variant.name}-{name}", {"calls": calls}, POLICIES)


def swept(variant: Variant, name: str, rate: float, calls: int) -> Scenario:
    """A workload at another cancel rate than its own."""
    traffic = {"calls": calls, "user_cancel_rate": rate}
    return scenario(variant, name, "cancel_rate", f"rate-{rate:.2f}-{name}", traffic, SWEPT)


def lengthened(variant: Variant, factor: float, calls: int) -> Scenario:
    """A workload with outputs so many times as long, of which so many fewer arrive."""
    own = workload(LENGTHENED).options
    traffic = {
        "calls": calls,
        "rate_per_s": own["rate_per_s"] / factor,
        "output_tokens": longer(own["output_tokens"], factor),
    }
    return scenario(variant, LENGTHENED, "output_length", f"outputs-x{factor:g}", traffic, ISOLATED)


def longer(law: str, factor: float) -> str:
    """A law of lengths with its mean so many times as large."""
    name, _, rest = law.partition(":")
    parameters = dict(part.split("=") for part in rest.split(","))
    parameters["mean"] = f"{float(parameters['mean']) * factor:g}"
    return f"{name}:" + ",".join(f"{key}={value}" for key, value in parameters.items())


def scenario(
    variant: Variant, name: str, part: str, run: str, traffic: Mapping[str, Any], policies: list[str]
) -> Scenario:
    """A workload under a variant, whose users and arrivals go by what its engine can do.

    As large a share of its capacity is asked for as of the engine that the workloads are sized for, and users leave at
    a share of a response that comes at its pace.
    """
    options = {**workload(name).options, **traffic}
    engine = find_profile(variant.profile)
    lengths = {key: options[key] for key in ("prompt_tokens", "output_tokens")}
    slower = capacity(find_profile(SMALL), lengths) / capacity(engine, lengths)
    paced = {**traffic, "rate_per_s": options["rate_per_s"] / slower}
    for key in ("disconnect_every_s", "disconnect_window_s"):
        if key in options:
            paced[key] = options[key] * slower
    calm = pace(engine, name, paced)
    paced["first_token_s"], paced["token_s"] = calm.first_token_s, calm.token_s
    pool = {"num_blocks": int(TIGHT_POOL * calm.blocks_most)} if variant.tight else {}
    facets = {
        "part": part,
        "workload": name,
        **variant.facets,
        "cancel_rate": options["user_cancel_rate"],
        "output_tokens_mean": float(options["output_tokens"].partition("mean=")[2].partition(",")[0]),
    }
    return Scenario(
        name=run,
        facets=facets,
        workload=name,
        traffic=paced,
        settings={
            "profile": variant.profile,
            "engine": pool,
            "network": dict(variant.network),
            "policies": policies,
            "timeline_interval_s": 10.0,
        },
    )


def tables_of(root: Path, scenarios: list[Scenario], on_progress: Callable[[float], None]) -> Tables:
    """All tables of the study, from its runs."""
    replays = gathered(root, scenarios, "cancellation_by_replay", on_progress)
    tables = basis(scenarios, replays, POLICIES, "cancellation_figures")
    tables["summary"] = ask("cancellation_summary", tables)
    tables["effect_isolation"] = tables["effects"] = ask("cancellation_effect_isolation", tables)
    tables["decision_map"] = ask("cancellation_decision_map", tables)
    tables["advice"] = ask("cancellation_advice", tables)
    tables["cancel_rate_sweep"] = tables["sweep"] = ask("cancellation_sweep", tables)
    tables["laws"] = ask("cancellation_laws", tables)
    tables["verdicts"] = ask("cancellation_verdicts", tables)
    return tables
