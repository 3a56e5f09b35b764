"""Lines of the common and combined log formats of web servers, and what people append to them."""

from __future__ import annotations

import re
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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


def entries_of(lines: pa.Array) -> tuple[dict[str, pa.Array], npt.NDArray[np.bool_]]:
    """(columns by nginx's names of variables, with whatever was appended as key=value; which lines are of such a log).

    Columns have a row for each such line. What a line does not have is null or empty.
    """
    found = pc.extract_regex(lines, f"^{LINE.pattern}")
    good = np.asarray(found.is_valid())
    columns = fields_of(found.filter(found.is_valid()))
    rest = columns.pop("rest")
    times = pc.extract_regex(rest, BARE_TIMES.pattern)
    appended = [
        {} if bare or not text else {name.lower(): quoted or plain for name, quoted, plain in APPENDED.findall(text)}
        for text, bare in zip(rest.to_pylist(), times.is_valid().to_pylist(), strict=True)
    ]
    columns |= fields_of(times)
    for name in dict.fromkeys(chain.from_iterable(appended)):
        values = pa.array([entry.get(name) for entry in appended], pa.string())
        columns[name] = pc.coalesce(values, columns[name]) if name in columns else values
    return columns, good


def fields_of(found: pa.Array) -> dict[str, pa.Array]:
    """The groups of a pattern that texts have matched, each as a column."""
    return {field.name: pc.struct_field(found, field.name) for field in found.type}
