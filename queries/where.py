"""Which rows of a table a condition holds for, in the SQL of DuckDB."""

from __future__ import annotations

import pyarrow as pa

from queries import sentence
from trace_schema.errors import BadConfig


def rows_where(table: pa.Table, condition: str) -> pa.ChunkedArray:
    """For each row whether it meets `condition`, an expression over its columns; unknown counts as no.

    The SQL may read the table, as `attempts`, and nothing else. Raises BadConfig when it is no such condition.
    """
    import duckdb

    said = f"--where {condition!r}"
    with duckdb.connect() as connection:
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        connection.register("attempts", table)
        try:
            if len(connection.extract_statements(f"SELECT ({condition}\n)")) != 1:
                raise BadConfig(f"{said}: is more than one condition; join them with AND or OR")
            found = connection.sql(f"SELECT ({condition}\n) AS kept FROM attempts").to_arrow_table()["kept"]
        except duckdb.Error as error:
            raise BadConfig(f"{said}: {sentence(error)}") from error
    if found.type != pa.bool_():
        raise BadConfig(f"{said}: is not true or false but {found.type}; compare it with something")
    if len(found) != table.num_rows:
        raise BadConfig(f"{said}: must say something of each row; it has {len(found):,} answers for {table.num_rows:,}")
    return found.fill_null(False)
