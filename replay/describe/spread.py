"""Distributions and rates, in a few numbers."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from replay.phases import arrivals_by_window

Floats = npt.NDArray[np.float64]


class Spread(msgspec.Struct, frozen=True):
    """A distribution in five numbers."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: npt.NDArray[np.generic]) -> Spread | None:
        """The spread of the values that are numbers; None when none is."""
        values = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        if not len(values):
            return None
        p50, p90, p99 = (float(q) for q in np.quantile(values, [0.5, 0.9, 0.99]))
        return cls(float(values.mean()), p50, p90, p99, float(values.max()))


class Windows(msgspec.Struct, frozen=True):
    """Arrivals counted in windows of one length."""

    most: int
    dispersion: float
    """Variance over mean of the counts: 1 for a Poisson process."""

    @classmethod
    def of(cls, arrivals: Floats, window_s: float) -> Windows:
        counts = arrivals_by_window(arrivals, window_s, int(float(arrivals[-1]) / window_s) + 1)
        whole = counts[:-1] if len(counts) > 2 else counts  # the trace ends within the last one
        return cls(int(counts.max()), float(whole.var() / max(whole.mean(), 1e-9)))
