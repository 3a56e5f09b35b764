"""Random numbers of a purpose: no draw depends on what else is drawn."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def stream(seed: int, purpose: str) -> np.random.Generator:
    """The random numbers for `purpose` under `seed`, from their beginning.

    Each purpose has its own Philox counter (Salmon et al., SC '11) under a hashed key, so that another law for one
    purpose shifts no draw of another, and the first n draws are the same however many are taken.
    """
    key = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
