"""The scheduler plug-in that writes step logs, on a scheduler that keeps vLLM's books: it writes what was done."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from connectors.vllm_steps import Header, VllmSteps, read_lines, read_step_log
from replay.calibrate import calibrate
from replay.engine import schedule_requests
from tests.connectors.step_log_driver import Clock, Drive

ROOT = Path(__file__).parents[2]
FAKE = ROOT / "tests" / "fake_vllm"
ENGINE = {"mode": "sync", "policy": "fcfs", "max_model_len": 4096, "max_num_seqs": 8, "max_num_batched_tokens": 512,
          "block_size": 16, "num_blocks": 2_000, "prefix_caching": False, "long_prefill_token_threshold": 0,
          "watermark": 0.0}  # fmt: skip
STEP_TIME = {"base": 0.008, "prefill": 1e-5, "decode": 8e-5, "ctx": 3e-7}


@pytest.fixture
def plug_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """scripts/vllm_step_log.py on the fake vLLM."""
    kept = {key: module for key, module in sys.modules.items() if key.split(".")[0] == "vllm"}
    for module_name in kept:
        del sys.modules[module_name]
    monkeypatch.syspath_prepend(str(FAKE))
    spec = importlib.util.spec_from_file_location("vllm_step_log", ROOT / "scripts" / "vllm_step_log.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for module_name in [key for key in sys.modules if key.split(".")[0] == "vllm"]:
        del sys.modules[module_name]
    sys.modules.update(kept)


def config(mode: str = "sync", **more: Any) -> SimpleNamespace:
    """As much of a VllmConfig as the schedulers look at."""
    scheduler = SimpleNamespace(
        max_num_seqs=8, max_num_batched_tokens=512, policy="fcfs", async_scheduling=mode == "async",
        long_prefill_token_threshold=0, watermark=0.0,
    )  # fmt: skip
    return SimpleNamespace(
        scheduler_config=scheduler,
        cache_config=SimpleNamespace(block_size=16, num_gpu_blocks=2_000, enable_prefix_caching=False),
        model_config=SimpleNamespace(max_model_len=4096, model="org/model", dtype="torch.bfloat16"),
        parallel_config=SimpleNamespace(data_parallel_rank=3, tensor_parallel_size=2, pipeline_parallel_size=1),
        **more,
    )


def scheduler(module: ModuleType, path: Path | None, monkeypatch: pytest.MonkeyPatch, mode: str = "sync") -> Any:
    if path is not None:
        monkeypatch.setenv("VLLM_STEP_LOG", str(path))
    blocks = SimpleNamespace(num_blocks=2_000)
    return module.StepLogScheduler(vllm_config=config(mode), kv_cache_config=blocks, block_size=16)


def request(request_id: str, prompt: int = 20, tokens: int = 3, stop: list[str] | None = None) -> Any:
    kind = importlib.import_module("vllm.v1.request").Request
    return kind(request_id, prompt, tokens, 0, 0.0, stop or [])


def step(made: Any, tokens: dict[str, int], preempted: list[str] | None = None) -> Any:
    made.told.append((tokens, preempted or []))
    return made.schedule()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def traffic(n: int = 60) -> pa.Table:
    """Requests of which every seventh is cancelled."""
    rng = np.random.default_rng(5)
    arrival = np.cumsum(rng.exponential(0.05, n))
    cancel = [float(arrival[k] + rng.uniform(0.01, 0.6)) if k % 7 == 3 else None for k in range(n)]
    columns = {
        "request": np.arange(n), "arrival": arrival, "cancel": pa.array(cancel, pa.float64()),
        "prompt_tokens": rng.integers(5, 900, n), "output_tokens": rng.integers(1, 40, n), "priority": np.zeros(n, int),
        "content": np.arange(n), "block_hashes": pa.array([[] for _ in range(n)], pa.list_(pa.uint64())),
    }  # fmt: skip
    return pa.table(columns)


def played(module: ModuleType, path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, pa.Table]:
    """What the engine simulates, done once more by a scheduler with the plug-in, whose log is at `path`."""
    requests = traffic()
    tables = schedule_requests(requests, {**ENGINE, "mode": mode}, STEP_TIME)
    clock = Clock()
    clock.put_into(module, time.sleep)
    made = scheduler(module, path, monkeypatch, mode)
    rows = tables["scheduled"].to_pylist()
    for number in range(tables["steps"].num_rows):
        made.told.append(({name(row["request"]): row["tokens"] for row in rows if row["step"] == number}, []))
    when = tables["steps"]["scheduled_at"].to_pylist()
    drive = Drive(
        scheduler=made,
        requests=requests,
        durations=tables["steps"]["duration"].to_pylist(),
        clock=clock,
        make=lambda row: row_request(row),
        ready=lambda now: len(drive.seen) < len(when) and when[len(drive.seen)] <= now + 1e-9,
        outputs=lambda output: None,
        aborted=importlib.import_module("vllm.v1.request").RequestStatus.FINISHED_ABORTED,
        depth=2 if mode == "async" else 1,
        name=name,
    )
    drive.run()
    made.shutdown()
    return tables


def name(number: int) -> str:
    return f"cmpl-{number:03d}"


def row_request(row: dict[str, Any]) -> Any:
    made = request(name(row["request"]), row["prompt_tokens"], row["output_tokens"])
    made.arrival_time = row["arrival"]
    return made


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_simulated_schedule_comes_back_from_the_log_step_by_step(
    mode: str, plug_in: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "engine.steps.jsonl"
    tables = played(plug_in, path, mode, monkeypatch)
    steps = tables["steps"]
    written = [line for line in lines(path) if line["kind"] == "step"]
    names = {line["n"]: line["id"] for line in lines(path) if line["kind"] == "add"}
    assert [line["k"] for line in written] == steps["step"].to_pylist()
    computed: dict[str, int] = {}
    for line, rows in zip(written, grouped(tables["scheduled"]), strict=True):
        assert {names[n]: tokens for n, tokens, _ in line["rows"]} == rows
        for n, tokens, before in line["rows"]:
            assert before == computed.get(names[n], 0)
            computed[names[n]] = before + tokens
    for key, column in (("run", "running"), ("wait", "waiting"), ("free", "free_blocks")):
        assert [line[key] for line in written] == steps[column].to_pylist()
    log = read_step_log(str(path))
    ended = np.asarray(steps["start"]) + np.asarray(steps["duration"])
    for ours, theirs in (
        (log.scheduled_at, steps["scheduled_at"]),
        (log.began_at, steps["start"]),
        (log.ended_at, ended),
    ):
        np.testing.assert_allclose(ours, np.asarray(theirs), rtol=0, atol=2e-6)
    assert log.prefill.tolist() == steps["prefill_tokens"].to_pylist()
    assert log.decode.tolist() == steps["decode_tokens"].to_pylist()
    assert log.closed
    if mode == "async":
        assert (log.began_at > log.scheduled_at + 1e-3).any()


def grouped(scheduled: pa.Table) -> list[dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for row in scheduled.to_pylist():
        found.setdefault(row["step"], {})[name(row["request"])] = row["tokens"]
    return [found[number] for number in sorted(found)]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_step_log_is_a_trace_of_what_became_of_each_request(
    mode: str, plug_in: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "engine.steps.jsonl.gz"
    outcome = played(plug_in, path, mode, monkeypatch)["outcome"]
    batches = list(VllmSteps(VllmSteps.Options()).read(str(path)))
    attempts = pa.concat_tables([batch.attempts for batch in batches])
    by_name = {row["source_request_id"]: row for row in attempts.to_pylist()}
    asked = {row["request"]: row for row in traffic().to_pylist()}
    assert len(by_name) == 60
    assert sum(batch.rows_read for batch in batches) == 60
    for row in outcome.to_pylist():
        found, given = by_name[name(row["request"])], asked[row["request"]]
        aborted = row["status"] == "abort"
        assert found["status"] == ("cancelled" if aborted else "ok")
        assert found["cancel_reason"] == ("client_disconnect" if aborted else None)
        assert (found["output_tokens"], found["received_tokens"]) == (
            None if aborted else given["output_tokens"], row["output_tokens"],
        )  # fmt: skip
        assert (found["prompt_tokens"], found["max_tokens"]) == (given["prompt_tokens"], given["output_tokens"])
        assert found["arrival_s"] == pytest.approx(given["arrival"], abs=1e-6)
        assert found["e2e_s"] == pytest.approx(row["finished"] - given["arrival"], abs=4e-6)
        if row["first_token"] is not None:
            assert found["ttft_s"] == pytest.approx(row["first_token"] - given["arrival"], abs=4e-6)


def test_aborts_are_timeouts_where_the_user_says_so(
    plug_in: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "engine.steps.jsonl"
    played(plug_in, path, "sync", monkeypatch)
    (batch,) = VllmSteps(VllmSteps.Options(aborts="timeout")).read(str(path))
    assert set(batch.attempts["status"].to_pylist()) == {"ok", "timeout"}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_calibrate_recovers_step_times_and_settings_from_a_log(
    mode: str, plug_in: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "engine.steps.jsonl"
    played(plug_in, path, mode, monkeypatch)
    profile, fit = calibrate(str(path))
    assert fit.mape < 0.01
    assert (profile.engine.mode, profile.engine.max_num_seqs, profile.engine.num_blocks) == (mode, 8, 2_000)
    assert (profile.engine.block_size, profile.engine.max_num_batched_tokens) == (16, 512)
    assert not profile.engine.prefix_caching


def test_the_header_names_the_engine(plug_in: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler(plug_in, tmp_path / "e.{rank}.jsonl", monkeypatch, "async").shutdown()
    reading = read_lines(str(tmp_path / "e.3.jsonl"))
    assert isinstance(reading.config, Header)
    assert reading.config.settings == {**ENGINE, "mode": "async"}
    head = lines(tmp_path / "e.3.jsonl")[0]
    assert (head["format"], head["vllm_version"], head["model"], head["dtype"]) == (
        2,
        "0.32.0+fake",
        "org/model",
        "bfloat16",
    )
    assert (head["rank"], head["tensor_parallel_size"], head["num_speculative_tokens"]) == (3, 2, None)


def test_a_preempted_request_is_logged_with_its_progress(
    plug_in: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "e.jsonl"
    made = scheduler(plug_in, path, monkeypatch)
    for letter in "ab":
        made.add_request(request(letter))
    made.update_from_output(step(made, {"a": 20, "b": 20}), None)
    made.update_from_output(step(made, {"a": 1}, ["b"]), None)
    made.update_from_output(step(made, {"b": 21}), None)
    made.shutdown()
    (preempted,) = [line for line in lines(path) if line["kind"] == "preempt"]
    assert (preempted["n"], preempted["computed"], preempted["out"]) == (1, 20, 1)
    assert [line["rows"] for line in lines(path) if line["kind"] == "step"][-1] == [[1, 21, 0]]
    assert read_step_log(str(path)).preemptions == 1


def test_outputs_are_paired_with_their_step_also_when_one_in_between_is_dropped(
    plug_in: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(100.0)
    clock.put_into(plug_in, time.sleep)
    made = scheduler(plug_in, tmp_path / "e.jsonl", monkeypatch, "async")
    made.add_request(request("a", prompt=30, tokens=9))
    flying = []
    for tokens in (10, 10, 10):
        flying.append(step(made, {"a": tokens}))
        clock.now += 1.0
    made.update_from_output(flying[0], None)
    clock.now += 1.0
    made.update_from_output(flying[2], None)
    made.update_from_output(flying[1], None)
    made.shutdown()
    written = [line for line in lines(tmp_path / "e.jsonl") if line["kind"] == "step"]
    assert [(line["t0"], line["t"], line["t1"], line["rows"]) for line in written] == [
        (100.0, 100.0, 103.0, [[0, 10, 0]]),
        (102.0, 103.0, 104.0, [[0, 10, 20]]),
    ]


def test_an_abort_after_a_stop_string_may_be_a_finish(
    plug_in: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = scheduler(plug_in, tmp_path / "e.jsonl", monkeypatch)
    for letter, stop in (("a", ["END"]), ("b", [])):
        made.add_request(request(letter, stop=stop))
    made.update_from_output(step(made, {"a": 20, "b": 20}), None)
    status = importlib.import_module("vllm.v1.request").RequestStatus
    made.finish_requests(["a", "b"], status.FINISHED_ABORTED)
    made.shutdown()
    (batch,) = VllmSteps(VllmSteps.Options()).read(str(tmp_path / "e.jsonl"))
    assert batch.attempts["status"].to_pylist() == ["unknown", "cancelled"]


def test_prompts_and_parameters_are_not_in_the_log(
    plug_in: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = scheduler(plug_in, tmp_path / "e.jsonl", monkeypatch)
    secret = request("cmpl-given by the client", prompt=3, stop=["SECRET"])
    secret.prompt_token_ids = [987654321] * 3
    made.add_request(secret)
    made.update_from_output(step(made, {"cmpl-given by the client": 3}), None)
    made.shutdown()
    text = (tmp_path / "e.jsonl").read_text()
    assert "cmpl-given by the client" in text
    assert "987654321" not in text
    assert "SECRET" not in text


def test_what_a_version_of_vllm_does_not_have_is_null(
    plug_in: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler
    monkeypatch.delattr(base, "get_request_counts")
    monkeypatch.setattr(base, "free_blocks", None)
    made = scheduler(plug_in, tmp_path / "e.jsonl", monkeypatch)
    bare = request("a")
    del bare.arrival_time, bare.priority, bare.sampling_params
    made.add_request(bare)
    made.update_from_output(step(made, {"a": 20}), None)
    made.shutdown()
    _, add, run, _ = lines(tmp_path / "e.jsonl")
    assert (add["arrival"], add["priority"], add["prompt"]) == (None, None, 20)
    assert (run["run"], run["wait"], run["free"], run["rows"]) == (None, None, None, [[0, 20, 0]])


def test_a_scheduler_that_has_changed_ends_the_log_and_goes_on(
    plug_in: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = scheduler(plug_in, tmp_path / "e.jsonl", monkeypatch)
    made.add_request(request("a"))
    made.told.append(({"a": 20}, []))
    original = type(made).__mro__[1].schedule

    def schedule(self: Any) -> Any:
        output = original(self)
        del output.scheduled_cached_reqs
        return output

    monkeypatch.setattr(type(made).__mro__[1], "schedule", schedule)
    with caplog.at_level(logging.WARNING):
        output = made.schedule()
        made.update_from_output(output, None)
        made.update_from_output(step(made, {"a": 1}), None)
    assert made.requests["a"].num_output_tokens == 2
    assert len(caplog.records) == 1
    assert "step log: ended" in caplog.text


@pytest.mark.parametrize("broken", ["folder", "write"])
def test_a_disk_that_fails_is_one_warning(
    broken: str, plug_in: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(plug_in, "FLUSH_S", 0.01)
    with caplog.at_level(logging.WARNING):
        made = scheduler(plug_in, tmp_path / ("file/e.jsonl" if broken == "folder" else "e.jsonl"), monkeypatch)
        if broken == "write":
            made.step_log.log.file.close()
            made.step_log.log.file = open("/dev/full", "wb")  # noqa: SIM115
        made.add_request(request("a", tokens=50))
        made.update_from_output(step(made, {"a": 20}), None)
        for _ in range(20):
            made.update_from_output(step(made, {"a": 1}), None)
            time.sleep(0.005)
        made.shutdown()
    assert made.requests["a"].num_output_tokens == 21
    assert len(caplog.records) == 1
    assert "step log: ended" in caplog.text


def test_what_comes_faster_than_it_is_written_is_dropped_and_counted(
    plug_in: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plug_in, "ROWS_MOST", 10)
    monkeypatch.setattr(plug_in, "FLUSH_S", 60.0)
    made = scheduler(plug_in, tmp_path / "e.jsonl", monkeypatch)
    made.add_request(request("a", tokens=99))
    made.update_from_output(step(made, {"a": 20}), None)
    for _ in range(50):
        made.update_from_output(step(made, {"a": 1}), None)
    made.shutdown()
    log = read_step_log(str(tmp_path / "e.jsonl"))
    assert 0 < len(log.rows) < 10
    assert log.lost_steps == 51 - len(log.rows)
    assert log.dropped.total == log.lost_steps
    assert log.closed


def test_the_log_ends_at_its_limit(plug_in: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_STEP_LOG_MAX_MB", "0.005")
    monkeypatch.setattr(plug_in, "FLUSH_S", 0.01)
    made = scheduler(plug_in, tmp_path / "e.jsonl", monkeypatch)
    made.add_request(request("a", tokens=900))
    made.update_from_output(step(made, {"a": 20}), None)
    for _ in range(400):
        made.update_from_output(step(made, {"a": 1}), None)
        time.sleep(0.0005)
    made.shutdown()
    assert 5_000 <= (tmp_path / "e.jsonl").stat().st_size < 60_000
    assert lines(tmp_path / "e.jsonl")[-1]["reason"] == "VLLM_STEP_LOG_MAX_MB"


def test_a_log_that_exists_is_kept(plug_in: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        scheduler(plug_in, tmp_path / "e.steps.jsonl", monkeypatch).shutdown()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.2.steps.jsonl", "e.3.steps.jsonl", "e.steps.jsonl"]


SERVER = """
import sys, time
from types import SimpleNamespace as S
from vllm.v1.request import Request
import vllm_step_log

def serve(seconds):
    config = S(scheduler_config=S(max_num_seqs=4, max_num_batched_tokens=64, async_scheduling=False, policy="fcfs"),
               cache_config=S(), model_config=S(max_model_len=4096), parallel_config=S())
    made = vllm_step_log.StepLogScheduler(vllm_config=config, kv_cache_config=S(num_blocks=100), block_size=16)
    made.add_request(Request("a", 20, 10**6, 0, time.time(), []))
    end, tokens = time.time() + seconds, 20
    print("serving", flush=True)
    while time.time() < end:
        made.told.append(({"a": tokens}, []))
        tokens = 1
        output = made.schedule()
        time.sleep(0.001)
        made.update_from_output(output, None)

if __name__ == "__main__":
    if sys.argv[2] == "child":
        import multiprocessing
        child = multiprocessing.get_context("spawn").Process(target=serve, args=(float(sys.argv[1]),))
        child.start()
        child.join()
    else:
        serve(float(sys.argv[1]))
"""


def server(folder: Path, path: Path, seconds: float, how: str = "alone") -> subprocess.Popen[bytes]:
    """A process of its own that serves for some seconds."""
    (folder / "server.py").write_text(SERVER)
    places = os.pathsep.join([str(FAKE), str(ROOT / "scripts"), str(folder)])
    environment = {**os.environ, "PYTHONPATH": places, "VLLM_STEP_LOG": str(path)}
    command = [sys.executable, str(folder / "server.py"), str(seconds), how]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)


@pytest.mark.parametrize("file", ["engine.steps.jsonl", "engine.steps.jsonl.gz"])
def test_a_process_that_is_killed_leaves_a_log_that_can_be_read(file: str, tmp_path: Path) -> None:
    process = server(tmp_path, tmp_path / file, 60.0)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(2.5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    log = read_step_log(str(tmp_path / file))
    assert len(log.rows) > 100
    assert not log.closed
    if not file.endswith("gz"):
        whole = (tmp_path / file).read_bytes()
        (tmp_path / file).write_bytes(whole[: whole.rindex(b"\n", 0, -1) + 9])
        cut = read_step_log(str(tmp_path / file))
        assert len(cut.rows) == len(log.rows) - 1
        assert list(cut.dropped.reasons) == ["not a line of a step log"]


@pytest.mark.parametrize("how", ["alone", "child"])
def test_a_process_that_exits_without_a_shutdown_leaves_a_whole_log(how: str, tmp_path: Path) -> None:
    process = server(tmp_path, tmp_path / "e.jsonl", 0.3, how)
    process.communicate(timeout=60)
    log = read_step_log(str(tmp_path / "e.jsonl"))
    assert log.closed
    assert log.dropped.total == 0
    assert len(log.rows) > 20
