"""The prompt: statements over lines, commands, mistakes that cost one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queries.session import Session
from replay.report.prompt import FIRST, NEXT, Prompt, completions

Ask = Callable[..., list[str]]


@pytest.fixture
def session(run_directory: Path) -> Iterator[Session]:
    with Session(str(run_directory)) as opened:
        yield opened


@pytest.fixture
def ask(session: Session) -> Ask:
    """What the prompt writes when these lines are typed; an exception stands for a key such as Ctrl-C."""

    def typed(*lines: str | BaseException) -> list[str]:
        left, written = list(lines), list[str]()

        def read(_: str) -> str:
            if not left:
                raise EOFError
            line = left.pop(0)
            if isinstance(line, BaseException):
                raise line
            return line

        Prompt(session, read, written.append).loop()
        return written

    return typed


def test_a_statement_ends_with_its_semicolon(ask: Ask) -> None:
    (shown,) = ask(".mode csv", "SELECT count(*) AS n", "  FROM calls", ";")
    assert shown == "n\n240"
    assert ask("SELECT 1 AS a") == []


def test_a_semicolon_in_a_text_or_a_comment_ends_nothing(ask: Ask) -> None:
    (shown,) = ask(".mode json", "SELECT ';' AS a, -- ;", "'x;", "y' AS b;")
    assert json.loads(shown) == [{"a": ";", "b": "x;\ny"}]


def test_the_second_line_is_asked_for_with_another_sign(session: Session) -> None:
    signs = []
    lines = iter(["", "SELECT", "1;", ".help"])

    def read(sign: str) -> str:
        signs.append(sign)
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    Prompt(session, read, lambda _: None).loop()
    assert signs == [FIRST, FIRST, NEXT, FIRST, FIRST]


def test_an_error_is_one_line_and_the_prompt_goes_on(ask: Ask) -> None:
    wrong, right = ask("SELECT nothing\nFROM calls;", "SELECT 7 AS n;")
    assert wrong.startswith('error: SQL: Binder Error: Referenced column "nothing" not found')
    assert "\n" not in wrong
    assert "7" in right


def test_ctrl_c_drops_what_was_typed(ask: Ask) -> None:
    assert ask(".mode csv", "SELECT nonsense", KeyboardInterrupt(), "SELECT 7 AS n;") == ["", "n\n7"]


def test_tables_are_listed_with_what_a_row_is(ask: Ask) -> None:
    (shown,) = ask(".tables")
    assert "one call and what became of it" in shown
    assert "replays" in shown


def test_a_schema_has_units_and_meaning(ask: Ask) -> None:
    shown, wrong, _ = ask(".schema calls", ".schema cals", ".schema run;")
    assert "arrival_s" in shown
    assert "when the user asked" in shown
    assert wrong == "error: unknown table 'cals'; did you mean calls or replicas?"


def test_queries_are_listed_and_run_with_parameters(ask: Ask) -> None:
    listed, shown, wrong, missing, broken = ask(
        ".queries", ".run worst_calls limit=1 by=attempts", ".run worst_calls limt=1", ".run sumary", ".run recovery x"
    )
    assert "What did each replay come to" in listed
    assert shown.split()[:2] == ["policy", "cancel"]
    assert wrong == "error: unknown parameter of worst_calls 'limt'; did you mean limit?"
    assert missing == "error: unknown query 'sumary'; did you mean summary?"
    assert broken == "error: .run NAME K=V: x is not K=V"


@pytest.mark.parametrize(
    ("mode", "shown"),
    [("csv", "n\n7"), ("json", json.dumps([{"n": 7}], indent=1)), ("markdown", "| n |\n| --- |\n| 7 |")],
)
def test_results_are_printed_in_the_mode_that_was_chosen(mode: str, shown: str, ask: Ask) -> None:
    assert ask(f".mode {mode}", "SELECT 7 AS n;") == [shown]


def test_a_long_result_is_cut_unless_all_rows_are_asked_for(ask: Ask) -> None:
    cut, said, whole, wrong = ask(
        ".rows 3", ".mode csv", "SELECT call_id FROM calls;", ".rows 0", "FROM range(5);", ".rows x"
    )
    assert len(cut.splitlines()) == 4
    assert said == "(3 of 240 rows; .rows 0 shows all)"
    assert len(whole.splitlines()) == 6
    assert wrong == "error: .rows N: x is not a number of rows"


def test_an_unknown_command_gets_the_nearest(ask: Ask) -> None:
    assert ask(".table", ".mode xml") == [
        "error: unknown command '.table'; did you mean .tables?",
        "error: unknown mode 'xml'; valid: csv, json, markdown, table",
    ]


def test_quit_leaves_at_once(ask: Ask) -> None:
    assert ask(".quit", "SELECT 1;") == []


def test_writing_is_refused(ask: Ask, tmp_path: Path) -> None:
    assert ask(f"COPY calls TO '{tmp_path}/calls.csv';") == ["error: SQL: COPY is not for here: a run is only read"]
    assert list(tmp_path.iterdir()) == []


def test_tab_knows_tables_columns_queries_and_commands(session: Session) -> None:
    assert {"calls", "arrival_s", "wasted_compute", ".schema"} <= set(completions(session))
