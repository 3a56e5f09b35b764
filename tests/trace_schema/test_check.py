"""What does not keep its schema is named by file, row and field."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from trace_schema.attempts import ATTEMPTS
from trace_schema.calls import CALLS
from trace_schema.check import check_calls
from trace_schema.errors import BadInput
from trace_schema.results import RESULTS

GOOD: dict[str, Any] = {
    "call_id": [0, 1, 2],
    "content_id": [0, 1, 1],
    "arrival_s": [0.0, 1.5, 1.5],
    "priority": [0, 0, 0],
    "prompt_tokens": [5, 6, 7],
    "output_tokens": [1, 2, 3],
    "output_censored": [False, False, True],
    "patience_censored": [True, True, True],
    "observed_attempts": [1, 1, 2],
}


def test_absent_optional_columns_become_null() -> None:
    table = check_calls(pa.table(GOOD))
    assert table.schema.names == CALLS.names
    assert table["tenant"].null_count == 3


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("prompt_tokens", [5, -6, 7], "row 2, field 'prompt_tokens': -6"),
        ("prompt_tokens", [5, 6, 0], "row 3, field 'prompt_tokens': a prompt has at least 1 token"),
        ("output_tokens", [0, 2, 3], "row 1, field 'output_tokens'"),
        ("arrival_s", [0.0, float("nan"), 2.0], "row 2, field 'arrival_s'"),
        ("arrival_s", [0.0, 2.0, 1.0], "row 3, field 'arrival_s': arrives before"),
        ("call_id", [0, 2, 1], "row 2, field 'call_id'"),
        ("priority", [0, None, 0], "row 2, field 'priority': is null"),
        ("prompt_tokens", ["a", "b", "c"], "field 'prompt_tokens': cannot be read as int32"),
        ("promt_tokens", [1, 2, 3], "did you mean prompt_tokens"),
    ],
)
def test_the_first_offence_is_named(column: str, values: list[Any], message: str) -> None:
    with pytest.raises(BadInput, match=r"trace\.parquet") as caught:
        check_calls(pa.table({**GOOD, column: values}), "trace.parquet")
    assert message in str(caught.value)


def test_a_missing_column_is_named() -> None:
    table = pa.table(GOOD).drop_columns(["arrival_s"])
    with pytest.raises(BadInput, match=r"field 'arrival_s': the column is missing"):
        check_calls(table)


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(BadInput, match="holds no calls"):
        check_calls(pa.table(GOOD).slice(0, 0))


@pytest.mark.parametrize("schema", [ATTEMPTS, CALLS, *RESULTS], ids=lambda s: s.name)
def test_every_field_has_a_sentence(schema: Any) -> None:
    assert len(set(schema.names)) == len(schema.names)
    for field in schema.fields:
        assert len(field.doc) > 5, field.name
        assert b"doc" in schema.arrow.field(field.name).metadata
