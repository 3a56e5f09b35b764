"""Any result of any SQL, as text for people and programs."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from queries import run_sql
from replay.report.answer import report, report_data
from replay.report.tables import render


@pytest.fixture
def rendered(run_directory: Path) -> Any:
    def ask(sql: str, format: str) -> str:
        return render(run_sql(str(run_directory), sql), format)

    return ask


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("5::HUGEINT", 5),
        ("1.5::DECIMAL(5, 2)", 1.5),
        ("'2024-05-10'::DATE", "2024-05-10"),
        ("'nan'::DOUBLE", None),
        ("'infinity'::DOUBLE", None),
        ("[1, NULL, 2.5]", [1, None, 2.5]),
        ("{'a': 'nan'::DOUBLE}", {"a": None}),
        ("true", True),
        ("NULL", None),
    ],
)
def test_json_has_every_value(rendered: Any, expression: str, value: Any) -> None:
    assert json.loads(rendered(f"SELECT {expression} AS x", "json")) == [{"x": value}]


def test_columns_of_equal_names_are_kept_apart(rendered: Any) -> None:
    sql = "SELECT 1 AS end_s, 2 AS other, 3 AS end_s"
    assert json.loads(rendered(sql, "json")) == [{"end_s": 1, "other": 2, "end_s_2": 3}]
    assert rendered(sql, "csv") == "end_s,other,end_s_2\n1,2,3"
    for format in ("table", "markdown"):
        assert "end_s_2" in rendered(sql, format)


def test_a_table_has_a_line_for_each_row(rendered: Any) -> None:
    lines = rendered("SELECT 'a|b' AS x, 'two\nlines' AS y, 1234567 AS n, 'infinity'::DOUBLE AS t", "table").split("\n")
    assert lines[-1].split() == ["a|b", "two", "lines", "1,234,567", "never"]
    lines = rendered("SELECT 'a|b' AS x, 'two\nlines' AS y", "markdown").split("\n")
    assert lines == ["| x | y |", "| --- | --- |", "| a\\|b | two lines |"]


def test_csv_is_read_back(rendered: Any) -> None:
    text = rendered("""SELECT 'a,"b' AS x, 'two\nlines' AS y""", "csv")
    assert list(csv.reader(io.StringIO(text))) == [["x", "y"], ['a,"b', "two\nlines"]]


@pytest.mark.parametrize("format", ["table", "csv", "json", "markdown"])
def test_an_empty_result_is_no_error(rendered: Any, format: str) -> None:
    text = rendered("SELECT call_id FROM calls WHERE false", format)
    assert (text == "[]") if format == "json" else ("call_id" in text)


def test_a_report_names_each_policy_and_fits_a_page(run_directory: Path) -> None:
    text = report(str(run_directory))
    assert all(text.count(f"{policy} ") >= 3 for policy in ("cancel", "coalesce"))
    assert max(len(line) for line in text.splitlines()) <= 120
    assert "\n\n\n" not in text


def test_a_report_for_programs_is_json(run_directory: Path) -> None:
    data = report_data(str(run_directory))
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert {row["policy"] for row in data["wasted_compute"]} == {"cancel", "coalesce"}
