"""Instants as logs write them, in seconds since 1970."""

from __future__ import annotations

import datetime
import functools
import re
from typing import Any

LOCAL = re.compile(r"^(\d{1,2})/([A-Za-z]{3})/(\d{4}):(\d{2}):(\d{2}):(\d{2}) ([+-])(\d{2}):?(\d{2})$")
MONTHS = {name: place for place, name in enumerate(
    ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1)}  # fmt: skip


def unix_time(value: Any) -> float | str | None:
    """Seconds since 1970 of nginx's $msec and $time_local; other texts, which may be ISO 8601, as they are."""
    if not isinstance(value, str):
        return float(value) if isinstance(value, int | float) else None
    try:
        return float(value)
    except ValueError:
        return local_time(value)


@functools.lru_cache(maxsize=1024)
def local_time(text: str) -> float | str:
    """Seconds since 1970 of 30/Nov/2026:03:19:07 +0000 or an ISO 8601 time; the text itself where it is neither."""
    found = LOCAL.match(text)
    try:
        if found:
            day, month, year, hour, minute, second, sign, hours, minutes = found.groups()
            zone = datetime.timedelta(hours=int(hours), minutes=int(minutes)) * (-1 if sign == "-" else 1)
            when = datetime.datetime(
                int(year), MONTHS[month.title()], int(day), int(hour), int(minute), int(second), tzinfo=datetime.UTC
            )
            return (when - zone).timestamp()
        moment = datetime.datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, KeyError, OverflowError):
        return text
