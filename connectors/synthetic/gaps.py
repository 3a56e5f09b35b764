"""Laws of the gaps between arrivals, with mean 1: as even or as bursty as their cv says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from connectors.synthetic.draws import Floats

Family = Literal["gamma", "weibull"]

EVEN_CV = 1e-3
"""Gaps that vary less than this are all equal: their law is beyond the reach of floats."""
SHAPE_LEAST, SHAPE_MOST = 0.05, 1e4
"""Weibull shapes between which one is sought for a cv; those of real clients are 0.3 to 3 (ServeGen)."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps with mean 1. The shape is that of the family; infinity: all gaps are equal. Gamma or Weibull of shape 1 are
    exponential: a Poisson process."""

    family: Family
    shape: float

    @classmethod
    def of_cv(cls, family: Family, cv: float) -> Gaps:
        """Gaps with a standard deviation of `cv` times their mean."""
        if cv < EVEN_CV:
            return cls(family, math.inf)
        return cls(family, 1.0 / cv**2 if family == "gamma" else weibull_shape(cv))

    @property
    def cv(self) -> float:
        """Standard deviation over mean."""
        if math.isinf(self.shape):
            return 0.0
        return self.shape**-0.5 if self.family == "gamma" else weibull_cv(self.shape)

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        """The first `n` gaps of `random`."""
        if math.isinf(self.shape):
            return np.ones(n)
        if self.family == "gamma":
            return random.standard_gamma(self.shape, n) / self.shape
        return np.asarray(random.standard_exponential(n) ** (1.0 / self.shape) / math.gamma(1.0 + 1.0 / self.shape))

    def first(self, random: np.random.Generator) -> float:
        """From a moment that knows nothing of the arrivals to the first of them.

        U times a gap of the law that its length weighs (Cox, Renewal Theory, 1962, ch. 5): a long gap is the likelier
        one to be met, and time 0 lies anywhere in it, not at its beginning, where a bursty process would begin with a
        crowd. Such gaps are Gamma with shape k + 1; or Weibull's with x^k Gamma distributed with shape 1 + 1/k.
        """
        within = random.random()
        if math.isinf(self.shape):
            return within
        if self.family == "gamma":
            return float(within * random.standard_gamma(self.shape + 1.0) / self.shape)
        met = random.standard_gamma(1.0 + 1.0 / self.shape) ** (1.0 / self.shape)
        return float(within * met / math.gamma(1.0 + 1.0 / self.shape))

    def arrivals(self, n: int, random: np.random.Generator, first: np.random.Generator) -> Floats:
        """The first `n` arrivals of the stationary renewal process of rate 1 with these gaps."""
        gaps = self.draw(random, n)
        gaps[1:] = gaps[:-1]
        gaps[0] = self.first(first)
        return np.cumsum(gaps)


def weibull_cv(shape: float) -> float:
    """The cv of a Weibull law: var / mean^2 = Gamma(1 + 2/k) / Gamma(1 + 1/k)^2 - 1."""
    return math.sqrt(math.expm1(math.lgamma(1.0 + 2.0 / shape) - 2.0 * math.lgamma(1.0 + 1.0 / shape)))


def weibull_shape(cv: float) -> float:
    """The shape whose cv is `cv`, which falls as the shape rises: by bisection of its logarithm."""
    low, high = math.log(SHAPE_LEAST), math.log(SHAPE_MOST)
    while high - low > 1e-12:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if weibull_cv(math.exp(middle)) > cv else (low, middle)
    return math.exp(0.5 * (low + high))
