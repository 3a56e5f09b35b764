"""The step log of an engine: what it holds, and what is not a line of one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from connectors.vllm_steps import read_step_log
from trace_schema.errors import BadInput

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
