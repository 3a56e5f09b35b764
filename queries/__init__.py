"""Every figure is a SQL file. This finds them, reads their headers, and runs them on a run directory with DuckDB."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trace_schema.errors import BadConfig, BadInput, UnknownName

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

VIEWS = "views"
Value = float | str
"""What a parameter may be."""


@dataclass(frozen=True, slots=True)
class Query:
    """One SQL file: what it is for, the parameters it takes with their defaults, what its columns mean."""

    name: str
    purpose: str
    columns: str
    parameters: dict[str, Value]
    sql: str


def names() -> list[str]:
    """All queries."""
    found = (Path(str(f)) for f in files(__name__).iterdir() if f.name.endswith(".sql"))
    return sorted(path.stem for path in found if path.stem != VIEWS)


def views_sql() -> str:
    """The text of views.sql."""
    return (files(__name__) / f"{VIEWS}.sql").read_text()


def load(name: str) -> Query:
    """The query called `name`. Raises UnknownName."""
    if name not in names():
        raise UnknownName.of("query", name, names())
    sql = (files(__name__) / f"{name}.sql").read_text()
    comment = re.sub(r"\n--   ", " ", "\n".join(line for line in sql.splitlines() if line.startswith("--")))
    header = dict(re.findall(r"^-- (\w+): (.*)$", comment, re.MULTILINE))
    defaults = re.findall(r"(\w+)=(?:\"(\w*)\"|([\d.]+))", header.get("parameters", ""))
    parameters = {key: float(number) if number else words for key, words, number in defaults}
    return Query(name, header["purpose"], header["columns"], parameters, sql)


def connect(run: str) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with the views of a run directory. Raises BadInput when it is none."""
    import duckdb

    if not (Path(run) / "run.parquet").exists():
        raise BadInput.at(run, "is not a run directory: it has no run.parquet")
    connection = duckdb.connect()
    try:
        connection.execute("SET VARIABLE run = $place", {"place": glob.escape(str(Path(run).resolve()))})
        connection.execute(views_sql())
    except duckdb.Error as error:
        if "No files found" in str(error):
            raise BadInput.at(run, "holds no finished cell yet; run it again to finish it") from error
        raise BadInput.at(run, f"cannot be read: {sentence(error)}") from error
    return connection


def sentence(error: Exception) -> str:
    """DuckDB's words on one line, without the picture of where it stopped."""
    return " ".join(str(error).partition("\n\nLINE")[0].split())


def bound(query: Query, given: Mapping[str, Any]) -> dict[str, Value]:
    """The values of a query's parameters: those given, else its defaults. Raises UnknownName and BadConfig."""
    for key in given:
        if key not in query.parameters:
            raise UnknownName.of(f"parameter of {query.name}", key, query.parameters or ["(it takes none)"])
    return {key: parameter(key, given.get(key, default), default) for key, default in query.parameters.items()}


def parameter(key: str, value: Any, default: Value) -> Value:
    """A value, of the kind that its default is. Raises BadConfig."""
    if isinstance(default, str):
        return str(value)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise BadConfig(f"parameter {key}={value}: is not a number") from None


def run_query(run: str, name: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
    """The result of a named query on a run directory. Raises UnknownName, BadConfig, BadInput."""
    query = load(name)
    values = bound(query, parameters or {})
    with connect(run) as connection:
        return answer(connection, run, query, values)


def answer(connection: duckdb.DuckDBPyConnection, run: str, query: Query, values: Mapping[str, Value]) -> pa.Table:
    """The result of a query with its parameters bound. Raises BadConfig and BadInput."""
    import duckdb

    try:
        return connection.sql(query.sql, params=dict(values) or None).to_arrow_table()
    except duckdb.Error as error:
        said = sentence(error).removeprefix("Invalid Input Error: ")
        if said.startswith(tuple(f"{key}: " for key in query.parameters)):  # the SQL itself refuses a parameter
            raise BadConfig(f"query {query.name}: {said}") from error
        raise BadInput.at(run, f"cannot be read: {sentence(error)}") from error


def run_sql(run: str, sql: str) -> pa.Table:
    """The result of a user's SQL on a run directory. Raises BadConfig with DuckDB's own words."""
    from queries.session import Session

    with Session(run) as session:
        return session.sql(sql)
