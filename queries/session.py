"""SQL on a run directory that can read the run, and nothing else, and write nowhere."""

from __future__ import annotations

import glob
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from queries import answer, bound, connect, load, sentence
from trace_schema.errors import BadConfig

if TYPE_CHECKING:
    import pyarrow as pa

WRITING = ("COPY", "COPY_DATABASE", "EXPORT", "ATTACH", "LOAD", "UPDATE_EXTENSIONS")
"""Kinds of statements whose purpose is a file."""
WRAPPED = re.compile(r"^\s*(?:PREPARE\s+\S+\s+AS|EXPLAIN(?:\s+ANALYZE)?)\s+(?:COPY|EXPORT|ATTACH|LOAD|INSTALL)\b", re.I)


class Session:
    """A connection to the tables of a run; what is made in it (a table, a variable) lasts as long as it does."""

    def __init__(self, run: str) -> None:
        """Raises BadInput when `run` is no run directory."""
        self.run = run
        self.connection = connect(run)
        root = str(Path(run).resolve())
        pattern = glob.escape(root)  # what the views read, whose brackets stand for themselves
        self.connection.execute("SET allowed_directories = [$root, $pattern]", {"root": root, "pattern": pattern})
        spill = str(Path(tempfile.gettempdir()) / f"replay-sql-{os.getpid()}")  # only of what memory cannot hold
        self.connection.execute("SET temp_directory = $spill", {"spill": spill})
        self.connection.execute("SET python_enable_replacements = false")
        self.connection.execute("SET enable_external_access = false")
        self.connection.execute("SET lock_configuration = true")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.connection.close()

    def sql(self, text: str) -> pa.Table:
        """The result of SQL, of the last statement if there are several.

        Raises BadConfig with DuckDB's own words, and KeyboardInterrupt when it is interrupted.
        """
        import duckdb

        try:
            for statement in self.connection.extract_statements(text):
                if statement.type.name in WRITING or WRAPPED.match(statement.query):
                    raise BadConfig(f"SQL: {statement.query.split()[0].upper()} is not for here: a run is only read")
            return self.interruptible(lambda: self.carried_out(text))
        except duckdb.PermissionException as error:
            raise BadConfig(f"SQL: only the files of {self.run} can be read here, and none written") from error
        except duckdb.Error as error:
            raise BadConfig(f"SQL: {sentence(error)}") from error

    def carried_out(self, text: str) -> pa.Table:
        """The result of SQL; no columns where it has none."""
        import pyarrow as pa

        relation = self.connection.sql(text)
        return pa.table({}) if relation is None else relation.to_arrow_table()

    def interruptible(self, work: Callable[[], pa.Table]) -> pa.Table:
        """What `work` returns, unless Ctrl-C comes first: DuckDB hears of signals only from another thread."""
        import duckdb

        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            try:
                return future.result()
            except KeyboardInterrupt:
                self.connection.interrupt()
                with suppress(duckdb.Error):
                    future.result()
                raise

    def query(self, name: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """The result of a named query. Raises UnknownName, BadConfig, BadInput."""
        query = load(name)
        values = bound(query, parameters or {})
        return self.interruptible(lambda: answer(self.connection, self.run, query, values))

    def tables(self) -> list[str]:
        """The tables of the run, and those made in this session."""
        return [str(name) for (name,) in self.connection.execute("SHOW TABLES").fetchall()]

    def columns(self, table: str) -> dict[str, str]:
        """The columns of a table of `tables`, with their types."""
        rows = self.connection.execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = $table ORDER BY column_index",
            {"table": table},
        ).fetchall()
        return {str(name): str(kind) for name, kind in rows}
