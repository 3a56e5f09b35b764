"""Which attempts a trace is made of, where the user does not want all: a condition, a share of them at random."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import ROWS_NAMED, Dropped
from queries.where import rows_where
from replay.errors import BadConfig
from replay.ingest.report import FileReport
from trace_schema.columns import is_empty, words

Mask = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]

TOGETHER = ("session_id", "retry_group")
"""What holds attempts together, the first that an attempt has: a conversation's turns, and a call's tries."""
TOGETHER_IF_FAILED = ("client", "tenant", "idempotency_key", "trace_id", "body_hash")
"""What an attempt that failed may have in common with its retry, the caller first."""
ENDED_WELL = {"ok", "unknown"}


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants of a log."""

    where: str | None = None
    """A condition on columns of ATTEMPTS, in the SQL of DuckDB."""
    sample: float | None = None
    """Share of what belongs together that is kept."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sample is not None and not 0 < self.sample <= 1:
            raise BadConfig(f"--sample {self.sample:g}: must be a share above 0 and at most 1, such as 0.1")


def chosen(attempts: pa.Table, files: list[FileReport], choice: Choice) -> tuple[pa.Table, list[FileReport]]:
    """The attempts that `choice` keeps, and the files' reports, in which the others are dropped rows.

    Raises BadConfig when the condition is none.
    """
    if choice.where is not None:
        kept = np.asarray(rows_where(attempts, choice.where))
        attempts, files = without(attempts, files, kept, "left out by --where")
    if choice.sample is not None and attempts.num_rows:
        by = held_together_by(attempts)
        limit = round(choice.sample * 2.0**64) - 1
        kept = hashes(attempts, by, choice.seed) <= np.uint64(limit)
        words_of_it = f"by {', '.join(by)}" if by else "row by row"
        attempts, files = without(attempts, files, kept, f"left out by --sample {choice.sample:g}, {words_of_it}")
    return attempts, files


def without(attempts: pa.Table, files: list[FileReport], kept: Mask, reason: str) -> tuple[pa.Table, list[FileReport]]:
    """The attempts that are `kept`; rows of which none is are dropped for `reason`."""
    mask = pa.array(kept)
    rest, remaining = attempts.filter(pc.invert(mask)), attempts.filter(mask)
    reports = []
    for file in files:
        rows = np.setdiff1d(rows_of(rest, file.path), rows_of(remaining, file.path))
        if len(rows):
            dropped = Dropped(dict(file.dropped))
            dropped.merge(Dropped({reason: (len(rows), rows[:ROWS_NAMED].tolist())}))
            file = msgspec.structs.replace(file, rows_emitted=file.rows_emitted - len(rows), dropped=dropped.reasons)
        reports.append(file)
    return remaining, reports


def rows_of(attempts: pa.Table, path: str) -> npt.NDArray[np.int64]:
    """The rows of a file that attempts come from."""
    rows: npt.NDArray[np.int64] = np.asarray(attempts.filter(pc.equal(attempts["source_file"], path))["source_row"])
    return rows


def held_together_by(attempts: pa.Table) -> list[str]:
    """The columns that say which attempts belong together, in this log."""
    failed = not words(attempts["status"]) <= ENDED_WELL
    names = (*TOGETHER, *(TOGETHER_IF_FAILED if failed else ()))
    return [name for name in names if name in attempts.column_names and not is_empty(attempts[name])]


def hashes(attempts: pa.Table, by: Sequence[str], seed: int) -> Hashes:
    """64 bits for each attempt, equal for those with the same first value of `by`; without one, of its row."""
    found: Hashes = scrambled(np.asarray(attempts["source_row"]).astype(np.uint64), attempts["source_file"], seed)
    for name in reversed(by):
        codes = attempts[name].combine_chunks().dictionary_encode()
        of_value = np.array([keyed(f"{name}={value}", seed) for value in codes.dictionary.to_pylist()], np.uint64)
        known = np.asarray(codes.indices.is_valid())
        found[known] = of_value[np.asarray(codes.indices.fill_null(0))[known]]
    return found


def keyed(text: str, seed: int) -> int:
    """64 bits of a text under a seed."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=f"replay/sample/{seed}".encode()).digest()
    return int.from_bytes(digest, "little")


def scrambled(rows: Hashes, files: pa.ChunkedArray, seed: int) -> Hashes:
    """64 bits for each row of each file: SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014) of both."""
    codes = files.combine_chunks().dictionary_encode()
    of_file = np.array([keyed(f"file={file}", seed) for file in codes.dictionary.to_pylist()], np.uint64)
    z: Hashes = rows * np.uint64(0x9E3779B97F4A7C15) + of_file[np.asarray(codes.indices)]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z
