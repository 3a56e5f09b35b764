"""What a reader keeps of a prompt, a response or a secret: a keyed hash, and how long it is. Never the text."""

from __future__ import annotations

import hashlib
import os

KEY = os.urandom(32)
"""Of this process alone: equal texts have equal hashes within one ingest, and nobody can look one up afterwards."""


def keyed_hash(text: str | bytes) -> str:
    """64 bits of a text, of which nothing else can be learned."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return hashlib.blake2b(data, key=KEY, digest_size=8).hexdigest()
