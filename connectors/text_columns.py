"""CSVs of one kind whose columns say together what a row is: read as texts, under names of the reader's own."""

from __future__ import annotations

from collections.abc import Iterator

from connectors.base import Batch
from connectors.delimited import TEXTS, layout_of, tables
from connectors.tabular import NamedCsv


class TextColumns(NamedCsv):
    """A `NamedCsv` whose `columns` makes fields of ATTEMPTS of what it finds, all of it texts."""

    def read(self, path: str) -> Iterator[Batch]:
        layout = layout_of(path)
        fields = self.sources(layout.names, path)
        for table, rows, dropped in tables(path, layout, dict.fromkeys(fields.values(), TEXTS)):
            yield self.batch(table, fields, rows, path, dropped)
