"""A run as one DuckDB file: its tables with their rows, and the named queries as views over them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from queries import Query, connect, load, names, sentence
from trace_schema.errors import BadConfig

READABLE_FROM = "v1.2.0"
"""The oldest DuckDB that can open the file: people's shells are older than their Python packages."""


def export_duckdb(run: str, output: str) -> list[str]:
    """Write the database, whole or not at all, and return the names of its tables and views.

    A query with parameters becomes a view with their defaults. Raises BadConfig when the file exists or cannot be
    written, and BadInput when `run` is no run directory.
    """
    import duckdb

    target = Path(output)
    if target.exists():
        raise BadConfig(f"{output}: is there already; name another file, or remove it")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        tables = copy_tables(run, temporary)
        with duckdb.connect(str(temporary)) as database:
            for name in names():
                database.execute(f"CREATE VIEW {name} AS {with_defaults(load(name))}")
        os.replace(temporary, target)
    except duckdb.IOException as error:
        raise BadConfig(f"{output}: cannot be written: {sentence(error)}") from error
    except OSError as error:
        raise BadConfig(f"{output}: cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
        with suppress(OSError):
            temporary.with_name(f"{temporary.name}.wal").unlink()
    return [*tables, *names()]


def copy_tables(run: str, database: Path) -> Sequence[str]:
    """Every view of `views.sql` as a table with its rows, and the macros that queries use."""
    with connect(run) as connection:
        tables = [str(name) for (name,) in connection.execute("SHOW TABLES").fetchall()]
        macros = connection.execute(
            "SELECT function_name, parameters, if(function_type = 'macro', '', 'TABLE ') || macro_definition "
            "FROM duckdb_functions() WHERE function_type IN ('macro', 'table_macro') AND NOT internal "
            "AND function_name NOT IN ('place', 'cells')"
        ).fetchall()
        quoted = str(database).replace("'", "''")
        connection.execute(f"ATTACH '{quoted}' AS exported (STORAGE_VERSION '{READABLE_FROM}')")
        for table in tables:
            connection.execute(f"CREATE TABLE exported.{table} AS SELECT * FROM memory.main.{table}")
        for name, parameters, definition in macros:
            connection.execute(f"CREATE MACRO exported.{name}({', '.join(parameters)}) AS {definition}")
        connection.execute("DETACH exported")
    return tables


def with_defaults(query: Query) -> str:
    """The SQL of a query with its parameters' defaults in their places."""
    sql = query.sql
    for key, default in query.parameters.items():
        sql = sql.replace(f"${key}", f"'{default}'" if isinstance(default, str) else f"{default:g}::DOUBLE")
    return sql
