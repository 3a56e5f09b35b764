"""Times as logs write them: without a zone, without a year."""

from __future__ import annotations

import datetime
import re
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trace_schema.errors import BadConfig

UTC = "UTC"
LOCAL = "times that name no zone are taken as UTC; say another with --option tz=Europe/Berlin"
OFFSET = re.compile(r"([-+])(\d{1,2}):?(\d{2})?")
LATE_S = 300.0
"""Of the two hours that a clock shows alike in autumn, a time is in the first unless it would lie further back."""
NEW_YEAR_S = 180 * 86400.0
"""Times without a year that go further back than this have come to another year."""
NO_YEAR = 2000
"""A leap year, so that each day is one; it stands for a year that is not known."""


def zone(name: str) -> datetime.tzinfo:
    """The time zone called `name`, such as UTC, Europe/Berlin or +02:00. Raises BadConfig."""
    offset = OFFSET.fullmatch(name.strip())
    try:
        if offset is None:
            return ZoneInfo(name.strip())
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        return datetime.timezone(datetime.timedelta(minutes=minutes if offset[1] == "+" else -minutes))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadConfig(f"--option tz={name}: no such time zone; say one as Europe/Berlin, +02:00 or UTC") from error


def moment(text: object) -> datetime.datetime | None:
    """The time that an ISO 8601 text says, with its zone if it names one; also with a comma before the fraction."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.datetime.fromisoformat(text.strip().replace(",", "."))
    except ValueError:
        return None


def unix_s(when: datetime.datetime) -> float | None:
    """Seconds since 1970 of a time with a zone; None where they cannot be counted."""
    try:
        return when.timestamp()
    except (OverflowError, ValueError, OSError):
        return None


class LocalClock:
    """A clock on a wall: its times name no zone, and in autumn it shows an hour twice."""

    def __init__(self, place: datetime.tzinfo) -> None:
        self.place = place
        self.last = float("-inf")

    def unix_s(self, when: datetime.datetime) -> float | None:
        """Seconds since 1970 of a time of this clock, or of one that names its own zone."""
        if when.tzinfo is not None:
            return unix_s(when)
        found = unix_s(when.replace(tzinfo=self.place))
        if found is not None and found < self.last - LATE_S:
            again = unix_s(when.replace(tzinfo=self.place, fold=1))
            found = again if again is not None and again > found else found
        self.last = max(self.last, found if found is not None else self.last)
        return found


class YearlessClock:
    """A clock whose times have month and day but no year.

    With the year of its first time known it gives seconds since 1970, else seconds since January 1 of a year that is
    not known, in which they count on from December into January.
    """

    def __init__(self, year: int | None, place: datetime.tzinfo) -> None:
        self.first = year
        self.year = year or NO_YEAR
        self.clock = LocalClock(place if year else datetime.UTC)
        self.origin = 0.0 if year else datetime.datetime(NO_YEAR, 1, 1, tzinfo=datetime.UTC).timestamp()

    def seconds(self, month: int, day: int, hour: int, minute: int, second: float) -> float | None:
        """The seconds of a time; None when there is no such day."""
        last = self.clock.last
        found = self.in_year(month, day, hour, minute, second)
        if found is not None and found < last - NEW_YEAR_S:
            self.year += 1
            self.clock.last = last
            found = self.in_year(month, day, hour, minute, second)
        return None if found is None else found - self.origin

    def in_year(self, month: int, day: int, hour: int, minute: int, second: float) -> float | None:
        try:
            whole = int(second)
            when = datetime.datetime(self.year, month, day, hour, minute, whole, round((second - whole) * 1e6) % 10**6)
        except ValueError:
            return None
        return self.clock.unix_s(when)
