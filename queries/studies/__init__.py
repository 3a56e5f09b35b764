"""SQL over what the runs of a study have in common: tables of its scenarios and their figures, not a run's Parquet.

`scenarios` has a row for each run: `scenario`, and what it stands for. `replays` has the rows of a query on each run,
with the column `scenario`. `figures` has `scenario, policy, figure`, and its `mean`, `low` and `high` over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def ask(name: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The result of the SQL called `name` over `tables`, by their names."""
    import duckdb

    sql = (files(__name__) / f"{name}.sql").read_text()
    with duckdb.connect() as connection:
        for table, rows in tables.items():
            connection.register(table, rows)
        return connection.sql(sql).to_arrow_table()
