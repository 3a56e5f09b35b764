"""What nobody may read in what is written: secrets are planted in logs, and looked for in every output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import replay
from replay.anonymize import NAMES as PSEUDONYMS
from replay.anonymize import anonymized, fresh_key, key_from
from replay.cli import cli
from replay.errors import BadConfig, BadInput
from replay.ingest import Trace, ingest, read_trace
from trace_schema.calls import CALLS

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
    call = f"{NAMES['request']}-{k - k % 2}"
    line = {"call": call, "attempt": k % 2, "prompt": 100 + k, "output": 20, "start": 0.2 * k}
    line |= {
        "end": 0.2 * k + 0.1,
        "status": "ok" if k % 2 else "timeout",
        "tenant": NAMES["tenant"],
        "client": NAMES["client"],
    }
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


def of_trace(log: str, told: list[str], directory: Path) -> Iterator[tuple[str, str]]:
    """What a person can make of a log without a run: (what it is, every text in it)."""
    trace = directory / "trace.parquet"
    yield "ingest --json", run_cli("ingest", log, "-o", str(trace), "--json", *told)
    yield "describe", run_cli("describe", str(trace))
    yield "describe --json", run_cli("describe", str(trace), "--json")
    yield "the trace", texts_of(trace)


def of_run(log: str, told: list[str], directory: Path, profile: str) -> Iterator[tuple[str, str]]:
    """What he can make of it with one."""
    yield from of_trace(log, told, directory)
    trace, run = str(directory / "trace.parquet"), str(directory / "run")
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
def test_a_trace_holds_nothing_that_was_said_and_under_pseudonyms_no_name(kind: str, tmp_path: Path) -> None:
    log, told = planted(tmp_path, kind)
    assert found(WORDS, of_trace(log, told, tmp_path)) == []
    assert found(WORDS | NAMES, of_trace(log, [*told, "--anonymize"], tmp_path)) == []


def test_no_output_of_a_run_holds_what_was_said(tmp_path: Path, profile_file: str) -> None:
    log, told = planted(tmp_path, "gateway")
    outputs = list(of_run(log, told, tmp_path, profile_file))
    assert found(WORDS, iter(outputs)) == []
    # The same search finds the names that are there to be found.
    assert {line.split(": ")[1] for line in found(NAMES, iter(outputs))} == set(NAMES)


def test_no_output_of_a_run_of_an_anonymized_log_holds_a_name(tmp_path: Path, profile_file: str) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "out").mkdir()
    log, told = planted(tmp_path / "logs", "gateway")
    assert found(WORDS | NAMES, of_run(log, [*told, "--anonymize"], tmp_path / "out", profile_file)) == []


LOGS = sorted((Path(__file__).parent / "fixtures" / "logs").iterdir())
KEPT = {"model", "deployment"}
"""Columns whose names stay: they tell engines apart."""
BODIES = {
    "messages", "content", "text", "prompt", "completion", "response", "input", "output", "request_body",
    "response_body", "inputBodyJson", "outputBodyJson", "input.value", "output.value", "gen_ai.input.messages",
    "gen_ai.output.messages", "gen_ai.prompt", "gen_ai.completion", "authorization", "api_key", "email",
}  # fmt: skip
"""Keys of what is said, and of what lets one in, in the logs of all tools."""


def documents_of(path: Path) -> tuple[list[Any], bool]:
    """The JSON values of a log, and whether they stand a line each; none where it is no JSON."""
    text = path.read_text()
    try:
        return [json.loads(text)], False
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()], True
    except ValueError:
        return [], False


def keys_in(value: Any) -> set[str]:
    """The keys under which texts stand; of OpenTelemetry's lists, the names of the attributes."""
    if isinstance(value, list):
        return {key for item in value for key in keys_in(item)}
    if not isinstance(value, dict):
        return set()
    if set(value) == {"key", "value"}:
        return {value["key"]}
    mine = {key for key, item in value.items() if isinstance(item, str)}
    return mine | {key for item in value.values() for key in keys_in(item)}


def with_secret(value: Any, key: str, secret: str, here: bool = False) -> Any:
    """`value` with a secret after each text below a key."""
    if isinstance(value, str) and here:
        return f"{value} {secret}"
    if isinstance(value, list):
        return [with_secret(item, key, secret, here) for item in value]
    if not isinstance(value, dict):
        return value
    named = value.get("key") if set(value) == {"key", "value"} else None
    return {name: with_secret(item, key, secret, here or key in (name, named)) for name, item in value.items()}


def planted_in(path: Path, directory: Path, keys: set[str] | None, secret: str) -> Iterator[tuple[str, str]]:
    """Copies of a log with a secret under one key each (of `keys`, or of all): (the key, the copy)."""
    documents, lines = documents_of(path)
    if not documents:
        copy = directory / path.name
        copy.write_text(path.read_text().replace(" HTTP/1", f"?q={secret} HTTP/1"))
        yield "the path", str(copy)
    for key in sorted(keys_in(documents) & keys if keys is not None else keys_in(documents)):
        copy = directory / path.name
        changed = [with_secret(document, key, secret) for document in documents]
        copy.write_text("\n".join(json.dumps(d) for d in changed) + "\n" if lines else json.dumps(changed[0]))
        yield key, str(copy)


def shown_by(trace: Trace, secret: str) -> set[str]:
    """Where a trace shows a secret: columns, or its account of itself."""
    columns = {
        name
        for name in trace.calls.column_names
        if pa.types.is_string(trace.calls[name].type)
        and any(secret in (text or "") for text in trace.calls[name].to_pylist())
    }
    return columns | ({"about"} if secret.encode() in msgspec.json.encode(trace.about) else set())


def shown_by_ingest(log: str, secret: str) -> set[str]:
    """Where the trace of a log shows a secret, or the message that it makes none (access logs know no sizes)."""
    try:
        return shown_by(ingest([log]), secret)
    except BadInput as error:
        return {"the message"} if secret in str(error) else set()


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
def test_what_is_said_in_a_log_of_any_tool_never_comes_into_a_trace(log: Path, tmp_path: Path) -> None:
    secret = "Zwetschgenkrampf"
    for key, copy in planted_in(log, tmp_path, BODIES, secret):
        assert shown_by_ingest(copy, secret) == set(), key


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
def test_under_whatever_key_a_name_stands_an_anonymized_trace_does_not_hold_it(log: Path, tmp_path: Path) -> None:
    secret = "Zwetschgenkrampf"
    for key, copy in planted_in(log, tmp_path, None, secret):
        with suppress(BadInput):  # a time, a status or a size that cannot be read any more
            assert shown_by(anonymized(ingest([copy]), fresh_key()), secret) <= KEPT, key


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


def test_every_text_of_a_call_is_a_word_of_ours_or_has_a_pseudonym() -> None:
    ours = {"timeout_kind", "observed_status", "prompt_token_source", "retry_source", "retry_certainty"}
    texts = {field.name for field in CALLS.fields if field.type == pa.string()}
    assert texts - ours - KEPT == set(PSEUDONYMS)


def test_equal_names_stay_equal_and_different_ones_different(tmp_path: Path) -> None:
    lines = [
        gateway(k) | {"call": k, "attempt": 0, "tenant": f"t{k % 3}", "client": f"t{k % 3}", "session": None}
        for k in range(30)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    trace = ingest([str(path)])
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
    trace = ingest(["synthetic:poisson"], options={"calls": 300, "prefixes": 4, "prefix_share": 0.6})
    hidden = anonymized(trace, b"0" * 32)
    before, after = (t.calls["block_hashes"].to_pylist() for t in (trace, hidden))
    assert [None if hashes is None else before.index(hashes) for hashes in before] == [
        None if hashes is None else after.index(hashes) for hashes in after
    ]
    known = {h for hashes in before if hashes for h in hashes}
    assert not known & {h for hashes in after if hashes for h in hashes}


def test_an_anonymized_trace_replays_as_the_log_does(tmp_path: Path, profile_file: str) -> None:
    log, _ = planted(tmp_path, "gateway")
    trace = ingest([log])
    settings = {"profile": profile_file, "policies": ["cancel", "coalesce"]}
    runs = [
        replay.run(t, str(tmp_path / name), settings)
        for name, t in (("a", trace), ("b", anonymized(trace, fresh_key())))
    ]
    ends = [run.sql("SELECT policy, call_id, outcome, end_s FROM calls ORDER BY ALL") for run in runs]
    assert ends[0].equals(ends[1])
    assert np.isfinite(ends[0]["end_s"].to_numpy()).all()
