"""Every format's log made hostile: each row is an attempt or is dropped for a reason, or one sentence refuses the file.

The logs are those of tests/fixtures, called after their format: whole ones in logs and traces, ones that have bad rows
already in traps. A format without any fails here.
"""

from __future__ import annotations

import copy
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.base import Dropped
from connectors.files import CUT_SHORT, head
from connectors.registry import BUILT_IN, SURE, connector
from replay.errors import UserError
from tests.connectors.examples import FORMAT_OF, WITH_BAD_ROWS
from trace_schema.attempts import ATTEMPTS

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"
OPTIONS = {"servegen": {"prompt_tokens": 9, "output_tokens": 9}}
"""What a format needs beside its file."""
MADE = ("servegen",)
"""Formats whose rows are made, and are not those of the file."""

VALUES = (None, True, -1, 0.5, 2**63, 2**64, 1e308, "", "x", "-", "NaN", [], {}, [[1]], {"a": {}},
          "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2024-02-30 00:00:00")  # fmt: skip
WORDS = (b"", b"-", b"x", b"-1", b"NaN", b"Infinity", b"1e999", b"9223372036854775808", b"18446744073709551616",
         b"0001-01-01T00:00:00Z", b"9999-12-31T23:59:59Z", b"99/Zzz/9999:99:99:99", b"M\xfcller", b"\xff\xfe",
         b"\\ud800", b'"', b"null")  # fmt: skip
STEPS = [6, pytest.param(1, marks=pytest.mark.slow)]
"""Every so many of these are tried in each place, others in the next; all of them by the slow tests."""
WORD = re.compile(rb"[A-Za-z0-9_.:+-]+")
JUNK = (b"x" * 10_000_000, b"\x00\xff\x01" * 50, b"[" * 100_000, b'{"a":' * 50_000, b"{}", b"null", b"[1, 2]",
        b'"text"', b'{"timestamp": {}, "start": [], "prompt": {"a": 1}}', b"a,b,c",
        b"2024-01-01 00:00:00 INFO hello")  # fmt: skip
"""Lines that are none of any format."""

EMPTY = (b"[", b"[]", b"PAR1", b"{}\n", b"a,b\n1,2\n")
"""What may hold no row of a format, none that is lost."""


@dataclass(frozen=True)
class Found:
    """What came of a file: its attempts, its dropped rows by reason, or why it was refused."""

    attempts: pa.Table
    dropped: dict[str, tuple[int, list[int]]]
    rows: int
    refusal: str | None = None


def read(path: Path, format: str) -> Found:
    """A file as `replay ingest --format` reads it. Whatever is raised but a sentence for the user ends the test."""
    nothing = ATTEMPTS.arrow.empty_table()
    try:
        if not head(str(path)):
            return Found(nothing, {}, 0, "the file is empty")
        batches = list(connector(format, options=OPTIONS.get(format)).read(str(path)))
    except UserError as error:
        return Found(nothing, {}, 0, sentence(str(error), 600))
    dropped = Dropped()
    for batch in batches:
        dropped.merge(batch.dropped)
    for reason in dropped.reasons:
        sentence(reason, 300)
    attempts = pa.concat_tables([nothing, *(batch.attempts for batch in batches)])
    attempts.validate(full=True)
    return Found(attempts, dropped.reasons, sum(batch.rows_read for batch in batches))


def sentence(text: str, longest: int) -> str:
    """The text, which is one line and no longer than a person reads."""
    assert "\n" not in text
    assert len(text) < longest
    return text


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def records(content: bytes) -> int:
    """Lines that are not blank."""
    return sum(1 for line in content.split(b"\n") if line.strip())


def is_by_line(example: Path) -> bool:
    """Whether a row of the example is a line of it; a header counts as none."""
    found = read(example, FORMAT_OF[example])
    return FORMAT_OF[example] not in MADE and found.rows == records(example.read_bytes()) - is_headed(example)


def is_headed(example: Path) -> bool:
    return example.suffix == ".csv" and FORMAT_OF[example] not in MADE


def is_json(example: Path) -> bool:
    """Whether it is a JSON value, or one a line."""
    try:
        return bool(objects(example))
    except ValueError:
        return False


def objects(example: Path) -> list[Any]:
    text = example.read_text()
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


EXAMPLES = list(FORMAT_OF)
BY_LINE = [example for example in EXAMPLES if is_by_line(example)]
JSON_LINES = [example for example in BY_LINE if is_json(example)]
IDS = lambda example: f"{example.parent.name}/{example.name}"  # noqa: E731


def test_every_format_has_an_example_and_a_section_of_its_page() -> None:
    assert {*BUILT_IN} - {"parquet"} == {*FORMAT_OF.values()}
    headings = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
    assert {*BUILT_IN} <= {name for heading in headings for name in heading.split(", ")}


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_an_example_is_known_by_its_own_format_alone(example: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "renamed.txt.gz", gzip.compress(example.read_bytes()))
    rated = {name: connector(name).sniff(head(str(path)), str(path)) for name in BUILT_IN}
    best = max(rated, key=lambda name: rated[name])
    assert best == FORMAT_OF[example]
    assert rated[best] >= SURE
    others = {name for name, confidence in rated.items() if confidence >= rated[best] and name != best}
    assert not others


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_an_example_is_read(example: Path) -> None:
    found = read(example, FORMAT_OF[example])
    assert found.refusal is None
    assert found.attempts.num_rows > 0
    assert found.dropped == {} or example.parent == WITH_BAD_ROWS


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_a_mark_carriage_returns_and_no_final_line_break_change_nothing(example: Path, tmp_path: Path) -> None:
    content = example.read_bytes().rstrip()
    plain = read(written(tmp_path / example.name, example.read_bytes()), FORMAT_OF[example])
    for change in (b"\xef\xbb\xbf" + content, content.replace(b"\n", b"\r\n"), content, content + b"\n\n\n"):
        found = read(written(tmp_path / example.name, change), FORMAT_OF[example])
        assert (found.refusal, found.dropped) == (None, plain.dropped)
        assert found.attempts.equals(plain.attempts)


@pytest.mark.parametrize("example", JSON_LINES, ids=IDS)
def test_json_in_any_layout_is_the_same_log(example: Path, tmp_path: Path) -> None:
    items = [json.loads(line) for line in example.read_text().splitlines() if line.strip()]
    plain = read(written(tmp_path / example.name, example.read_bytes()), FORMAT_OF[example])
    layouts = (
        json.dumps(items), json.dumps(items, indent=2), "[\n" + ",\n".join(map(json.dumps, items)) + "\n]\n",
        "".join(map(json.dumps, items)), "\n".join(json.dumps(item, indent=1) for item in items),
    )  # fmt: skip
    for layout in layouts:
        found = read(written(tmp_path / example.name, layout.encode()), FORMAT_OF[example])
        assert (found.refusal, found.dropped) == (None, plain.dropped)
        assert found.attempts.equals(plain.attempts)


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n \n", b"\x7fELF\x00\x01" * 50, bytes(range(256)) * 40, b"\x1f\x8b", b"\x1f\x8b\x08" + b"\x00" * 40,
     b"\x28\xb5\x2f\xfd\x00", b"PAR1", b"{}\n", b"[]", b"[", b"{", b"null\n", b"a,b\n1,2\n", b"x" * 10_000_000],
)  # fmt: skip
def test_what_is_no_such_log_has_no_attempts(example: Path, content: bytes, tmp_path: Path) -> None:
    found = read(written(tmp_path / example.name, content), FORMAT_OF[example])
    assert found.attempts.num_rows == 0
    assert found.refusal or found.dropped or not records(content) or content in EMPTY


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_utf_16_is_refused_with_what_to_do(example: Path, tmp_path: Path) -> None:
    text = example.read_text()
    for encoding in ("utf-16", "utf-16-le"):
        found = read(written(tmp_path / example.name, text.encode(encoding)), FORMAT_OF[example])
        assert found.attempts.num_rows == 0
        assert found.refusal is not None or found.dropped
        assert encoding != "utf-16" or "iconv" in (found.refusal or "")


@pytest.mark.parametrize("example", BY_LINE, ids=IDS)
def test_each_line_is_a_row_whatever_stands_between_them(example: Path, tmp_path: Path) -> None:
    first, *lines = example.read_bytes().splitlines()
    good = lines if is_headed(example) else [first, *lines]
    start = [first] if is_headed(example) else []
    for junk in JUNK:
        content = b"\n".join([*start, good[0], junk, *good, junk])
        found = read(written(tmp_path / example.name, content), FORMAT_OF[example])
        assert found.refusal is None
        assert found.rows == len(good) + 3


@pytest.mark.parametrize("example", BY_LINE, ids=IDS)
def test_a_log_in_a_log_of_another_format_is_dropped_by_rows(example: Path, tmp_path: Path) -> None:
    own = example.read_bytes().rstrip() + b"\n"
    for other in BY_LINE:
        if FORMAT_OF[other] != FORMAT_OF[example] and b'"' not in (other.read_bytes() if is_headed(example) else b""):
            content = own + other.read_bytes()
            found = read(written(tmp_path / example.name, content), FORMAT_OF[example])
            assert found.refusal is None
            assert found.rows == records(content) - is_headed(example), other


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_a_truncated_gzip_keeps_what_is_whole_and_says_where_it_breaks_off(example: Path, tmp_path: Path) -> None:
    content = example.read_bytes().rstrip() + b"\n"
    whole = read(example, FORMAT_OF[example])
    packed = gzip.compress(content)
    found = read(written(tmp_path / example.name, packed[: len(packed) // 2]), FORMAT_OF[example])
    assert found.attempts.num_rows < whole.attempts.num_rows or FORMAT_OF[example] in MADE
    assert found.refusal or any(CUT_SHORT in reason for reason in found.dropped)


@pytest.mark.parametrize("example", BY_LINE, ids=IDS)
def test_ids_that_occur_twice_lose_no_row(example: Path, tmp_path: Path) -> None:
    first, *lines = example.read_bytes().splitlines()
    body = b"\n".join(lines if is_headed(example) else [first, *lines]) + b"\n"
    content = (first + b"\n" if is_headed(example) else b"") + 2 * body
    found = read(written(tmp_path / example.name, content), FORMAT_OF[example])
    assert found.rows == 2 * read(example, FORMAT_OF[example]).rows


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_no_word_of_a_log_can_be_such_that_a_row_is_lost(example: Path, step: int, tmp_path: Path) -> None:
    """Each word of its last line is in turn what no word should be."""
    content = example.read_bytes().rstrip()
    start = content.rfind(b"\n") + 1
    rows = read(example, FORMAT_OF[example]).rows
    for number, place in enumerate(WORD.finditer(content, start)):
        for word in WORDS[number % step :: step]:
            changed = content[: place.start()] + word + content[place.end() :]
            found = read(written(tmp_path / example.name, changed), FORMAT_OF[example])
            if example in BY_LINE and not (is_headed(example) and word == b'"'):
                assert found.refusal is None
                assert found.rows == rows, changed[start:]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("example", [example for example in EXAMPLES if is_json(example)], ids=IDS)
def test_no_value_of_a_json_log_can_be_such_that_a_row_is_lost(example: Path, step: int, tmp_path: Path) -> None:
    """Each value of its last object, at any depth, is in turn what no value should be."""
    *before, last = objects(example)
    rows = read(example, FORMAT_OF[example]).rows
    for number, place in enumerate(places(last)):
        for value in VALUES[number % step :: step]:
            changed = replaced(last, place, value)
            content = "".join(json.dumps(item) + "\n" for item in [*before, changed]).encode()
            found = read(written(tmp_path / example.name, content), FORMAT_OF[example])
            if example in BY_LINE:
                assert found.refusal is None
                assert found.rows == rows, changed


def places(value: Any, within: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of each value in a JSON value."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*within, key)
        yield from places(inner, (*within, key))


def replaced(whole: Any, place: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(whole)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed


def test_parquet_of_any_bytes_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"arrival_s": [0.0, 1.0], "prompt_tokens": [1, 2]}), path)
    content = path.read_bytes()
    assert read(path, "parquet").rows == 2
    for at in range(0, len(content), 7):
        read(written(path, content[:at] + b"\xff\x00" + content[at + 2 :]), "parquet")
        read(written(path, content[:at]), "parquet")
