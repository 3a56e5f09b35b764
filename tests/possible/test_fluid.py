"""The fluid machine: no whole number of jobs beats it, and it is the best fractional one."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from replay.possible import fluid
from replay.possible.fluid import most_jobs, most_work

Job = tuple[float, float, float]
"""Release, deadline, size."""
JOBS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 8), st.integers(0, 6)).map(lambda j: (j[0], j[0] + j[1], j[2])),
    min_size=1,
    max_size=7,
)


def columns(jobs: list[Job]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    release, deadline, size = np.array(jobs, dtype=np.float64).T
    return release, deadline, size


def can_all_be_done(jobs: list[Job], speed: float) -> bool:
    """Preemptive jobs can all be done in time when no interval holds more work than it has room for (Horn 1974)."""
    return all(
        sum(size for release, deadline, size in jobs if a <= release and deadline <= b) <= speed * (b - a) + 1e-9
        for a, _, _ in jobs
        for _, b, _ in jobs
        if a < b
    )


def most_by_trying(jobs: list[Job], speed: float) -> int:
    for n in range(len(jobs), 0, -1):
        if any(can_all_be_done(list(chosen), speed) for chosen in combinations(jobs, n)):
            return n
    return 0


def most_fractional(jobs: list[Job], speed: float) -> float:
    """The linear program: how much of each job is done in each of the intervals between two instants."""
    instants = sorted({t for release, deadline, _ in jobs for t in (release, deadline)})
    slots = list(pairwise(instants))
    n, width = len(jobs), len(slots)
    within = np.zeros((n, n * width))
    room = np.zeros((width, n * width))
    upper = np.zeros(n * width)
    for j, (release, deadline, _) in enumerate(jobs):
        for k, (a, b) in enumerate(slots):
            within[j, j * width + k] = room[k, j * width + k] = 1.0
            upper[j * width + k] = speed * (b - a) if release <= a and b <= deadline else 0.0
    value = np.repeat([1.0 / size for _, _, size in jobs], width)
    found = linprog(
        -value,
        A_ub=np.vstack([within, room]),
        b_ub=[size for _, _, size in jobs] + [speed * (b - a) for a, b in slots],
        bounds=list(zip(np.zeros(n * width), upper, strict=True)),
    )
    return float(-found.fun)


@given(JOBS, st.sampled_from([1.0, 2.0, 0.5]))
@settings(deadline=None)
def test_no_choice_of_jobs_beats_the_bound(jobs: list[Job], speed: float) -> None:
    assert most_jobs(*columns(jobs), speed) >= most_by_trying(jobs, speed)


@given(JOBS.map(lambda jobs: [(r, d, max(s, 1)) for r, d, s in jobs]), st.sampled_from([1.0, 2.0, 0.5]))
@settings(deadline=None)
def test_the_bound_is_the_best_fractional_number_of_jobs(jobs: list[Job], speed: float) -> None:
    assert most_jobs(*columns(jobs), speed) == int(most_fractional(jobs, speed) + 1e-3)


@given(JOBS, st.sampled_from([1.0, 2.0, 0.5]))
@settings(deadline=None)
def test_jobs_taken_together_are_bounded_more_loosely(jobs: list[Job], speed: float) -> None:
    exact = most_jobs(*columns(jobs), speed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fluid, "INSTANTS", 3)
        patched.setattr(fluid, "SIZES", 2)
        assert most_jobs(*columns(jobs), speed) >= exact


def test_earliest_deadlines_first_keeps_the_machine_busy_longest() -> None:
    release, deadline, size = columns([(0, 10, 5), (0, 5, 5), (7, 8, 3)])
    assert most_work(release, deadline, size, 1.0) == pytest.approx(10.0)
