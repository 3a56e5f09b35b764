"""Times without a zone or a year: what can be made of them, and what cannot."""

from __future__ import annotations

import datetime

import pytest

from connectors.clocks import LocalClock, YearlessClock, moment, zone
from connectors.text_lines import stamped
from trace_schema.errors import BadConfig

NOON = datetime.datetime(2026, 7, 1, 12)


@pytest.mark.parametrize(
    ("name", "hours"), [("UTC", 0), ("Europe/Berlin", 2), ("+05:30", 5.5), ("-0800", -8), ("+2", 2)]
)
def test_a_zone_is_a_name_or_an_offset(name: str, hours: float) -> None:
    assert NOON.replace(tzinfo=zone(name)).utcoffset() == datetime.timedelta(hours=hours)


@pytest.mark.parametrize("name", ["", "Europe/Berlinn", "+99:00", "../etc/passwd", "CET2"])
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(BadConfig, match="no such time zone"):
        zone(name)


def test_the_hour_that_a_clock_shows_twice_is_told_apart_by_its_order() -> None:
    clock = LocalClock(zone("Europe/Berlin"))
    shown = ["02:10:00", "02:50:00", "02:10:00", "02:50:00", "03:00:00"]
    times = [clock.unix_s(datetime.datetime.fromisoformat(f"2026-10-25T{time}")) for time in shown]
    assert [round((t or 0) - (times[0] or 0)) for t in times] == [0, 2400, 3600, 6000, 6600]


def test_a_time_that_names_its_zone_is_taken_at_its_word() -> None:
    clock = LocalClock(zone("Europe/Berlin"))
    assert clock.unix_s(datetime.datetime.fromisoformat("1970-01-01T00:00:10+00:00")) == 10.0


def test_a_year_that_is_not_known_ends_like_any_other() -> None:
    clock = YearlessClock(None, zone("UTC"))
    december, january = clock.seconds(12, 31, 23, 59, 59.5), clock.seconds(1, 1, 0, 0, 1)
    assert december is not None
    assert january == december + 1.5
    assert december < 366 * 86400


def test_a_known_year_goes_on_into_the_next() -> None:
    clock = YearlessClock(2025, zone("UTC"))
    assert clock.seconds(12, 31, 23, 59, 59) == 1767225599.0
    assert clock.seconds(1, 1, 0, 0, 0) == 1767225600.0
    assert clock.seconds(2, 29, 0, 0, 0) is None


def test_a_line_that_is_late_by_a_moment_is_no_new_year() -> None:
    clock = YearlessClock(2026, zone("UTC"))
    first, late = clock.seconds(3, 2, 9, 0, 5), clock.seconds(3, 2, 9, 0, 3)
    assert (first or 0) - (late or 0) == 2


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("2026-03-02T09:00:00.123456789Z stdout F hello", "hello"),
        ("2026-03-02 09:00:00,123 - hello", "hello"),
        ("[2026-03-02 09:00:00] hello", "hello"),
        ("api-1  | 2026-03-02T09:00:00+01:00 hello", "hello"),
        ("api-1  | hello", "hello"),
        ("hello 2026-03-02T09:00:00Z", "hello 2026-03-02T09:00:00Z"),
        ("", ""),
    ],
)
def test_what_was_put_before_a_line_is_taken_off(line: str, rest: str) -> None:
    when, left = stamped(line)
    assert left == rest
    assert (when is not None) == ("2026" in line and not line.startswith("hello"))


@pytest.mark.parametrize("text", [None, 5, "", "later", "2026-13-01T00:00:00Z", "2026-02-30"])
def test_what_is_no_time_is_none(text: object) -> None:
    assert moment(text) is None
