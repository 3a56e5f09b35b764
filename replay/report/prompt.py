"""The prompt of `replay sql`: SQL on a run, statement by statement."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Mapping

from queries import load, names
from queries.meaning import ROWS, meaning
from queries.session import Session
from replay.errors import BadConfig, UnknownName, UserError
from replay.report.tables import grid, render

MODES = ("table", "csv", "json", "markdown")
ROWS_SHOWN = 100
"""Rows that are shown, unless .rows says otherwise."""
FIRST, NEXT = "replay> ", "   ...> "
HELP = """\
SQL ends with ';' and may span lines. Ctrl-C drops a statement, Ctrl-D leaves.
.tables          the tables, and what a row of each is
.schema TABLE    its columns, with units and meaning
.queries         the named queries
.run NAME [K=V]  run one of them, with parameters
.mode MODE       print as table, csv, json or markdown
.rows N          show N rows of a result at most; 0: all
.help            this
.quit            leave"""


class Prompt:
    """A loop that reads statements and commands, and prints what they give."""

    def __init__(
        self, session: Session, read: Callable[[str], str] = input, write: Callable[[str], None] = print
    ) -> None:
        self.session = session
        self.read = read
        self.write = write
        self.mode = "table"
        self.rows = ROWS_SHOWN
        self.commands: Mapping[str, Callable[[str], None]] = {
            ".tables": self.show_tables,
            ".schema": self.show_schema,
            ".queries": self.show_queries,
            ".run": self.run_named,
            ".mode": self.set_mode,
            ".rows": self.set_rows,
            ".help": lambda _: self.write(HELP),
            ".quit": self.leave,
            ".exit": self.leave,
        }

    def loop(self) -> None:
        """Until the user leaves. An error costs a line, Ctrl-C a statement."""
        lines: list[str] = []
        while True:
            try:
                lines.append(self.read(NEXT if lines else FIRST))
                if self.is_whole(lines):
                    text = "\n".join(lines).strip()
                    lines.clear()
                    self.answer(text)
            except KeyboardInterrupt:
                lines.clear()
                self.write("")
            except EOFError:
                if sys.stdin.isatty():
                    self.write("")
                return

    def is_whole(self, lines: list[str]) -> bool:
        """Whether what was typed can be answered: a command, nothing, or SQL up to its ';'."""
        text = "\n".join(lines).strip()
        return not text or text.startswith(".") or sqlite3.complete_statement(text)

    def answer(self, text: str) -> None:
        """Carry out a command or a statement; a mistake is one line."""
        try:
            if text.startswith("."):
                name, _, rest = text.rstrip("; ").partition(" ")
                if name not in self.commands:
                    raise UnknownName.of("command", name, self.commands)
                self.commands[name](rest.strip())
            elif text:
                self.show(self.session.sql(text))
        except UserError as error:
            self.write(f"error: {error}")

    def show(self, table: object) -> None:
        """Print a result, as far as rows are wanted."""
        import pyarrow as pa

        assert isinstance(table, pa.Table)
        if not table.column_names:
            return
        some = table.slice(0, self.rows) if self.rows else table
        self.write(render(some, self.mode))
        if some.num_rows < table.num_rows:
            self.write(f"({some.num_rows:,} of {table.num_rows:,} rows; .rows 0 shows all)")

    def show_tables(self, _: str) -> None:
        self.write(grid(["table", "a row is"], [[name, ROWS.get(name, "")] for name in self.session.tables()]))

    def show_schema(self, table: str) -> None:
        if table not in self.session.tables():
            raise UnknownName.of("table", table, self.session.tables())
        rows = [[name, kind, *meaning(table, name)] for name, kind in self.session.columns(table).items()]
        self.write(grid(["column", "type", "unit", "meaning"], rows))

    def show_queries(self, _: str) -> None:
        self.write("\n".join(f"{name:28}{load(name).purpose}" for name in names()))

    def run_named(self, words: str) -> None:
        name, *parameters = words.split() or [""]
        values = {}
        for word in parameters:
            key, equals, value = word.partition("=")
            if not equals:
                raise BadConfig(f".run NAME K=V: {word} is not K=V")
            values[key] = value
        self.show(self.session.query(name, values))

    def set_mode(self, mode: str) -> None:
        if mode not in MODES:
            raise UnknownName.of("mode", mode, MODES)
        self.mode = mode

    def set_rows(self, count: str) -> None:
        if not count.isdecimal():
            raise BadConfig(f".rows N: {count or 'nothing'} is not a number of rows")
        self.rows = int(count)

    def leave(self, _: str) -> None:
        raise EOFError


def completions(session: Session) -> list[str]:
    """What Tab can complete: commands, tables, their columns, named queries."""
    tables = session.tables()
    columns = {column for table in tables for column in session.columns(table)}
    return sorted({*tables, *columns, *names(), *Prompt(session).commands})


def prompt(run: str) -> None:
    """Read SQL on a run from the terminal, with line editing, history and completion. Raises BadInput."""
    with Session(run) as session:
        with_editing(completions(session))
        print(f"SQL on {run}; .tables lists its tables, .help the rest")
        Prompt(session).loop()


def with_editing(words: list[str]) -> None:
    """Let `input` edit lines, remember them, and complete `words`; where Python has no readline, it goes without."""
    try:
        import readline
    except ImportError:
        return

    def complete(text: str, state: int) -> str | None:
        found = [word for word in words if text and word.startswith(text)]
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n(),;=<>+-*/")
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
