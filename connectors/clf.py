"""Lines of the common and combined log formats of web servers, and what people append to them."""

from __future__ import annotations

import re
from typing import Any

LINE = re.compile(
    r"(?:\S+ )??(?P<remote_addr>\S+) \S+ (?P<remote_user>\S+) \[(?P<time_local>[^\]]+)\] "
    r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{3}|-) (?P<body_bytes_sent>\d+|-)'
    r'(?: "(?P<http_referer>(?:[^"\\]|\\.)*)" "(?P<http_user_agent>(?:[^"\\]|\\.)*)")?(?P<rest>.*)$'
)
APPENDED = re.compile(r'([A-Za-z_]\w*)[=:](?:"([^"]*)"|(.*?))(?=\s+[A-Za-z_]\w*[=:]|\s*$)')
"""rt=0.364 uct=-, 0.000 id="..."."""
BARE_TIMES = re.compile(
    r'^(?: "(?P<http_x_forwarded_for>[^"]*)")? (?P<request_time>\d+\.\d{3})(?: (?P<urt>[\d.,: -]+))?\s*$'
)
"""$request_time and $upstream_response_time without names."""
SNIFFED_LINES = 20


def is_clf(head: bytes) -> bool:
    """Whether one of a file's first lines is of such a log."""
    lines = head.split(b"\n", SNIFFED_LINES)[:SNIFFED_LINES]
    return any(LINE.match(line.decode("utf-8", "replace").strip()) for line in lines)


def entry_of(line: str) -> dict[str, Any] | None:
    """A line's variables by nginx's names, with whatever was appended as key=value; None where it is no such line."""
    found = LINE.match(line.strip())
    if not found:
        return None
    entry: dict[str, Any] = found.groupdict()
    rest = entry.pop("rest")
    times = BARE_TIMES.match(rest) if rest else None
    if times:
        entry |= times.groupdict()
    elif rest:
        entry |= {name.lower(): quoted or bare for name, quoted, bare in APPENDED.findall(rest)}
    return entry
