"""Tables for people and programs: one renderer for the results of queries."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("table", "csv", "json", "markdown")
WIDTH = 100
"""Columns of a page, where the terminal does not say."""
GROUP = ("profile", "fleet")
"""Columns that people need not see where all rows agree."""
Row = Sequence[str]


def render(table: pa.Table, format: str = "table") -> str:
    """A query's result as text: table, csv, json or markdown."""
    names = distinct(table.column_names)
    rows = [list(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
    if format == "json":
        return json.dumps([dict(zip(names, map(plain, row), strict=True)) for row in rows], indent=1)
    if format == "csv":
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        writer.writerows([names, *rows])
        return sink.getvalue().rstrip("\n")
    names, rows = without_constant(names, rows)
    texts = [[text(value) for value in row] for row in rows]
    if format == "markdown":
        lines = [names, ["---"] * len(names), *texts]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    turned = [list(column) for column in zip(names, *texts, strict=True)]
    page = shutil.get_terminal_size((WIDTH, 0)).columns
    if rows and width(names, texts) > max(page, width(turned[0], turned[1:])):
        return grid(turned[0], turned[1:])
    return grid(names, texts)


def without_constant(names: list[str], rows: list[list[Any]]) -> tuple[list[str], list[list[Any]]]:
    """The table without the columns of GROUP in which all rows agree."""
    kept = [k for k, name in enumerate(names) if name not in GROUP or len({row[k] for row in rows}) > 1]
    return [names[k] for k in kept], [[row[k] for k in kept] for row in rows]


def width(names: Sequence[str], rows: Sequence[Row]) -> int:
    """Characters that a grid takes."""
    return sum(max(len(row[k]) for row in (names, *rows)) + 3 for k in range(len(names)))


def distinct(names: Sequence[str]) -> list[str]:
    """Names of columns, the second `end_s` of a join being `end_s_2`."""
    return [f"{name}_{n}" if (n := names[: k + 1].count(name)) > 1 else name for k, name in enumerate(names)]


def plain(value: Any) -> Any:
    """A value that JSON has: infinity and NaN become null, what it has no word for becomes text."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def text(value: Any) -> str:
    """A value in few characters."""
    if value is None:
        return "-"
    if isinstance(value, (Decimal, list, Mapping)):
        value = plain(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return "never" if value > 0 else str(value)
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return " ".join(str(value).split("\n"))


def grid(names: Sequence[str], rows: Iterable[Row], title: str = "") -> str:
    """Aligned columns: words to the left, figures to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    rows = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for k, name in enumerate(names):
        words = not any(row[k].lstrip("-")[:1].isdigit() or row[k] in ("-", "never") for row in rows)
        table.add_column(name, justify="left" if words else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    sink = io.StringIO()
    page = width(names, rows) + 2
    console = Console(file=sink, width=page, color_system=None, markup=False, highlight=False)
    console.print(table)
    lines = [title] if title else []
    return "\n".join([*lines, *(line.rstrip() for line in sink.getvalue().strip("\n").splitlines())]).strip("\n")
