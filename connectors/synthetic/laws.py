"""Laws of lengths and of times: written as text, such as `lognormal:mean=1200,cv=0.8`, and drawn from."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from connectors.synthetic.draws import Floats
from connectors.synthetic.gaps import Gaps
from trace_schema.errors import UnknownName

PLAIN_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+|inf|nan)(e[-+]?\d+)?\s*", re.IGNORECASE)
BETWEEN_PARTS = re.compile(r"(?<![\d.][eE])\+(?=[^*]*\*)")
"""Before each law of a mixture but the first; the + of 1e+3 is none."""
MOST = 1e9
"""Largest parameter: tokens and seconds beyond it are mistakes."""


class Law:
    """A law of numbers that are at least 0. `str(law)` is the text that `law_of` reads."""

    name: ClassVar[str]
    formula: ClassVar[str]
    """How a draw x follows from U uniform in [0, 1), Z standard normal or E standard exponential."""

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        """The first `n` draws of `random`; draw k is the same for every n, and moves with the parameters alone."""
        raise NotImplementedError

    def __str__(self) -> str:
        given = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))  # type: ignore[arg-type]
        return f"{self.name}:" + ",".join(f"{key}={value:.12g}" for key, value in given)


@dataclass(frozen=True, slots=True)
class Constant(Law):
    value: float

    name = "constant"
    formula = "`x = value`; a plain number is short for it"

    def __post_init__(self) -> None:
        within("value", self.value)

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        return np.full(n, self.value)

    def __str__(self) -> str:
        return f"{self.value:.12g}"


@dataclass(frozen=True, slots=True)
class Uniform(Law):
    low: float
    high: float

    name = "uniform"
    formula = "`x = low + (high - low) U`"

    def __post_init__(self) -> None:
        within("low", self.low)
        within("high", self.high, self.low)

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        return self.low + (self.high - self.low) * random.random(n)


@dataclass(frozen=True, slots=True)
class Exponential(Law):
    mean: float

    name = "exponential"
    formula = "`x = mean E`"

    def __post_init__(self) -> None:
        within("mean", self.mean)

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        return self.mean * random.standard_exponential(n)


@dataclass(frozen=True, slots=True)
class Geometric(Law):
    mean: float

    name = "geometric"
    formula = "`x = 1 + floor(E / -ln(1 - 1/mean))`: 1, 2, 3, ..., each next one with the same chance"

    def __post_init__(self) -> None:
        within("mean", self.mean, 1.0)

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        drawn = random.standard_exponential(n)
        return 1.0 + np.floor(drawn / -math.log1p(-1.0 / self.mean)) if self.mean > 1.0 else np.ones(n)


@dataclass(frozen=True, slots=True)
class Lognormal(Law):
    mean: float
    cv: float

    name = "lognormal"
    formula = "`x = mean exp(s Z - s^2 / 2)` with `s^2 = ln(1 + cv^2)`; cv = standard deviation / mean"

    def __post_init__(self) -> None:
        within("mean", self.mean)
        within("cv", self.cv, most=100.0)

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        variance = math.log1p(self.cv**2)
        return self.mean * np.exp(math.sqrt(variance) * random.standard_normal(n) - variance / 2.0)


@dataclass(frozen=True, slots=True)
class Weibull(Law):
    mean: float
    shape: float

    name = "weibull"
    formula = "`x = mean E^(1/shape) / Gamma(1 + 1/shape)`; shape < 1: who has waited long waits on, > 1: gives up"

    def __post_init__(self) -> None:
        within("mean", self.mean)
        within("shape", self.shape, 0.05, 1000.0)

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        return np.asarray(self.mean * Gaps("weibull", self.shape).draw(random, n))


@dataclass(frozen=True, slots=True)
class Discrete(Law):
    points: tuple[tuple[float, float], ...]
    """(value, weight), values increasing."""

    name = "discrete"
    formula = "`x` = a value with a chance as its weight, as in `discrete:60=0.2,128=0.5,4000=0.3`"

    def __post_init__(self) -> None:
        values, weights = zip(*self.points, strict=True) if self.points else ((), ())
        for value, weight in self.points:
            within("a value", value)
            within(f"weight of {value:g}", weight)
        if not (np.diff(values) > 0).all() or not sum(weights) > 0.0:
            raise ValueError("values must increase, with weights that are not all 0, as in discrete:60=0.2,4000=0.8")

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        values, weights = np.transpose(self.points)
        up_to = np.cumsum(weights) / np.sum(weights)
        return np.asarray(values[np.minimum(np.searchsorted(up_to, random.random(n), side="right"), len(values) - 1)])

    def __str__(self) -> str:
        return f"{self.name}:" + ",".join(f"{value:.12g}={weight:.12g}" for value, weight in self.points)


@dataclass(frozen=True, slots=True)
class Mixture(Law):
    parts: tuple[tuple[float, Law], ...]
    """(weight, law)."""

    name = "mixture"
    formula = "`x` of one of several laws, with a chance as its weight: `mixture:0.7*exponential:3+0.3*lognormal:60,1`"

    def __post_init__(self) -> None:
        for weight, law in self.parts:
            within(f"weight of {law}", weight)
            if isinstance(law, Mixture):
                raise ValueError("a mixture is one of laws that are none themselves")
        if not sum(weight for weight, _ in self.parts) > 0.0:
            raise ValueError("a mixture needs laws with weights, as in mixture:0.7*exponential:3+0.3*lognormal:60,1")

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        # Each law draws for every place from numbers of its own, so that draw k knows nothing of n.
        source: Any = random.bit_generator
        draws = [law.draw(np.random.Generator(source.jumped(k + 1)), n) for k, (_, law) in enumerate(self.parts)]
        up_to = np.cumsum([weight for weight, _ in self.parts])
        which = np.searchsorted(up_to / up_to[-1], random.random(n), side="right")
        return np.asarray(np.stack(draws)[np.minimum(which, len(draws) - 1), np.arange(n)])

    def __str__(self) -> str:
        return f"{self.name}:" + "+".join(f"{weight:.12g}*{law}" for weight, law in self.parts)


@dataclass(frozen=True, slots=True)
class Quantiles(Law):
    points: tuple[tuple[float, float], ...]
    """(share, value), increasing; the shares begin with 0 and end with 1."""

    name = "quantiles"
    formula = "`x` = the value at share U, on straight lines between the points, as in `quantiles:0=8,0.5=300,1=4000`"

    def __post_init__(self) -> None:
        shares, values = zip(*self.points, strict=True) if self.points else ((), ())
        if len(shares) < 2 or shares[0] != 0.0 or shares[-1] != 1.0 or not (np.diff(shares) > 0).all():
            raise ValueError("shares must increase from 0 to 1, as in quantiles:0=8,0.5=300,1=4000")
        for share, value, least in zip(shares, values, (0.0, *values), strict=False):
            within(f"{share:g}", value, least)

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        shares, values = np.transpose(self.points)
        return np.asarray(np.interp(random.random(n), shares, values))

    def __str__(self) -> str:
        return f"{self.name}:" + ",".join(f"{share:.12g}={value:.12g}" for share, value in self.points)


LAWS: Mapping[str, type[Law]] = {
    law.name: law
    for law in (Constant, Uniform, Exponential, Geometric, Lognormal, Weibull, Quantiles, Discrete, Mixture)
}


def within(name: str, value: float, least: float = 0.0, most: float = MOST) -> None:
    """Raise ValueError unless `value` is a number from `least` to `most`."""
    if not least <= value <= most:
        raise ValueError(f"{name} is {value:g}, and must be from {least:g} to {most:g}")


def law_of(written: Any) -> Law:
    """The law that a text or a number says. Raises ValueError."""
    if isinstance(written, Law):
        return written
    if isinstance(written, bool) or not isinstance(written, str | float | int):
        raise ValueError(f"{written!r} is neither a number nor a law, such as lognormal:mean=1200,cv=0.8")
    name, colon, rest = str(written).partition(":")
    if not colon and PLAIN_NUMBER.fullmatch(name):
        return Constant(float(name))
    name = name.strip()
    if name not in LAWS:
        raise ValueError(str(UnknownName.of("law", name, LAWS)))
    if name == Mixture.name:
        return Mixture(tuple(part_of(part) for part in BETWEEN_PARTS.split(rest)))
    parameters = [part.partition("=") for part in rest.split(",") if part.strip()]
    kind: Any = LAWS[name]
    if kind in (Quantiles, Discrete):
        what = "share" if kind is Quantiles else "value"
        return kind(tuple((number(what, key), number(key, value)) for key, _, value in parameters))  # type: ignore[no-any-return]
    return kind(**values_of(name, [f.name for f in dataclasses.fields(kind)], parameters))  # type: ignore[no-any-return]


def values_of(name: str, known: Sequence[str], parameters: Sequence[tuple[str, str, str]]) -> dict[str, float]:
    """The parameters of the law called `name`, which are `known`: by their names or by their places.

    Raises ValueError unless each is given once.
    """
    values: dict[str, float] = {}
    for position, (key, equals, value) in enumerate(parameters):
        place = key.strip() if equals else known[min(position, len(known) - 1)]
        if place not in known:
            raise ValueError(str(UnknownName.of(f"parameter of {name}", place, known)))
        if place in values or position >= len(known):
            raise ValueError(f"{name} takes {' and '.join(known)}, each once")
        values[place] = number(place, value if equals else key)
    missing = [key for key in known if key not in values]
    if missing:
        raise ValueError(f"{name} needs {' and '.join(missing)}, as in {name}:{','.join(f'{k}=...' for k in known)}")
    return values


def part_of(text: str) -> tuple[float, Law]:
    """One law of a mixture, and its weight. Raises ValueError."""
    weight, times, law = text.partition("*")
    if not times:
        raise ValueError(f"{text.strip()!r} has no weight; a mixture is written 0.7*exponential:3+0.3*lognormal:60,1")
    return number("weight", weight), law_of(law)


def number(name: str, text: str) -> float:
    """A parameter's value. Raises ValueError."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name.strip()}: {text.strip()!r} is not a number") from None
