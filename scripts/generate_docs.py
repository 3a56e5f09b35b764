"""Write the generated pages of docs/ from what they describe; `--check` tells if they are current."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from policies_page import policies_page
from profiles_page import profiles_page
from queries_page import queries_page
from recommend_page import recommend_page
from synthetic_page import synthetic_page

from queries.meaning import ADDED, EVERYWHERE, ROWS
from trace_schema.attempts import ATTEMPTS
from trace_schema.calls import CALLS
from trace_schema.fields import Field, TableSchema
from trace_schema.results import RESULTS

DOCS = Path(__file__).parent.parent / "docs"


def schema_page() -> str:
    """Every table: its fields with type, unit and sentence."""
    parts = [
        "# Schemas",
        "Generated from `trace_schema/` by `make docs`. A field marked ? may be null: unknown in a trace, not happened "
        "in a result. A trace file leaves out the columns that are null in every call.",
        "## What a trace is made of",
        *map(table_section, (ATTEMPTS, CALLS)),
        "## What a run writes",
        *map(table_section, RESULTS),
        "## What `views.sql` adds",
        "Every table of cells has the columns "
        + ", ".join(f"`{name}` ({sentence})" for name, (_, sentence) in EVERYWHERE.items() if name != "phase")
        + ". `calls` and `observed` have `phase` as well.",
        *map(added_section, ADDED),
    ]
    return "\n\n".join(parts) + "\n"


def table_section(schema: TableSchema) -> str:
    """One table."""
    rows = [f"| `{f.name}`{'?' if f.nullable else ''} | {type_of(f)} | {f.unit} | {f.doc} |" for f in schema.fields]
    head = ["| field | type | unit | |", "|---|---|---|---|"]
    return f"### {schema.name}\n\nOne row: {schema.row}.\n\n" + "\n".join([*head, *rows])


def type_of(field: Field) -> str:
    """Its Arrow type in a word or two."""
    return "string (dictionary)" if pa.types.is_dictionary(field.type) else str(field.type)


def added_section(table: str) -> str:
    """What the views add to a table, or all of one that only they have."""
    rows = [f"| `{name}` | {unit} | {sentence} |" for name, (unit, sentence) in ADDED[table].items()]
    head = ["| column | unit | |", "|---|---|---|"]
    return f"### {table} (view)\n\nOne row: {ROWS[table]}.\n\n" + "\n".join([*head, *rows])


PAGES = {
    "schema.md": schema_page,
    "policies.md": policies_page,
    "queries.md": queries_page,
    "synthetic.md": synthetic_page,
    "profiles.md": profiles_page,
    "recommend.md": recommend_page,
}


def stale() -> Iterable[str]:
    """Pages that are not what their sources say."""
    for name, page in PAGES.items():
        path = DOCS / name
        if not path.exists() or path.read_text() != page():
            yield name


def main() -> None:
    if "--check" in sys.argv:
        names_of_stale = list(stale())
        if names_of_stale:
            sys.exit(f"not current: {', '.join(names_of_stale)}; run make docs")
        return
    DOCS.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())


if __name__ == "__main__":
    main()
