"""What nobody may read in what is written: secrets are planted in logs, and looked for in every output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import replay
from replay.anonymize import anonymized, fresh_key, key_from
from replay.cli import cli
from replay.errors import BadConfig
from replay.ingest import read_trace

WORDS = {
    "a prompt": "Meine Diagnose lautet Zwetschgenkrampf",
    "an answer": "Sehr geehrte Frau Oberpfaff, Ihr Befund",
    "an API key": "sk-Planted0Secret1Key2abcdefghij",
    "an e-mail address": "erika.planted@example.org",
    "an address": "203.0.113.77",
}
"""What no output may hold, however a log is read."""
NAMES = {
    "tenant": "Planted Hospital Ltd",
    "client": "198.51.100.23",
    "session": "session-of-planted-patient",
    "request": "req-planted-0815",
    "idempotency key": "idem-planted-4711",
    "file": "planted-customer",
}
"""What none may hold of an anonymized log."""


def gateway(k: int) -> dict[str, Any]:
    """A line of the gateway's log, with more in it than is asked for."""
    line = {"call": f"{NAMES['request']}-{k}", "attempt": 0, "prompt": 100 + k, "output": 20, "start": 0.2 * k}
    line |= {"end": 0.2 * k + 0.4, "status": "ok", "tenant": NAMES["tenant"], "client": NAMES["client"]}
    line |= {"session": NAMES["session"], "idempotency_key": f"{NAMES['idempotency key']}-{k}"}
    line |= {"messages": [{"role": "user", "content": WORDS["a prompt"]}], "response": WORDS["an answer"]}
    return line | {
        "headers": {"authorization": f"Bearer {WORDS['an API key']}"},
        "user_email": WORDS["an e-mail address"],
        "remote_addr": WORDS["an address"],
    }


def mapped(k: int) -> dict[str, Any]:
    """A line of a log that nobody knows."""
    return {
        "ts": 0.2 * k,
        "in": 100 + k,
        "out": 20,
        "org": NAMES["tenant"],
        "conversation": NAMES["session"],
        "dedupe": f"{NAMES['idempotency key']}-{k}",
        "who": NAMES["client"],
        "text": " ".join(WORDS.values()),
        "took": 0.3,
        "state": "ok",
    }


MAPPING = {
    "arrival_s": "ts",
    "prompt_tokens": "in",
    "output_tokens": "out",
    "tenant": "org",
    "session_id": "conversation",
    "idempotency_key": "dedupe",
    "client": "who",
    "e2e_s": "took",
    "status": "state",
}


def as_lines(path: Path, line: Callable[[int], dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line(k)) + "\n" for k in range(40)))


def as_parquet(path: Path, line: Callable[[int], dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist([line(k) for k in range(40)]), path)


KINDS = {
    "gateway": (as_lines, gateway, {}),
    "jsonl": (as_lines, mapped, MAPPING),
    "parquet": (as_parquet, mapped, MAPPING),
}


def planted(directory: Path, kind: str) -> tuple[str, list[str]]:
    """A log with secrets in it, and what `replay ingest` is told of it."""
    write, line, mapping = KINDS[kind]
    path = directory / f"{NAMES['file']}.{kind}"
    write(path, line)
    return str(path), [word for key, column in mapping.items() for word in ("--map", f"{key}={column}")]


def run_cli(*arguments: str) -> str:
    """What a command prints."""
    done = CliRunner().invoke(cli, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def every_output(log: str, told: list[str], directory: Path, profile: str) -> Iterator[tuple[str, str]]:
    """Everything that a person can make of a log: (what it is, every text in it)."""
    trace, run = str(directory / "trace.parquet"), str(directory / "run")
    yield "ingest --json", run_cli("ingest", log, "-o", trace, "--json", *told)
    yield "describe", run_cli("describe", trace)
    yield "describe --json", run_cli("describe", trace, "--json")
    command = ["run", trace, "-o", run, "--profile", profile, "--policy", "cancel", "--policy", "coalesce", "--json"]
    yield "run --json", run_cli(*command)
    yield "report --json", run_cli("report", run, "--json")
    yield "a query", run_cli("query", "tenants", run, "--format", "csv")
    yield "SQL", run_cli("sql", run, "SELECT * FROM observed", "--format", "json")
    run_cli("export", run, "--duckdb", str(directory / "export.duckdb"))
    for path in sorted(p for p in directory.rglob("*") if p.is_file() and str(p) != log):
        yield str(path.relative_to(directory)), texts_of(path)


def texts_of(path: Path) -> str:
    """Every text in a file, unpacked."""
    if path.suffix == ".parquet":
        table = pq.read_table(path, partitioning=None)
        return repr(table.to_pylist()) + repr(table.schema.metadata)
    if path.suffix == ".duckdb":
        with duckdb.connect(str(path), read_only=True) as database:
            tables = [name for (name,) in database.sql("SELECT table_name FROM duckdb_tables()").fetchall()]
            return repr([database.table(name).fetchall() for name in tables])
    return path.read_bytes().decode("latin-1")


def found(secrets: dict[str, str], outputs: Iterator[tuple[str, str]]) -> list[str]:
    """Where secrets show."""
    return [f"{name}: {what}" for name, text in outputs for what, secret in secrets.items() if secret in text]


@pytest.mark.parametrize("kind", KINDS)
def test_no_output_holds_what_was_said_or_who_may_ask(kind: str, tmp_path: Path, profile_file: str) -> None:
    log, told = planted(tmp_path, kind)
    assert found(WORDS, every_output(log, told, tmp_path, profile_file)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_output_of_an_anonymized_log_holds_a_name(kind: str, tmp_path: Path, profile_file: str) -> None:
    (tmp_path / "logs").mkdir()
    log, told = planted(tmp_path / "logs", kind)
    (tmp_path / "out").mkdir()
    outputs = every_output(log, [*told, "--anonymize"], tmp_path / "out", profile_file)
    assert found(WORDS | NAMES, outputs) == []


def test_a_secret_would_be_found(tmp_path: Path, profile_file: str) -> None:
    log, told = planted(tmp_path, "gateway")
    shown = {line.split(": ")[1] for line in found(NAMES, every_output(log, told, tmp_path, profile_file))}
    assert shown == set(NAMES)


def test_rows_that_cannot_be_used_are_not_quoted(tmp_path: Path) -> None:
    lines = [gateway(k) for k in range(8)]
    for line, (key, secret) in zip(
        lines, [(k, s) for k in ("prompt", "start", "status") for s in WORDS.values()], strict=False
    ):
        line[key] = secret
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *map(gateway, range(9, 20))]))
    said = CliRunner().invoke(cli, ["ingest", str(path), "-o", str(tmp_path / "trace.parquet")]).output
    assert "dropped" in said
    assert [what for what, secret in WORDS.items() if secret in said + texts_of(tmp_path / "trace.parquet")] == []


def test_equal_names_stay_equal_and_different_ones_different(tmp_path: Path) -> None:
    lines = [gateway(k) | {"tenant": f"t{k % 3}", "client": f"t{k % 3}", "session": None} for k in range(30)]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    trace = replay.ingest([str(path)])
    hidden = anonymized(trace, fresh_key())
    before, after = (t.calls["tenant"].to_pylist() for t in (trace, hidden))
    assert [before.index(name) for name in before] == [after.index(name) for name in after]
    assert set(after) & set(hidden.calls["client"].to_pylist()) == set()
    assert hidden.calls["session_id"].null_count == 30
    alike = [name for name in trace.calls.column_names if trace.calls[name].equals(hidden.calls[name])]
    assert set(trace.calls.column_names) - set(alike) == {"source_call", "idempotency_key", "tenant", "client"}


def test_a_key_of_ones_own_names_alike_in_every_trace_and_a_thrown_away_one_never(tmp_path: Path) -> None:
    log, told = planted(tmp_path, "gateway")
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    tenants = []
    for name, how in {
        "a": ["--anonymize-key", str(key)],
        "b": ["--anonymize-key", str(key)],
        "c": ["--anonymize"],
    }.items():
        run_cli("ingest", log, "-o", str(tmp_path / name), *how, *told)
        tenants.append(read_trace(str(tmp_path / name)).calls["tenant"][0].as_py())
    assert tenants[0] == tenants[1] != tenants[2]


def test_a_key_that_guards_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("hunter2\n")
    for name, words in (("short", "at least 16 bytes"), ("missing", "cannot be read")):
        with pytest.raises(BadConfig, match=words):
            key_from(str(tmp_path / name))


def test_prefixes_are_shared_as_before_under_hashes_that_nobody_can_look_up() -> None:
    trace = replay.ingest(["synthetic:poisson"], options={"calls": 300, "prefixes": 4, "prefix_share": 0.6})
    hidden = anonymized(trace, b"0" * 32)
    before, after = (t.calls["block_hashes"].to_pylist() for t in (trace, hidden))
    assert [None if hashes is None else before.index(hashes) for hashes in before] == [
        None if hashes is None else after.index(hashes) for hashes in after
    ]
    known = {h for hashes in before if hashes for h in hashes}
    assert not known & {h for hashes in after if hashes for h in hashes}


def test_an_anonymized_trace_replays_as_the_log_does(tmp_path: Path, profile_file: str) -> None:
    log, _ = planted(tmp_path, "gateway")
    trace = replay.ingest([log])
    settings = {"profile": profile_file, "policies": ["cancel", "coalesce"]}
    runs = [
        replay.run(t, str(tmp_path / name), settings)
        for name, t in (("a", trace), ("b", anonymized(trace, fresh_key())))
    ]
    ends = [run.sql("SELECT policy, call_id, outcome, end_s FROM calls ORDER BY ALL") for run in runs]
    assert ends[0].equals(ends[1])
    assert np.isfinite(ends[0]["end_s"].to_numpy()).all()
