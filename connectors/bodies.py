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


def name_of_secret(secret: str) -> str:
    """A name for whoever has a secret, such as an API key: the same in every log, and nothing leads back to the secret.

    Unlike a prompt, it cannot be guessed, so that its hash needs no key.
    """
    return "key-" + hashlib.blake2b(secret.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
