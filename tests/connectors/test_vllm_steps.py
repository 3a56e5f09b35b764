"""The step log of an engine: what it holds, and what is not a line of one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from connectors.gateway import Gateway
from connectors.registry import connector, guess
from connectors.vllm_steps import VllmSteps, read_step_log
from trace_schema.errors import BadInput

INCIDENT = Path(__file__).parents[2] / "examples" / "overload-incident"
CONFIG = {"kind": "config", "budget": 256, "seqs": 8, "blocks": 400, "block_size": 16}
STEP = {"kind": "step", "t0": 1.0, "t1": 1.5, "rows": [["a", 100, 0, 300], ["b", 1, 40, 40]]}
EVENTS = [
    CONFIG,
    {"kind": "add", "t": 0.5, "id": "a", "prompt": 300, "max": 9},
    STEP,
    {"kind": "abort", "t": 2.0, "id": "a"},
    {"kind": "step", "t0": 2.0, "t1": 2.1, "rows": []},
]


def text(*events: object) -> bytes:
    return "".join(f"{json.dumps(event)}\n" for event in events).encode()


def test_a_step_is_summed_by_what_its_requests_do(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_bytes(text(*EVENTS))
    log = read_step_log(str(path))
    assert log.config is not None
    assert log.config.budget == 256
    assert (log.adds, log.aborts, log.dropped.total, len(log.rows)) == (1, 1, 0, 1)
    assert (log.scheduled_at[0], log.ended_at[0]) == (1.0, 1.5)
    assert (log.prefill[0], log.decode[0], log.context[0], log.rows[0]) == (100, 1, 41, 2)
    assert (log.attention[0], log.prefill_context[0], log.prompt_tokens[0]) == (5000.0, 0, 100)


def test_lines_of_another_kind_are_dropped_by_number(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_bytes(text(CONFIG, STEP, {"kind": "tick"}) + b"\n\xff\xfe\n" + b"[" * 100_000 + b"\n" + text(STEP)[:-9])
    log = read_step_log(str(path))
    assert len(log.rows) == 1
    assert log.dropped.reasons == {"not a line of a step log": (4, [3, 5, 6])}


def test_a_step_log_that_breaks_off_keeps_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl.gz"
    whole = gzip.compress(text(*({**STEP, "t0": k, "t1": k + k % 7 / 10} for k in range(5_000))))
    path.write_bytes(whole[: len(whole) // 2])
    log = read_step_log(str(path))
    assert 500 < len(log.rows) < 4_500
    assert any("middle of compressed data" in reason for reason in log.dropped.reasons)


def test_a_file_without_a_step_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_bytes(text(CONFIG))
    with pytest.raises(BadInput, match=r"steps.jsonl: holds no step of a scheduler"):
        read_step_log(str(path))


def test_a_recorded_step_log_is_a_trace_that_agrees_with_the_clients_log() -> None:
    path = str(INCIDENT / "cancel.steps.jsonl.gz")
    (batch,) = VllmSteps(VllmSteps.Options()).read(path)
    (log,) = Gateway().read(str(INCIDENT / "cancel.attempts.jsonl"))
    assert batch.rows_read == batch.attempts.num_rows == read_step_log(path).adds
    sent = {row["source_request_id"]: row for row in log.attempts.to_pylist()}
    agreeing = 0
    # The recording was cut right after a request was added.
    last = max(batch.attempts["source_row"].to_pylist())
    for row in batch.attempts.to_pylist():
        client = sent.get("-".join(row["source_request_id"].split("-")[1:3]))
        if client is None or row["source_row"] == last:
            continue
        assert row["prompt_tokens"] == client["prompt_tokens"]
        assert row["max_tokens"] == client["output_tokens"]
        if client["status"] == "ok":
            assert (row["status"], row["output_tokens"]) == ("ok", client["output_tokens"])
            assert 0 <= client["e2e_s"] - row["e2e_s"] < 0.5
        agreeing += (row["status"] == "ok") == (client["status"] == "ok")
    # Some answers were on their way when their client gave up.
    assert agreeing >= 0.99 * batch.attempts.num_rows


def test_a_step_log_is_known_by_its_first_line_in_either_layout() -> None:
    header = b'{"kind":"header","format":2,"engine":{}}\n'
    assert guess(header, "x")[0].name == "vllm_steps"
    assert guess(text(CONFIG), "x")[0].name == "vllm_steps"
    assert connector("vllm-steps").name == "vllm_steps"


def test_requests_that_the_log_lost_sight_of_do_not_stop_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    header = {"kind": "header", "format": 2, "engine": {"max_num_seqs": 8, "watermark": None}}
    add = {"kind": "add", "t": 1e9, "n": 0, "id": "a", "prompt": 30, "max": 2, "arrival": 1e9 + 5, "stops": 0}
    rows = [[0, 30, 0], [-1, 1, -1], [7, 1, 90]]
    step = {"kind": "step", "k": 0, "t0": 1e9 + 1, "t": 1e9 + 1, "t1": 1e9 + 2, "rows": rows}
    lost = {"kind": "dropped", "steps": 2, "events": 1}
    path.write_bytes(text(header, add, step, lost, {"kind": "abort", "t": 1e9 + 3, "n": 7}))
    log = read_step_log(str(path))
    assert (log.rows.tolist(), log.lost_steps, log.config and log.config.settings) == ([3], 2, {"max_num_seqs": 8})
    (batch,) = VllmSteps(VllmSteps.Options()).read(str(path))
    (row,) = batch.attempts.to_pylist()
    assert (row["status"], row["received_tokens"], row["arrival_s"], row["ttft_s"]) == ("unknown", 1, 1e9, 2.0)
    assert batch.dropped.total == 3
