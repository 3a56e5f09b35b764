"""A run as one DuckDB file gives the answers that the run gives."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from queries import load, names, run_query, run_sql
from queries.export import export_duckdb
from trace_schema.errors import BadConfig, BadInput


@pytest.fixture(scope="module")
def exported(run_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("export") / "it's out.db"
    export_duckdb(str(run_directory), str(target))
    return target


def test_the_tables_have_their_rows(exported: Path, run_directory: Path) -> None:
    with duckdb.connect(str(exported), read_only=True) as database:
        for table in ("calls", "attempts", "executions", "timeline", "replicas", "policies", "phases", "observed"):
            text = f"SELECT * FROM {table} ORDER BY ALL"
            assert database.sql(text).to_arrow_table() == run_sql(str(run_directory), text)
        kinds = dict(database.sql("SELECT table_name, table_type FROM information_schema.tables").fetchall())
    assert (kinds["calls"], kinds["summary"]) == ("BASE TABLE", "VIEW")


@pytest.mark.parametrize("name", names())
def test_every_named_query_is_a_view_with_its_defaults(name: str, exported: Path, run_directory: Path) -> None:
    with duckdb.connect(str(exported), read_only=True) as database:
        rows = database.sql(f"SELECT * FROM {name}").to_arrow_table().to_pylist()
    expected = run_query(str(run_directory), name).to_pylist()
    assert len(rows) == len(expected)
    for row, other in zip(rows, expected, strict=True):
        assert row == pytest.approx(other, nan_ok=True)


def test_it_stands_alone(exported: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.db"
    moved.write_bytes(exported.read_bytes())
    with duckdb.connect(str(moved), read_only=True, config={"enable_external_access": "false"}) as database:
        assert database.sql("SELECT count(*) FROM summary").fetchall() == [(2,)]


def test_defaults_stand_where_the_parameters_were(exported: Path) -> None:
    with duckdb.connect(str(exported), read_only=True) as database:
        assert database.sql("SELECT max(place) FROM worst_calls").fetchall() == [
            (load("worst_calls").parameters["limit"],)
        ]


def test_a_file_that_is_there_is_not_overwritten(exported: Path, run_directory: Path) -> None:
    with pytest.raises(BadConfig, match="is there already"):
        export_duckdb(str(run_directory), str(exported))


def test_nothing_is_left_of_an_export_that_fails(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a run directory"):
        export_duckdb(str(tmp_path), str(tmp_path / "out.db"))
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(run_directory: Path, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"nowhere/out.db: cannot be written"):
        export_duckdb(str(run_directory), str(tmp_path / "nowhere" / "out.db"))
