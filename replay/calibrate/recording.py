"""A recorded campaign: what a real engine did under one policy after another, with the clients' own log beside it.

A directory holds `calibration.*` and, for each policy P, `P.attempts.jsonl` (a line per attempt, see
`connectors.gateway`), `P.meta.json` (engine settings, load, phases, where the recording is cut, the engine's counters
before and after) and `P.steps.jsonl`, which may be compressed (see `connectors.vllm_steps`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from connectors.gateway import Gateway
from connectors.vllm_steps import StepLog, read_step_log
from replay.errors import BadInput
from replay.phases import Phase
from replay.policies.catalogue import entry, resolve
from replay.policies.knobs import Client, Network, Policy, RetryBudget
from replay.profiles.profile import EngineSettings
from trace_schema.fold import fold

CALIBRATION = "calibration"
PROMPT_COUNTER = "vllm:prompt_tokens_total"
BACKOFF_JITTER = 0.25
"""The load generator waits `backoff * 2 ** n * U(0.75, 1)` before retry n + 1."""
ONE_WAY_S = 0.006
"""From client to gateway, and from gateway to engine: 12 ms in all."""


class Load(msgspec.Struct, frozen=True):
    """What the load generator was told; other keys say how it drew its calls, and are not needed here."""

    timeout: float
    retries: int
    backoff: float = 0.5
    retry_budget: float = 0.0
    budget_reserve: float = 10.0
    budget_cap: float = 10.0


class Meta(msgspec.Struct, frozen=True):
    """A `P.meta.json`."""

    engine: dict[str, Any]
    load: Load
    phases: list[Phase]
    recorded_end: float
    wall0: float
    arrivals: list[float] = []
    metrics_before: dict[str, float] = {}
    metrics_after: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Recording:
    """One policy's recording."""

    policy: str
    meta: Meta
    attempts: pa.Table
    steps: StepLog | None

    @property
    def knobs(self) -> Policy:
        """The policy as the load generator and its gateway ran it."""
        load = self.meta.load
        base = Policy(
            name="base",
            client=Client(
                timeout_s=load.timeout,
                max_attempts=load.retries + 1,
                backoff_base_s=load.backoff,
                backoff_jitter=BACKOFF_JITTER,
            ),
            network=Network(client_gateway_s=ONE_WAY_S, gateway_engine_s=ONE_WAY_S),
        )
        policy = resolve(self.policy, base)
        if load.retry_budget <= 0:
            return msgspec.structs.replace(policy, budget=None)
        budget = RetryBudget(deposit_per_call=load.retry_budget, initial=load.budget_reserve, cap=load.budget_cap)
        return msgspec.structs.replace(policy, budget=budget)

    @property
    def calls(self) -> pa.Table:
        """The calls that the recording shows, with the arrivals that the load generator planned where it says them."""
        return fold(self.attempts).calls

    def measured(self) -> dict[str, float]:
        """The figures that the recording shows, by name."""
        calls = self.calls
        arrivals = np.asarray(calls["arrival_s"])
        delivered = calls["observed_status"].to_numpy(zero_copy_only=False) == "ok"
        figures: dict[str, float] = {}
        for name, phase in zip(("before", "during", "after"), self.meta.phases, strict=False):
            inside = phase.holds(arrivals)
            if inside.any():
                figures[f"delivered_{name}"] = float(delivered[inside].mean())
        figures["attempts"] = self.attempts.num_rows
        if self.steps is not None:
            figures["prompt_tokens_computed"] = int(self.steps.prompt_tokens.sum())
        if PROMPT_COUNTER in self.meta.metrics_after:
            before = self.meta.metrics_before.get(PROMPT_COUNTER, 0.0)
            figures["prompt_tokens_counter"] = self.meta.metrics_after[PROMPT_COUNTER] - before
        return figures


def engine_settings(engine: dict[str, Any], path: Path) -> EngineSettings:
    """Settings of the recorded engine; what else its meta file says of it is left aside. Raises BadInput."""
    known = {k: v for k, v in engine.items() if k in EngineSettings.__struct_fields__}
    try:
        return msgspec.convert(known, EngineSettings)
    except msgspec.ValidationError as error:
        raise BadInput.at(path, f"{error}", field="engine") from error


def read_meta(path: Path) -> Meta:
    """A meta file; phases may say `start` and `end` without units. Raises BadInput."""
    try:
        data = msgspec.json.decode(path.read_bytes())
        phases = [
            {"name": p["name"], "start_s": p.get("start_s", p.get("start")), "end_s": p.get("end_s", p.get("end"))}
            for p in data.get("phases", [])
        ]
        return msgspec.convert({**data, "phases": phases}, Meta)
    except OSError as error:
        raise BadInput.at(path, f"cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, msgspec.ValidationError, AttributeError, KeyError, TypeError) as error:
        raise BadInput.at(path, f"is not a recording's meta file: {error}") from error


def step_log_path(directory: Path, policy: str) -> Path | None:
    """The step log of a policy, compressed or not."""
    found = sorted(directory.glob(f"{policy}.steps.jsonl*"))
    return found[0] if found else None


def read_recording(directory: Path, policy: str) -> Recording:
    """The recording of one policy. Raises BadInput and UnknownName."""
    entry(policy)
    meta = read_meta(directory / f"{policy}.meta.json")
    path = directory / f"{policy}.attempts.jsonl"
    batches = [batch.attempts for batch in Gateway().read(str(path))]
    attempts = pa.concat_tables(batches)
    if attempts.num_rows == 0:
        raise BadInput.at(path, "holds no attempt")
    steps = step_log_path(directory, policy)
    return Recording(policy, meta, attempts, None if steps is None else read_step_log(str(steps)))


def policies_in(directory: Path) -> list[str]:
    """Names of the policies recorded in a directory. Raises BadInput when there are none."""
    if not directory.is_dir():
        raise BadInput.at(directory, "is not a directory of recordings")
    names = sorted(p.name.removesuffix(".attempts.jsonl") for p in directory.glob("*.attempts.jsonl"))
    names = [name for name in names if name != CALIBRATION]
    if not names:
        raise BadInput.at(directory, "holds no recording (POLICY.attempts.jsonl with its .meta.json and .steps.jsonl)")
    return names
