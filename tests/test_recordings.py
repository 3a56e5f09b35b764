"""Incidents that were recorded from three sides: calls rebuilt from the logs, held against what the clients knew."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from replay.cli import cli
from replay.describe import describe
from replay.ingest import Trace, ingest
from trace_schema.errors import BadConfig, BadInput

RECORDINGS = Path(__file__).parent / "fixtures" / "recordings"
NGINX, LITELLM = RECORDINGS / "nginx", RECORDINGS / "litellm"


def path(folder: Path, name: str) -> str:
    return str(folder / f"{name}.gz")


@cache
def truth(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]], float]:
    """(calls, attempts, Unix time of second 0) as the clients knew them."""
    with gzip.open(path(folder, "truth.jsonl"), "rt") as file:
        lines = [json.loads(line) for line in file]
    kinds = defaultdict(list)
    for line in lines:
        kinds[line["kind"]].append(line)
    return kinds["call"], kinds["attempt"], kinds["meta"][0]["wall0"]


@cache
def through_nginx() -> Trace:
    return ingest([path(NGINX, "access.json.log")], beside=[path(NGINX, "vllm.steps.jsonl")], keep_attempts=True)


@cache
def through_litellm() -> Trace:
    beside = [path(LITELLM, "vllm.otlp.jsonl"), path(LITELLM, "vllm.steps.jsonl")]
    return ingest([path(LITELLM, "standard_logging.jsonl")], beside=beside)


def true_calls(trace: Trace) -> dict[int, dict[str, Any]]:
    """The true call of each attempt of nginx's log, by row: of those of that user and size, the one sent then."""
    calls, sent, wall0 = truth(NGINX)
    assert trace.attempts is not None
    names = ["source_row", "arrival_unix_ns", "tenant", "retry_index", "prompt_tokens", "max_tokens"]
    by_name = {call["call"]: call for call in calls}
    open_ = [(wall0 + s["at"], s["retry"], by_name[s["call"]]) for s in sent]
    found = {}
    for row in sorted(trace.attempts.select(names).to_pylist(), key=lambda r: r["arrival_unix_ns"]):
        asked = (row["retry_index"], row["tenant"], row["prompt_tokens"], row["max_tokens"])
        fits = [
            (abs(at - row["arrival_unix_ns"] / 1e9), place)
            for place, (at, retry, call) in enumerate(open_)
            if (retry, f"u{call['user']}", call["prompt"], call["output"]) == asked
        ]
        found[row["source_row"]] = open_.pop(min(fits)[1])[2]
    return found


def statuses(trace: Trace) -> Counter[str]:
    return Counter(trace.calls["observed_status"].to_pylist())


def test_all_calls_and_attempts_are_found_behind_nginx() -> None:
    trace = through_nginx()
    assert (trace.calls.num_rows, trace.report and trace.report.attempts) == (217, 360)
    assert statuses(trace) == {"ok": 135, "timeout": 79, "cancelled": 3}


def test_attempts_behind_nginx_are_joined_to_the_right_call() -> None:
    trace = through_nginx()
    assert trace.attempts is not None
    true = true_calls(trace)
    rows, calls = (trace.attempts[name].to_pylist() for name in ("source_row", "call_id"))
    ours, theirs = defaultdict(set), defaultdict(set)
    for row, call in zip(rows, calls, strict=True):
        ours[call].add(row)
        theirs[true[row]["call"]].add(row)
    right = sum(ours[call] == theirs[true[row]["call"]] for row, call in zip(rows, calls, strict=True))
    assert right >= 0.98 * len(rows)


def test_prompts_and_outputs_behind_nginx_are_the_true_ones() -> None:
    trace = through_nginx()
    calls = truth(NGINX)[0]
    sizes = sorted((c["prompt"], c["output"]) for c in calls)
    found = trace.calls.select(["prompt_tokens", "output_tokens"]).to_pylist()
    assert sorted((c["prompt_tokens"], c["output_tokens"]) for c in found) == sizes
    assert set(trace.calls["prompt_token_source"].to_pylist()) == {"engine"}


def test_the_users_who_left_are_found_and_no_timeout_is_taken_for_one() -> None:
    trace = through_nginx()
    left = sorted(c["leaves"] for c in truth(NGINX)[0] if c["status"] == "left")
    found = sorted(s for s in trace.calls["user_cancel_s"].to_pylist() if s is not None)
    assert found == pytest.approx(left, abs=0.1)


@pytest.mark.parametrize("announced", [True, False])
def test_the_timeout_of_the_clients_is_inferred(announced: bool, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    with gzip.open(path(NGINX, "access.json.log"), "rt") as file:
        lines = [json.loads(line) for line in file]
    for line in lines if not announced else []:
        del line["read_timeout"], line["retry_count"]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    trace = ingest([str(log)], beside=[path(NGINX, "vllm.steps.jsonl")])
    assert (trace.client.timeout_s, trace.client.max_attempts) == (5.0, 3)
    assert set(trace.calls["client_timeout_s"].to_pylist()) == {5.0}
    assert statuses(trace) == {"ok": 135, "timeout": 79, "cancelled": 3}


def test_logs_whose_ids_match_are_merged_unasked() -> None:
    trace = ingest([path(NGINX, "vllm.steps.jsonl"), path(NGINX, "access.json.log")])
    assert trace.calls.num_rows == 217
    assert trace.report is not None
    (merged,) = trace.report.merged
    assert (merged.into, merged.log, merged.by_id, merged.rows) == ("nginx", "vllm_steps", 360, 360)


def test_the_combined_format_is_refused_with_what_to_add_to_it() -> None:
    with pytest.raises(BadInput) as refused:
        ingest([path(NGINX, "access.combined.log")])
    said = str(refused.value)
    assert "none of 360 attempts says how long its prompt was" in said
    assert "209 cancelled, 151 ok" in said
    for variable in ("$msec", "$request_time", "$request_id", "$request_completion", "$request_length",
                     "$http_x_stainless_retry_count", "--with vllm.steps.jsonl"):  # fmt: skip
        assert variable in said


def test_a_gateways_log_that_cannot_be_paired_is_set_aside_for_the_engines() -> None:
    trace = ingest([path(NGINX, "access.combined.log")], beside=[path(NGINX, "vllm.steps.jsonl")])
    assert trace.report is not None
    assert [merged.set_aside for merged in trace.report.merged] == [True]
    assert trace.calls.num_rows == 360
    assert "read alone" in describe(trace).text()


def test_a_proxys_own_retries_are_found_in_the_engines_log() -> None:
    trace = through_litellm()
    assert statuses(trace) == {"ok": 114, "timeout": 68, "cancelled": 3}
    calls = truth(LITELLM)[0]
    found = trace.calls.select(["prompt_tokens", "output_tokens"]).to_pylist()
    sizes = sorted((c["prompt"], c["output"]) for c in calls)
    assert sorted((c["prompt_tokens"], c["output_tokens"]) for c in found) == sizes
    assert sum(trace.calls["observed_attempts"].to_pylist()) == 341
    assert (trace.client.timeout_s, trace.client.max_attempts) == (5.0, 3)


def test_calls_of_the_proxy_come_in_the_order_in_which_they_were_sent() -> None:
    trace = through_litellm()
    sent = np.array([c["start"] for c in truth(LITELLM)[0]])
    arrivals = np.asarray(trace.calls["arrival_s"])
    assert np.abs(np.sort(sent) - sent.min() - arrivals).max() < 0.2


def test_it_is_said_what_the_proxy_hides() -> None:
    text = " ".join(describe(through_litellm()).text().split())
    assert "a user who left while waiting for a response that is not streamed cannot be told from a timeout" in text
    assert "3 users left" in text


@pytest.mark.parametrize(
    ("name", "calls", "said"),
    [
        ("standard_logging.jsonl", 185, "LiteLLM writes no line for most of its own retries"),
        ("vllm.otlp.jsonl", 114, "vLLM exports no others"),
        ("vllm.steps.jsonl", 341, "an engine knows no users"),
    ],
)
def test_each_log_alone_names_what_it_lacks(name: str, calls: int, said: str) -> None:
    trace = ingest([path(LITELLM, name)])
    assert trace.calls.num_rows == calls
    text = " ".join(describe(trace).text().split())
    assert said in text
    assert "--with" in text


def test_spans_complete_the_step_log_of_their_engine() -> None:
    trace = ingest([path(LITELLM, "vllm.otlp.jsonl")], beside=[path(LITELLM, "vllm.steps.jsonl")])
    assert trace.report is not None
    (merged,) = trace.report.merged
    assert (merged.by_id, merged.rows, merged.requests) == (114, 114, 341)
    assert statuses(trace)["ok"] == 114


def test_ten_calls_that_were_joined_are_shown() -> None:
    report = through_nginx().report
    assert report is not None
    assert report.fold is not None
    assert len(report.fold.examples) == 10
    for example in report.fold.examples:
        assert [a.joined_by for a in example.attempts] == [None] + ["retry count"] * (len(example.attempts) - 1)
    assert "calls joined, for example" in describe(through_nginx()).text()


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_window_that_cannot_be_is_refused(seconds: float) -> None:
    with pytest.raises(BadConfig, match="--retry-window"):
        ingest([path(NGINX, "access.json.log")], retry_window_s=seconds)


def test_a_trace_from_nothing_has_no_log_beside_it() -> None:
    with pytest.raises(BadConfig, match="takes no --with"):
        ingest(["synthetic:overload"], beside=[path(NGINX, "vllm.steps.jsonl")])


def test_attempts_are_written_with_their_calls_unless_everyone_is_to_be_hidden(tmp_path: Path) -> None:
    files = [path(NGINX, "access.json.log"), "--with", path(NGINX, "vllm.steps.jsonl")]
    asked = ["ingest", *files, "-o", str(tmp_path / "trace.parquet"), "--attempts", str(tmp_path / "attempts.parquet")]
    assert CliRunner().invoke(cli, asked).exit_code == 0
    table = pq.read_table(tmp_path / "attempts.parquet")
    assert table.num_rows == 360
    assert set(table["retry_source"].to_pylist()) == {None, "retry count"}
    refused = CliRunner().invoke(cli, [*asked, "--anonymize"])
    assert isinstance(refused.exception, BadConfig)
