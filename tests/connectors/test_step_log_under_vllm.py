"""The step-log plug-in under vLLM's own scheduler classes, where vLLM is installed: they decide what they always do."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from connectors.vllm_steps import read_step_log
from replay.profiles.profile import EngineSettings
from replay.profiles.versions import version_in
from tests.connectors.step_log_driver import Clock, Drive

pytest.importorskip("vllm.v1.core.sched.scheduler")

SCRIPTS = Path(__file__).parents[2] / "scripts"
GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden"
SCENARIOS = [
    path
    for path in sorted(GOLDEN.iterdir())
    if not json.loads((path / "scenario.json").read_text())["engine"]["prefix_caching"]
]
"""Those in which no prompt shares blocks: a scenario has hashes of prompts, not the prompts."""


@pytest.fixture(scope="module")
def bench() -> Any:
    """scripts/bench_step_log.py, which makes schedulers and requests of vLLM."""
    spec = importlib.util.spec_from_file_location("bench_step_log", SCRIPTS / "bench_step_log.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_step_log"] = module
    spec.loader.exec_module(module)
    return module


def name_of(number: int) -> str:
    """A request's id in vLLM, which orders equals by it."""
    return f"{number:06d}"


def drive(bench: Any, path: Path, kind: Any, module: Any) -> list[dict[str, int]]:
    """The steps that a scheduler takes through a scenario."""
    from vllm.v1.request import RequestStatus

    engine = json.loads((path / "scenario.json").read_text())["engine"]
    clock = Clock()
    clock.put_into(module, time.sleep)
    made = bench.scheduler(engine, kind)
    found = Drive(
        scheduler=made,
        requests=pq.read_table(path / "requests.parquet"),
        durations=pq.read_table(path / "steps.parquet")["duration"].to_pylist() + [0.01] * 1_000,
        clock=clock,
        make=lambda row: bench.request(
            name_of(row["request"]),
            [7] * row["prompt_tokens"],
            row["output_tokens"],
            row["priority"] or 0,
            row["arrival"],
        ),
        ready=lambda now: made.has_unfinished_requests(),
        outputs=lambda output: bench.outputs(made, output),
        aborted=RequestStatus.FINISHED_ABORTED,
        depth=2 if engine["mode"] == "async" else 1,
        name=name_of,
    ).run()
    made.shutdown()
    return found


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name)
def test_the_log_holds_the_steps_that_vllm_took(
    path: Path, bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vllm
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    module = bench.plug_in()
    log_file = tmp_path / "engine.steps.jsonl"
    monkeypatch.setenv("VLLM_STEP_LOG", str(log_file))
    is_async = path.name.endswith("async")
    plain = drive(bench, path, AsyncScheduler if is_async else Scheduler, module)
    logged = drive(bench, path, module.StepLogScheduler, module)
    assert logged == plain
    lines = [json.loads(line) for line in log_file.read_text().splitlines()]
    names = {line["n"]: line["id"] for line in lines if line["kind"] == "add"}
    steps = [line for line in lines if line["kind"] == "step"]
    assert [{names[n]: tokens for n, tokens, _ in line["rows"]} for line in steps] == logged
    scenario = json.loads((path / "scenario.json").read_text())
    settings = {**msgspec.to_builtins(EngineSettings()), **scenario["engine"]}
    # What this version does not have is null.
    written = {key: value for key, value in lines[0]["engine"].items() if value is not None}
    assert written == {key: settings[key] for key in written}
    assert len(written) >= 8
    if version_in(scenario["source"]) == version_in(vllm.__version__):
        check_recorded(path, steps, lines, names)
        log = read_step_log(str(log_file))
        recorded = pq.read_table(path / "steps.parquet")
        assert log.prefill.tolist() == recorded["prefill_tokens"].to_pylist()
        assert log.decode.tolist() == recorded["decode_tokens"].to_pylist()


def check_recorded(path: Path, steps: list[Any], lines: list[Any], names: dict[int, str]) -> None:
    """The log says what the recorded schedule says."""
    recorded = pq.read_table(path / "steps.parquet")
    outcome = {name_of(row["request"]): row for row in pq.read_table(path / "outcome.parquet").to_pylist()}
    assert len(steps) == recorded.num_rows
    for key, column in (("run", "running"), ("wait", "waiting"), ("free", "free_blocks")):
        assert [line[key] for line in steps] == recorded[column].to_pylist()
    for key, column in (("t0", "scheduled_at"), ("t", "start")):
        np.testing.assert_allclose([line[key] for line in steps], np.asarray(recorded[column]), rtol=0, atol=2e-6)
    preempted = sum(line["kind"] == "preempt" for line in lines)
    assert preempted == sum(row["preemptions"] for row in outcome.values())
    ends = {names[line["n"]]: line for line in lines if line["kind"] in ("finish", "abort")}
    assert ends.keys() == outcome.keys()
    for name, row in outcome.items():
        end = ends[name]
        assert end["kind"] == ("abort" if row["status"] == "abort" else "finish")
        assert end["out"] == row["output_tokens"]
        assert end["t"] == pytest.approx(row["finished"], abs=2e-6)
