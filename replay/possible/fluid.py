"""How many jobs a machine can do at most that may stop and go on with any of them at any time.

Of jobs with a size, a release and a deadline, the work that such a machine gets done in time at most, partly done jobs
included, is what it does by always taking the job with the earliest deadline and dropping what is late (algorithm F of
Shih, Liu and Chung, *Algorithms for scheduling imprecise computations*, 1991). That is the rank function of a
polymatroid, so that a fractional number of jobs is maximized greedily, the smallest first; and no whole number of them
is larger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from replay.engine.kernel import CACHE

Floats = npt.NDArray[np.float64]
SIZES = 64
"""Classes of sizes: within one, all work goes to its smallest jobs, which can only be too good."""
INSTANTS = 1 << 15
"""Of more jobs than this, releases and deadlines are moved apart to so many instants."""
ROUNDING, SLACK = 1e-12, 1e-3
"""What rounding may take away: of work done, relative; and of a number of jobs."""

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function that Python calls, and keep it beside the compiled engine."""
    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, str(CACHE)
    try:
        return cast(Function, numba.njit(cache=True, error_model="numpy")(function))
    finally:
        config.CACHE_DIR = before


@compiled
def most_work(release: Any, deadline: Any, size: Any, speed: float) -> float:
    """The most work that a machine of `speed` gets done in time; jobs in order of release."""
    n = len(release)
    heap = np.empty(n, np.int64)  # jobs that are there, the earliest deadline on top
    left = size.copy()
    held = 0
    upcoming = 0
    now = 0.0
    done = 0.0
    while held > 0 or upcoming < n:
        if held == 0:
            now = max(now, release[upcoming])
        while upcoming < n and release[upcoming] <= now:
            k = held
            held += 1
            while k > 0 and deadline[heap[(k - 1) // 2]] > deadline[upcoming]:
                heap[k] = heap[(k - 1) // 2]
                k = (k - 1) // 2
            heap[k] = upcoming
            upcoming += 1
        job = heap[0]
        until = min(now + left[job] / speed, deadline[job])
        over = True
        if upcoming < n and release[upcoming] < until:
            until = release[upcoming]
            over = False
        worked = min(max(until - now, 0.0) * speed, left[job])
        done += worked
        left[job] -= worked
        now = max(now, until)
        if over:
            held -= 1
            last = heap[held]
            k = 0
            while 2 * k + 1 < held:
                child = 2 * k + 1
                if child + 1 < held and deadline[heap[child + 1]] < deadline[heap[child]]:
                    child += 1
                if deadline[heap[child]] >= deadline[last]:
                    break
                heap[k] = heap[child]
                k = child
            heap[k] = last
    return done


def most_jobs(release: Floats, deadline: Floats, size: Floats, speed: float) -> int:
    """No more jobs than this are done in time, in whatever order.

    `release` and `deadline` in seconds, `size` in what a machine of speed 1 does in a second.
    """
    can = deadline >= release
    release, deadline, size = release[can], deadline[can], size[can]
    order = np.argsort(size, kind="stable")
    release, deadline, size = release[order], deadline[order], size[order]
    if len(size) > INSTANTS:
        release, deadline = moved_apart(release, deadline)
    pairs, pair = np.unique(np.column_stack([release, deadline]).view(np.complex128).ravel(), return_inverse=True)
    release, deadline = pairs.real.copy(), pairs.imag.copy()  # in order of release

    def work(low: int, high: int) -> Floats:
        """The sizes of some jobs, those with the same instants taken together."""
        return np.bincount(pair[low:high], weights=size[low:high], minlength=len(pairs)).astype(np.float64)

    if most_work(release, deadline, work(0, len(size)), speed) >= float(size.sum()) * (1.0 - ROUNDING):
        return len(size)
    bounds = np.unique(np.linspace(0, len(size), min(SIZES, len(size)) + 1).astype(np.int64))
    found, before, wanted = 0.0, 0.0, np.zeros(len(pairs))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        wanted += work(low, high)
        done = float(most_work(release, deadline, wanted, speed))
        found += smallest_first(size[low:high], done - before + ROUNDING * done)
        before = done
    return min(int(found + SLACK), len(size))


def moved_apart(release: Floats, deadline: Floats) -> tuple[Floats, Floats]:
    """Releases moved back and deadlines moved on to one of `INSTANTS`: more time for every job."""
    last = float(deadline[np.isfinite(deadline)].max(initial=float(release.max())))
    width = max(last, 1e-9) / INSTANTS
    return np.floor(release / width) * width, np.ceil(deadline / width) * width


def smallest_first(size: Floats, amount: float) -> float:
    """Into how many jobs of increasing size an amount of work goes, the last one counted by the share that is done."""
    through = np.cumsum(size)
    whole = int(np.searchsorted(through, amount, side="right"))
    if whole == len(size):
        return float(whole)
    rest = amount - (through[whole - 1] if whole else 0.0)
    return float(whole + max(rest / size[whole], 0.0))
