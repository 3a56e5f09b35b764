"""A file's digest costs no second reading, and is right whatever way the file is read."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from connectors import digests
from connectors.digests import digested
from connectors.files import blocks, head

CONTENT = b"".join(b"line %d\n" % k for k in range(50_000))


@pytest.fixture(params=["plain", "gzip"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_bytes(CONTENT if request.param == "plain" else gzip.compress(CONTENT))
    return path


def test_a_file_that_is_read_to_its_end_is_not_read_again(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(path: str) -> str:
        raise AssertionError(f"{path} is read twice")

    monkeypatch.setattr(digests, "digest", again)
    with digested(str(log)) as sha256:
        head(str(log))
        assert b"".join(block for block in blocks(str(log)) if block) == CONTENT
        assert sha256() == hashlib.sha256(log.read_bytes()).hexdigest()


def test_a_file_that_is_read_in_part_is_hashed_whole(log: Path) -> None:
    with digested(str(log)) as sha256:
        head(str(log))
        assert sha256() == hashlib.sha256(log.read_bytes()).hexdigest()


def test_a_file_that_breaks_off_is_hashed_as_it_is(log: Path) -> None:
    log.write_bytes(gzip.compress(CONTENT)[:-100])
    with digested(str(log)) as sha256:
        assert list(blocks(str(log)))[-1] is None
        assert sha256() == hashlib.sha256(log.read_bytes()).hexdigest()


def test_nothing_is_remembered_of_a_file_that_may_change(log: Path) -> None:
    for content in (b"a\n", b"b\n"):
        log.write_bytes(content)
        with digested(str(log)) as sha256:
            list(blocks(str(log)))
            assert sha256() == hashlib.sha256(content).hexdigest()
