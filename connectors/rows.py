"""From a log's columns, whatever their types, to ATTEMPTS: the one place where rows are found good or dropped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import ROWS_NAMED, Batch, Dropped
from trace_schema.attempts import ATTEMPTS, STATUSES
from trace_schema.columns import alike
from trace_schema.fields import Field

NUMBER = r"^\s*[-+]?((\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|(?i:nan|inf|infinity))\s*$"
ISO = (
    r"^\s*(?P<time>\d{4}-\d{2}-\d{2}(?:[T ]\d{2}(?::\d{2}(?::\d{2})?)?)?)(?:\.(?P<part>\d+))?"
    r"(?:Z|(?P<sign>[-+])(?P<hours>\d{2})(?::?(?P<minutes>\d{2}))?)?\s*$"
)
UNIX_SECONDS_LEAST = 1e8
"""Times from here on are taken as seconds since 1970, smaller ones as seconds from the start of the log."""
SECONDS_MOST = 1e11
UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)
NEEDED = ("arrival_s", "prompt_tokens")
TRUE, FALSE = ("true", "t", "1", "yes"), ("false", "f", "0", "no")


def attempts_of(
    columns: Mapping[str, pa.Array | Sequence[Any]],
    rows: np.ndarray[Any, np.dtype[np.int64]],
    *,
    source_format: str,
    source_file: str,
    dropped: Dropped | None = None,
    needed: Sequence[str] = NEEDED,
) -> Batch:
    """Attempts from `columns` by ATTEMPTS name, the k-th of which stands in row `rows[k]` of the file.

    A row is dropped when one of the `needed` fields is missing, or when a value cannot be what its field says. Logs
    that know no lengths need their times alone: an engine's log that is merged with them may know.
    """
    dropped = dropped or Dropped()
    good = np.ones(len(rows), bool)
    arrays: dict[str, pa.Array] = {}
    for field in ATTEMPTS.fields:
        if field.name == "arrival_s" and field.name in columns:
            arrays["arrival_s"], arrays["arrival_unix_ns"] = times(columns[field.name], rows, good, dropped)
        elif field.name in columns:
            arrays[field.name] = convert(columns[field.name], field, rows, good, dropped)
    for name in needed:
        array = arrays.get(name)
        if array is None or array.null_count:
            missing = np.ones(len(rows), bool) if array is None else np.asarray(pc.is_null(array))
            drop(missing, f"{name} is missing", rows, good, dropped)
    if "prompt_tokens" in arrays and not all_within(arrays["prompt_tokens"], 1, math.inf):
        empty = np.asarray(pc.fill_null(pc.less(arrays["prompt_tokens"], 1), False))
        drop(empty, "prompt_tokens is not positive", rows, good, dropped)
    arrays["source_row"] = pa.array(rows)
    if not good.all():
        arrays = {name: array.filter(pa.array(good)) for name, array in arrays.items()}
    constants: dict[str, Any] = {
        "source_format": source_format, "source_file": source_file, "time_resolution_s": 0.0, "status": "unknown"
    }  # fmt: skip
    count = len(arrays["source_row"])
    said = {name: array for name, array in arrays.items() if array.null_count < count}
    table = pa.Table.from_arrays(
        [
            of_type(said[field.name], field.type)
            if field.name in said
            else alike(constants.get(field.name), field.type, count)
            for field in ATTEMPTS.fields
        ],
        schema=ATTEMPTS.arrow,
    )
    return Batch(table, dropped)


def of_type(array: pa.Array, type: pa.DataType) -> pa.Array:
    return array if array.type == type else array.cast(type)


def drop(
    wrong: np.ndarray[Any, Any], reason: str, rows: np.ndarray[Any, Any], good: np.ndarray[Any, Any], dropped: Dropped
) -> None:
    """Mark the rows that are `wrong` and not yet dropped."""
    found = rows[wrong & good]
    if len(found):
        later = Dropped({reason: (len(found), found[:ROWS_NAMED].tolist())})
        dropped.merge(later)
        good &= ~wrong


def convert(
    values: pa.Array | Sequence[Any],
    field: Field,
    rows: np.ndarray[Any, Any],
    good: np.ndarray[Any, Any],
    dropped: Dropped,
) -> pa.Array:
    """The values in the field's type; those that have none drop their rows."""
    if pa.types.is_nested(field.type) and not isinstance(values, pa.Array):
        return nested(values, field, rows, good, dropped)
    array = as_array(values)
    if pa.types.is_null(array.type):
        return pa.repeat("unknown", len(array)) if field.name == "status" else pa.nulls(len(array), field.type)
    if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
        return numbers(array, field, rows, good, dropped)
    if field.name == "status":
        return statuses(array, rows, good, dropped)
    if pa.types.is_boolean(field.type) and not pa.types.is_boolean(array.type):
        text = pc.utf8_lower(cast(array, pa.string()))
        return pc.if_else(
            pc.is_in(text, value_set=pa.array(TRUE)),
            True,
            pc.if_else(pc.is_in(text, value_set=pa.array(FALSE)), False, pa.scalar(None, pa.bool_())),
        )
    converted = cast(array, field.type)
    lost = np.asarray(pc.and_(array.is_valid(), converted.is_null())) & ~is_blank(array)
    kind = "a text" if field.type == pa.string() else f"of type {field.type}"
    drop(lost, f"{field.name} is not {kind}", rows, good, dropped)
    return converted


def nested(
    values: Sequence[Any], field: Field, rows: np.ndarray[Any, Any], good: np.ndarray[Any, Any], dropped: Dropped
) -> pa.Array:
    """Lists or maps as Python has them; one that is not of the field's type drops its row."""
    try:
        return pa.array(values, field.type)
    except UNFIT:
        pass
    fit = [value if is_fit(value, field.type) else None for value in values]
    lost = np.asarray([kept is None and value is not None for kept, value in zip(fit, values, strict=True)], bool)
    drop(lost, f"{field.name} is not of type {field.type}", rows, good, dropped)
    return pa.array(fit, field.type)


def is_fit(value: Any, type: pa.DataType) -> bool:
    """Whether one value can be of an Arrow type."""
    try:
        pa.array([value], type)
    except UNFIT:
        return False
    return True


def as_array(values: pa.Array | Sequence[Any]) -> pa.Array:
    """Values of a column as a plain Arrow array; Python values of mixed types as their texts."""
    if isinstance(values, pa.Array):
        return plain(values)
    try:
        return plain(pa.array(values))
    except UNFIT:
        return pa.array([None if v is None else str(v) for v in values], pa.string())


def plain(array: pa.Array) -> pa.Array:
    """Texts of any width, bytes and dictionaries as strings or what they hold; days and durations as numbers' kin."""
    if pa.types.is_dictionary(array.type):
        return plain(array.dictionary_decode())
    if pa.types.is_date(array.type):
        return array.cast(pa.timestamp("ms"))
    if pa.types.is_duration(array.type):
        return pc.divide(array.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.float64()), 1e6)
    texts = (pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary, pa.types.is_large_binary,
             pa.types.is_binary_view, pa.types.is_fixed_size_binary)  # fmt: skip
    return cast(array, pa.string()) if any(holds(array.type) for holds in texts) else array


def cast(array: pa.Array, type: pa.DataType) -> pa.Array:
    """The values in `type`; null where one cannot be."""
    try:
        return array.cast(type)
    except pa.ArrowNotImplementedError:
        return pa.nulls(len(array), type)
    except pa.ArrowInvalid:
        if len(array) == 1:
            return pa.nulls(1, type)
    middle = len(array) // 2
    halves = np.split(np.arange(len(array)), [middle])
    return pa.concat_arrays([cast(array.take(pa.array(half)), type) for half in halves])


def statuses(array: pa.Array, rows: np.ndarray[Any, Any], good: np.ndarray[Any, Any], dropped: Dropped) -> pa.Array:
    """Names of STATUSES in lower case; without one, unknown."""
    text = pc.utf8_lower(pc.utf8_trim_whitespace(cast(array, pa.string())))
    text = pc.if_else(pc.equal(text, ""), None, text)
    lost = pc.and_(array.is_valid(), pc.invert(pc.is_in(text, value_set=pa.array([*STATUSES, None], pa.string()))))
    nested = pc.and_(array.is_valid(), text.is_null()) if not pa.types.is_string(array.type) else False
    wrong = np.asarray(pc.or_(lost, nested))
    drop(wrong, f"status is none of {', '.join(STATUSES)}", rows, good, dropped)
    return pc.fill_null(text, "unknown")


def numbers(
    array: pa.Array, field: Field, rows: np.ndarray[Any, Any], good: np.ndarray[Any, Any], dropped: Dropped
) -> pa.Array:
    """Numbers of the field's type; texts are read as numbers, empty texts as unknown."""
    counted = field.unit in ("tokens", "bytes", "count", "s", "ns")
    top = 2**31 - 1 if field.type == pa.int32() else 2**53
    whole = pa.types.is_integer(field.type) and pa.types.is_integer(array.type)
    if whole and all_within(array, 0 if counted else -top, top):
        return array.cast(field.type)
    floats = as_floats(array)
    values = np.asarray(pc.fill_null(floats, 0.0))
    if floats.null_count > array.null_count:
        lost = np.asarray(pc.and_(array.is_valid(), floats.is_null())) & ~is_blank(array)
        drop(lost, f"{field.name} is not a number", rows, good, dropped)
    drop(~np.isfinite(values), f"{field.name} is not finite", rows, good, dropped)
    if counted:
        drop(values < 0, f"{field.name} is negative", rows, good, dropped)
    if not pa.types.is_integer(field.type):
        drop(values > SECONDS_MOST, f"{field.name} is too large for seconds", rows, good, dropped)
        return floats
    drop(np.abs(values) > top, f"{field.name} is too large", rows, good, dropped)
    drop(values != np.floor(values), f"{field.name} is not whole", rows, good, dropped)
    mask = ~good | np.asarray(pc.is_null(floats))
    return pa.array(np.where(mask, 0, values).astype(np.int64), mask=mask).cast(field.type)


def all_within(array: pa.Array, least: float, most: float) -> bool:
    """Whether all numbers that are known lie between two others."""
    found = pc.min_max(array)
    return found["min"].as_py() is None or bool(found["min"].as_py() >= least and found["max"].as_py() <= most)


def as_floats(array: pa.Array) -> pa.Array:
    """float64; null where a value is not a number."""
    if not pa.types.is_string(array.type):
        return array.cast(pa.float64(), safe=False) if is_number(array.type) else pa.nulls(len(array), pa.float64())
    try:
        array.slice(0, 1).cast(pa.float64())
        return array.cast(pa.float64())
    except pa.ArrowInvalid:
        known = pc.match_substring_regex(array, NUMBER)
        return pc.cast(pc.utf8_trim_whitespace(pc.if_else(known, array, None)), pa.float64())


def is_number(type: pa.DataType) -> bool:
    """Numbers, whole or not, and truth values."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    return any(holds(type) for holds in kinds)


def is_blank(array: pa.Array) -> np.ndarray[Any, Any]:
    """Which values are empty texts."""
    if pa.types.is_string(array.type):
        return np.asarray(pc.fill_null(pc.equal(pc.utf8_trim_whitespace(array), ""), False))
    return np.zeros(len(array), bool)


def times(
    values: pa.Array | Sequence[Any], rows: np.ndarray[Any, Any], good: np.ndarray[Any, Any], dropped: Dropped
) -> tuple[pa.Array, pa.Array]:
    """(seconds as logged, nanoseconds since 1970 where those are absolute).

    From numbers, timestamps or ISO 8601 texts, which are taken as UTC where they name no zone.
    """
    array = as_timestamps(as_array(values))
    if pa.types.is_timestamp(array.type):
        seconds, unix_ns = of_timestamps(array)
        if all_within(seconds, UNIX_SECONDS_LEAST, SECONDS_MOST):
            return seconds, unix_ns
    else:
        seconds = as_floats(array)
        unix_ns = as_ns(seconds)
        if seconds.null_count and pa.types.is_string(array.type):
            iso = of_iso(array)
            seconds, unix_ns = pc.coalesce(seconds, iso[0]), pc.coalesce(unix_ns, iso[1])
    if seconds.null_count > array.null_count:
        lost = np.asarray(pc.and_(array.is_valid(), seconds.is_null())) & ~is_blank(array)
        drop(lost, "arrival_s is not a time", rows, good, dropped)
    instants = np.asarray(pc.fill_null(seconds, 0.0))
    drop(~np.isfinite(instants), "arrival_s is not finite", rows, good, dropped)
    drop(instants < 0, "arrival_s is negative, or before 1970", rows, good, dropped)
    drop(instants > SECONDS_MOST, "arrival_s is too large for seconds (milliseconds?)", rows, good, dropped)
    absolute = pc.greater_equal(seconds, UNIX_SECONDS_LEAST)
    return seconds, pc.if_else(absolute, unix_ns, pa.scalar(None, pa.int64()))


def as_timestamps(array: pa.Array) -> pa.Array:
    """Texts of which each is a time in one layout as timestamps, which is much faster than `of_iso`; others as is."""
    if pa.types.is_string(array.type) and len(array):
        for zone in (None, "UTC"):
            type = pa.timestamp("ns", zone)
            try:
                # The first alone, since a cast that fails goes on through all the others, and slowly.
                array.slice(0, 1).cast(type)
                return array.cast(type)
            except pa.ArrowInvalid:
                continue
    return array


def of_timestamps(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """(seconds, nanoseconds) since 1970."""
    count = array.cast(pa.int64())
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[array.type.unit]
    seconds = pc.divide(count.cast(pa.float64(), safe=False), float(per_second))
    if per_second == 10**9:
        return seconds, count
    return seconds, pc.multiply(within_ns(count, per_second), 10**9 // per_second)


def of_iso(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """(seconds, nanoseconds) since 1970 of ISO 8601 texts, null for others."""
    found = pc.extract_regex(array, ISO)
    time, part, sign, hours, minutes = (
        pc.struct_field(found, name) for name in ("time", "part", "sign", "hours", "minutes")
    )
    east = [pc.binary_join_element_wise("0", x, "").cast(pa.int64()) for x in (hours, minutes)]
    offset = pc.add(pc.multiply(east[0], 3600), pc.multiply(east[1], 60))
    local = cast(time, pa.timestamp("s")).cast(pa.int64())
    whole = pc.if_else(pc.equal(sign, "-"), pc.add(local, offset), pc.subtract(local, offset))
    digits = pc.utf8_slice_codeunits(pc.utf8_rpad(part, 9, "0"), 0, 9).cast(pa.int64())
    seconds = pc.add(whole.cast(pa.float64()), pc.divide(digits.cast(pa.float64()), 1e9))
    return seconds, pc.add(pc.multiply(within_ns(whole, 1), 10**9), digits)


def as_ns(seconds: pa.Array) -> pa.Array:
    """Whole seconds and their parts apart, so that no digit is lost that they have."""
    whole = pc.floor(seconds)
    parts = pc.round(pc.multiply(pc.subtract(seconds, whole), 1e9)).cast(pa.int64(), safe=False)
    return pc.add(pc.multiply(within_ns(whole, 1).cast(pa.int64(), safe=False), 10**9), parts)


def within_ns(count: pa.Array, per_second: int) -> pa.Array:
    """Times of `per_second` ticks, null where nanoseconds would not fit into 64 bits (before 1677, after 2262)."""
    return pc.if_else(pc.less(pc.abs(count), 9 * 10**9 * per_second), count, pa.scalar(None, pa.int64()))
