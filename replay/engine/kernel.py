"""How the engine's functions are compiled: three kinds of function, one cache."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import UserProvidedCacheLocator

from replay.engine.lean import CALLED, INNER, compiling_once, full_name

HERE = Path(__file__).parent


def source_digest() -> str:
    """Digest of the engine's sources.

    Numba's on-disk cache notices an edit of the file that holds the entry, not of the files that it calls; a cache
    directory for each digest does.
    """
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(HERE.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def cache_directory() -> Path:
    """Where compiled code is kept: below `REPLAY_CACHE_DIR`, else the user's cache, else the temporary directory."""
    home = os.environ.get("REPLAY_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    for base in (Path(home), Path(tempfile.gettempdir())):
        directory = base / "llm-traffic-replay" / f"kernel-{source_digest()}"
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(directory, os.W_OK):
            return directory
    return Path(tempfile.mkdtemp(prefix="llm-traffic-replay-"))


CACHE = cache_directory()


def is_compiled() -> bool:
    """Whether a compiled engine for these sources is at hand."""
    return any(CACHE.rglob("*.nbc"))


class ByContent(UserProvidedCacheLocator):
    """Where numba finds compiled code: by the sources' digest, wherever the sources lie.

    Numba's own locators go by the path of the file, so that a copy of this package on a cluster's node would compile
    again.
    """

    def get_cache_path(self) -> str:
        return str(CACHE)

    def get_source_stamp(self) -> str:
        return CACHE.name


# Nothing is allocated inside the kernels, so reference counting (`_nrt`) is off: with it, a state of many arrays is
# counted up and down at every call, and the engine is 10 to 50 times slower.
_COMMON: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
_INNER: dict[str, Any] = {**_COMMON, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def inner(function: Kernel, *, forceinline: bool) -> Kernel:
    """Compile a function that other kernels alone use."""
    INNER.add(function.__qualname__)
    if not forceinline:
        CALLED.add(full_name(function.__module__, function.__qualname__))
    return cast(Kernel, numba.njit(forceinline=forceinline, **_INNER)(function))


def hot(function: Kernel) -> Kernel:
    """Compile a function on the path of every step or request: inlined into its caller."""
    return inner(function, forceinline=True)


def cold(function: Kernel) -> Kernel:
    """Compile a function that runs rarely: called."""
    return inner(function, forceinline=False)


def entry(function: Kernel) -> Kernel:
    """Compile a function that Python calls: once for each version of the sources, then read from disk."""
    config: Any = numba.config
    before = config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES
    config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = str(CACHE), f"{__name__}.{ByContent.__name__}"
    try:
        compiled = numba.njit(cache=True, **_COMMON)(function)
    finally:
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = before

    @wraps(function)
    def call(*arguments: Any) -> Any:
        if compiled.signatures:
            return compiled(*arguments)
        with compiling_once():
            return compiled(*arguments)

    return cast(Kernel, call)
