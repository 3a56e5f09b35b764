"""From a log's columns, whatever their types, to ATTEMPTS: the one place where rows are found good or dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import Batch, Dropped
from trace_schema.attempts import ATTEMPTS, STATUSES
from trace_schema.fields import Field

NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
UNIX_SECONDS_LEAST = 1e8
"""Times from here on are taken as seconds since 1970, smaller ones as seconds from the start of the log."""
TRUE, FALSE = ("true", "t", "1", "yes"), ("false", "f", "0", "no")


def attempts_of(
    columns: Mapping[str, pa.Array | Sequence[Any]],
    rows: np.ndarray[Any, np.dtype[np.int64]],
    *,
    source_format: str,
    source_file: str,
    dropped: Dropped | None = None,
) -> Batch:
    """Attempts from `columns` by ATTEMPTS name, the k-th of which stands in row `rows[k]` of the file.

    A row is dropped when its time or its prompt length is missing, or when a value cannot be what its field says.
    """
    dropped = dropped or Dropped()
    good = np.ones(len(rows), bool)
    arrays: dict[str, pa.Array] = {}
    for field in ATTEMPTS.fields:
        if field.name in columns:
            arrays[field.name] = convert(columns[field.name], field, rows, good, dropped)
    if "arrival_s" in arrays:
        arrays["arrival_s"], arrays["arrival_unix_ns"] = instants(arrays["arrival_s"])
    for name in ("arrival_s", "prompt_tokens"):
        array = arrays.get(name)
        missing = np.ones(len(rows), bool) if array is None else np.asarray(pc.is_null(array))
        drop(missing, f"{name} is missing", rows, good, dropped)
    if "prompt_tokens" in arrays:
        empty = np.asarray(pc.fill_null(pc.less(arrays["prompt_tokens"], 1), False))
        drop(empty, "prompt_tokens is not positive", rows, good, dropped)
    constants = {"source_format": source_format, "source_file": source_file, "time_resolution_s": 0.0}
    if "status" not in arrays:
        constants["status"] = "unknown"
    fields = {f.name: f for f in ATTEMPTS.fields}
    for name, value in constants.items():
        if name not in arrays:
            arrays[name] = pa.repeat(pa.scalar(value, fields[name].type), len(rows))
    arrays["source_row"] = pa.array(rows)
    table = pa.Table.from_arrays(
        [arrays.get(f.name, pa.nulls(len(rows), f.type)) for f in ATTEMPTS.fields], names=ATTEMPTS.names
    ).filter(pa.array(good))
    return Batch(table.cast(ATTEMPTS.arrow), dropped)


def drop(
    wrong: np.ndarray[Any, Any], reason: str, rows: np.ndarray[Any, Any], good: np.ndarray[Any, Any], dropped: Dropped
) -> None:
    """Mark the rows that are `wrong` and not yet dropped."""
    for k in np.flatnonzero(wrong & good):
        dropped.add(reason, int(rows[k]))
    good &= ~wrong


def convert(
    values: pa.Array | Sequence[Any],
    field: Field,
    rows: np.ndarray[Any, Any],
    good: np.ndarray[Any, Any],
    dropped: Dropped,
) -> pa.Array:
    """The values in the field's type; those that have none drop their rows."""
    array = values if isinstance(values, pa.Array) else array_of(values)
    if pa.types.is_null(array.type):
        return array.cast(field.type)
    if field.name == "status":
        array = pc.utf8_lower(array.cast(pa.string()))
        unknown = np.asarray(pc.invert(pc.is_in(array, value_set=pa.array([*STATUSES, None], pa.string()))))
        drop(unknown, f"status is none of {', '.join(STATUSES)}", rows, good, dropped)
        return pc.fill_null(array, "unknown")
    if field.name == "arrival_s":
        return times(array, rows, good, dropped)
    if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
        return numbers(array, field, rows, good, dropped)
    if pa.types.is_boolean(field.type) and not pa.types.is_boolean(array.type):
        text = pc.utf8_lower(array.cast(pa.string()))
        return pc.if_else(
            pc.is_in(text, value_set=pa.array(TRUE)),
            True,
            pc.if_else(pc.is_in(text, value_set=pa.array(FALSE)), False, pa.scalar(None, pa.bool_())),
        )
    return array.cast(field.type)


def array_of(values: Sequence[Any]) -> pa.Array:
    """An Arrow array of Python values; of mixed types, their texts."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if v is None else str(v) for v in values], pa.string())


def numbers(
    array: pa.Array, field: Field, rows: np.ndarray[Any, Any], good: np.ndarray[Any, Any], dropped: Dropped
) -> pa.Array:
    """Numbers of the field's type; texts are read as numbers, empty texts as unknown."""
    floats = as_floats(array)
    given = np.asarray(pc.is_valid(array)) & ~is_blank(array)
    values = np.asarray(pc.fill_null(floats, 0.0))
    drop(given & np.asarray(pc.is_null(floats)), f"{field.name} is not a number", rows, good, dropped)
    drop(~np.isfinite(values), f"{field.name} is not finite", rows, good, dropped)
    if field.unit in ("tokens", "count", "s", "ns"):
        drop(values < 0, f"{field.name} is negative", rows, good, dropped)
    if not pa.types.is_integer(field.type):
        return floats
    top = 2**31 - 1 if field.type == pa.int32() else 2**53
    drop(np.abs(values) > top, f"{field.name} is too large", rows, good, dropped)
    drop(values != np.floor(values), f"{field.name} is not whole", rows, good, dropped)
    mask = ~good | np.asarray(pc.is_null(floats))
    return pa.array(np.where(mask, 0, values).astype(np.int64), mask=mask).cast(field.type)


def as_floats(array: pa.Array) -> pa.Array:
    """float64; null where a text is not a number."""
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        known = pc.match_substring_regex(array, NUMBER)
        return pc.cast(pc.utf8_trim_whitespace(pc.if_else(known, array, None)), pa.float64())
    return array.cast(pa.float64(), safe=False)


def is_blank(array: pa.Array) -> np.ndarray[Any, Any]:
    """Which values are empty texts."""
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return np.asarray(pc.fill_null(pc.equal(pc.utf8_trim_whitespace(array), ""), False))
    return np.zeros(len(array), bool)


def times(array: pa.Array, rows: np.ndarray[Any, Any], good: np.ndarray[Any, Any], dropped: Dropped) -> pa.Array:
    """Seconds, from numbers, timestamps or ISO 8601 texts (taken as UTC where they name no zone)."""
    if pa.types.is_timestamp(array.type):
        return pc.divide(array.cast(pa.timestamp("ns")).cast(pa.int64()).cast(pa.float64(), safe=False), 1e9)
    seconds = as_floats(array)
    if seconds.null_count and pa.types.is_string(array.type):
        seconds = pc.coalesce(seconds, iso_seconds(array))
    given = np.asarray(pc.is_valid(array)) & ~is_blank(array)
    drop(given & np.asarray(pc.is_null(seconds)), "arrival_s is not a time", rows, good, dropped)
    values = np.asarray(pc.fill_null(seconds, 0.0))
    drop(~np.isfinite(values) | (values < 0) | (values > 1e11), "arrival_s is not a possible time", rows, good, dropped)
    return seconds


def iso_seconds(array: pa.Array) -> pa.Array:
    """Seconds since 1970 of ISO 8601 texts, null for others."""
    pattern = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?(\.\d{1,9})?\d*(Z|[+-]\d{2}:?\d{2})?$"
    text = pc.if_else(pc.match_substring_regex(array, pattern), array, None)
    text = pc.replace_substring_regex(text, r"(\.\d{9})\d+", r"\1")
    zoned = pc.fill_null(pc.match_substring_regex(text, r"(Z|[+-]\d{2}:?\d{2})$"), False)
    try:
        with_zone = pc.cast(pc.if_else(zoned, text, None), pa.timestamp("ns", "UTC")).cast(pa.int64())
        naive = pc.cast(pc.if_else(zoned, None, text), pa.timestamp("ns")).cast(pa.int64())
    except pa.ArrowInvalid:
        return pa.nulls(len(array), pa.float64())
    return pc.divide(pc.coalesce(with_zone, naive).cast(pa.float64(), safe=False), 1e9)


def instants(seconds: pa.Array) -> tuple[pa.Array, pa.Array]:
    """(seconds as logged, nanoseconds since 1970 where those are absolute)."""
    absolute = pc.greater_equal(seconds, UNIX_SECONDS_LEAST)
    unix_ns = pc.if_else(
        absolute, pc.cast(pc.multiply(seconds, 1e9), pa.int64(), safe=False), pa.scalar(None, pa.int64())
    )
    return seconds, unix_ns
