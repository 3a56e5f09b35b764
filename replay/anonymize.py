"""Who and what a log names, under other names: of people, sessions and requests nothing is left but which are the same.

A pseudonym is 64 bits of BLAKE2b under a key (Aumasson et al., ACNS 2013), and depends on what is named: a tenant and a
client of one name have two. The key is drawn for one trace and thrown away, so that nobody can look a name up, its
owner included; or it is read from a file, where several traces must name the same people alike.

Models and deployments keep their names, which a replay needs to tell engines apart.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from replay.errors import BadConfig
from replay.ingest import Trace
from trace_schema.fold import Example, FoldAccount

NAMES = {
    "source_call": "call",
    "idempotency_key": "idempotency key",
    "tenant": "tenant",
    "client": "client",
    "session_id": "session",
}
"""Columns of CALLS by which a person could be known, and what each names."""
KEY_BYTES_LEAST = 16


def fresh_key() -> bytes:
    """A key that nobody keeps."""
    return os.urandom(32)


def key_from(path: str) -> bytes:
    """The key that a file holds. Raises BadConfig when it cannot be read, or is too short to keep anything secret."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise BadConfig(f"{path}: cannot be read: {error.strerror}") from error
    if len(content.strip()) < KEY_BYTES_LEAST:
        raise BadConfig(
            f"{path}: a key has at least {KEY_BYTES_LEAST} bytes; make one with: head -c 32 /dev/urandom > {path}"
        )
    return hashlib.blake2b(content, digest_size=32).digest()


def anonymized(trace: Trace, key: bytes) -> Trace:
    """`trace` under pseudonyms: its calls, their prompts' hashes, and the files that its report names."""
    calls = trace.calls
    for place, field in enumerate(calls.schema):
        if field.name in NAMES:
            calls = calls.set_column(place, field, renamed(calls.column(place), NAMES[field.name], key))
        elif field.name == "block_hashes":
            calls = calls.set_column(place, field, rehashed(calls.column(place), key))
    report = trace.report
    if report is not None:
        files = [
            msgspec.structs.replace(f, path=pseudonym(f.path, "file", key), sha256=pseudonym(f.sha256, "digest", key))
            for f in report.files
        ]
        fold = None if report.fold is None else without_paths(report.fold, key)
        report = msgspec.structs.replace(report, files=files, fold=fold)
    return Trace(calls, msgspec.structs.replace(trace.about, report=report))


def without_paths(fold: FoldAccount, key: bytes) -> FoldAccount:
    """The account of a fold, whose examples name the files of their attempts."""
    examples = [
        Example(
            call_id=example.call_id,
            attempts=[msgspec.structs.replace(a, file=pseudonym(a.file, "file", key)) for a in example.attempts],
        )
        for example in fold.examples
    ]
    return msgspec.structs.replace(fold, examples=examples)


def renamed(column: pa.ChunkedArray, what: str, key: bytes) -> pa.ChunkedArray:
    """Each value's pseudonym; null stays null."""
    names = column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    chunks = []
    for chunk in names.chunks:
        pseudonyms = [None if n is None else pseudonym(n, what, key) for n in chunk.dictionary.to_pylist()]
        chunks.append(pa.array(pseudonyms, pa.string()).take(chunk.indices))
    return pa.chunked_array(chunks, pa.string()).cast(column.type)


def rehashed(column: pa.ChunkedArray, key: bytes) -> pa.ChunkedArray:
    """Lists of block hashes, each hash replaced by a keyed one: whoever knows a prompt cannot look it up."""
    lists = column.combine_chunks()
    values, where = np.unique(np.asarray(lists.values), return_inverse=True)
    keyed = np.asarray([int(pseudonym(str(value), "block", key), 16) for value in values.tolist()], np.uint64)
    replaced = pa.ListArray.from_arrays(lists.offsets, pa.array(keyed[where]), mask=lists.is_null())
    return pa.chunked_array([replaced.cast(column.type)])


def pseudonym(name: Any, what: str, key: bytes) -> str:
    """16 hexadecimal digits."""
    text = str(name).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, key=key, digest_size=8, person=what.encode()[:16]).hexdigest()
