"""Runs: plan the cells of an experiment, run them, read the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from replay.config import layered, log_settings
from replay.ingest import Trace, read_trace
from replay.runner.execution import execute, execute_all
from replay.runner.inline import InlineExecutor
from replay.runner.plan import make_plan
from replay.runner.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["InlineExecutor", "Run", "Store", "execute", "execute_all", "make_plan", "run"]


@dataclass(frozen=True, slots=True)
class Run:
    """A run directory."""

    path: str

    def sql(self, text: str) -> pa.Table:
        """The result of SQL over the views of the run. Raises BadConfig."""
        from queries import run_sql

        return run_sql(self.path, text)

    def query(self, name: str, **parameters: Any) -> pa.Table:
        """The result of a named query. Raises UnknownName."""
        from queries import run_query

        return run_query(self.path, name, parameters)


def run(trace: Trace | str, path: str, settings: Mapping[str, Any] | None = None) -> Run:
    """Replay a trace under the policies of an experiment, and write the results to `path`.

    `settings` are those of an experiment file. Raises BadConfig, BadInput and RunFailed.
    """
    if isinstance(trace, str):
        trace = read_trace(trace)
    experiment, sources = layered(
        [("log", log_settings(trace.client, trace.about.added)), ("argument", settings or {})]
    )
    store = Store(path)
    execute(make_plan(experiment, sources, trace), store, InlineExecutor(store), lambda _: None)
    return Run(path)
