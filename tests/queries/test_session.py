"""SQL on a run reads the run, and writes nowhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from queries.meaning import ADDED, ROWS, meaning
from queries.session import Session
from trace_schema.errors import BadConfig, BadInput, UnknownName


def files_in(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*")}


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO '{here}/a.csv'",
        "COPY (SELECT 1) TO '{run}/a.csv'",
        "copy calls to '{run}/manifest.json'",
        "EXPORT DATABASE '{here}/out'",
        "ATTACH '{here}/a.db' AS a",
        "SELECT 1; COPY (SELECT 1) TO '{run}/a.csv'",
        "PREPARE p AS COPY (SELECT 1) TO '{run}/a.csv'; EXECUTE p",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{run}/a.csv'",
        "SET enable_external_access = true",
        "SET profiling_output = '{here}/profile'",
        "INSTALL httpfs",
        "SELECT * FROM read_csv('{here}/secret.csv')",
        "CREATE TABLE t AS SELECT * FROM '{here}/secret.csv'",
    ],
)
def test_nothing_is_written_and_nothing_else_is_read(sql: str, run_directory: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    before = files_in(run_directory), files_in(tmp_path)
    with Session(str(run_directory)) as session, pytest.raises(BadConfig, match=r"^SQL: "):
        session.sql(sql.format(run=run_directory, here=tmp_path))
    assert (files_in(run_directory), files_in(tmp_path)) == before


def test_what_is_made_in_a_session_lasts_as_long(run_directory: Path) -> None:
    with Session(str(run_directory)) as session:
        session.sql("CREATE TABLE mine AS SELECT policy, count(*) AS n FROM calls GROUP BY ALL")
        session.sql("SET VARIABLE least = 100")
        rows = session.sql("SELECT count(*) AS n FROM mine WHERE n > getvariable('least')").to_pylist()
        assert rows == [{"n": 2}]
        assert "mine" in session.tables()
        assert session.columns("mine") == {"policy": "VARCHAR", "n": "BIGINT"}
    with Session(str(run_directory)) as session:
        assert "mine" not in session.tables()
        assert "calls" in session.tables()


def test_every_column_has_a_meaning(run_directory: Path) -> None:
    with Session(str(run_directory)) as session:
        held = {table: session.columns(table) for table in session.tables()}
    assert held.keys() | {"steps"} == ROWS.keys()
    for table, columns in held.items():
        assert [column for column in columns if not meaning(table, column)[1]] == []
        assert ADDED.get(table, {}).keys() <= columns.keys()


def test_a_session_answers_named_queries_too(run_directory: Path) -> None:
    with Session(str(run_directory)) as session:
        assert session.query("worst_calls", {"limit": "3"}).num_rows == 6
        with pytest.raises(UnknownName, match="did you mean summary"):
            session.query("sumary")


def test_a_run_whose_path_holds_anything_is_read(run_directory: Path, tmp_path: Path) -> None:
    odd = tmp_path / "it's [a] run*"
    os.symlink(run_directory, odd)
    with Session(str(odd)) as session:
        assert session.sql("SELECT count(*) AS n FROM calls").to_pylist() == [{"n": 240}]


def test_a_directory_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a run directory"):
        Session(str(tmp_path))
