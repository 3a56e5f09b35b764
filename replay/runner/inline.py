"""Cells one after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from replay.runner.cells import Cell, CellReport, Limits, Report, run_cell
from replay.runner.store import Store


class InlineExecutor:
    """The executor without a cluster."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def run(
        self, cells: Sequence[Cell], calls: Sequence[pa.Table], limits: Limits, on_progress: Report
    ) -> Iterator[CellReport]:
        for done, cell in enumerate(cells):

            def within(share: float, done: int = done) -> None:
                on_progress((done + share) / len(cells))

            yield run_cell(cell, calls[cell.partition], limits, self.store, within)
            on_progress((done + 1) / len(cells))
