"""Step times from a benchmark: factors on those of a profile, by relative least squares on its requests.

A benchmark shows no steps, only what their sums did to requests. So the benchmark is replayed (its arrivals, its
lengths) under trial values, and the logarithms of simulated over measured times to first token and per output token
are made small. That the engine is about like the profile counts as one more observation; what the data do not tell
stays as it was, and widens the intervals of the rest. Every third stretch of requests is held back to measure errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from replay.calibrate.serving import baked, refuse_too_long, replayed
from replay.calibrate.sources import Floats, Measured, batch_sizes
from replay.errors import BadInput
from replay.profiles.profile import Profile

Bools = npt.NDArray[np.bool_]

REQUESTS_LEAST = 45
"""Requests below which nothing is fitted."""
BATCH_SPREAD_LEAST = 1.25
"""Largest over smallest batch (95% and 5% quantile over requests) below which a run has one batch size."""
STRETCHES = 18
"""Parts of a run, in order of time, of which every third is held back; errors within one are taken as dependent."""
SIGMAS = (0.2, 0.05)
"""First guess at the scatter of log TTFT and log TPOT."""
SIGMA_LEAST = 0.005
IDLE_TTFT_MOST_S = 0.1
"""A longer time to first token is one of queueing."""
OUTSIDE_S = 0.02
"""How much time of a request outside of steps is nothing unusual: network, HTTP, tokenizing."""
ROUNDS = ((6.0, 64), (3.0, 128), (3.0, 64), (3.0, 192))
"""(half the width of the box in units of each value, points in it) of each look around the best point so far."""
LOOKED_AT = 0
"""After which of the further rounds values are held that the data do not tell."""
FIRST_ROUNDS_MOST = 8
"""How often the first box may be moved to where its edge is best."""
CLEAR = 2.5
"""Standard errors that a slope must be away from zero, not to be taken as grain."""
REWEIGHTED = 5
"""Solutions of a round, each with the weights that follow from the one before it."""
SEED = 1
"""Of the points in a box."""
PRIOR_95 = 1.96
"""Standard deviations to each side of what is known before."""
TOLD = 0.5
"""Share of the prior interval below which a value counts as told by the data."""


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """One value of the model."""

    name: str
    words: str
    unit: float
    """By how much it is moved for a derivative: enough for single steps and their order to be grain beside it."""
    start: float
    prior: float
    """Standard deviation of what is known before: that the engine is about like the profile's."""
    advice: str
    """What run would tell it."""


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A value as it was fitted."""

    name: str
    words: str
    value: float
    half_width: float
    """Of its 95% interval."""
    told: bool
    """Whether the data tell it; else it is the profile's, and the interval what is known before."""
    advice: str
    """What run would tell it, where this one does not."""


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute errors of single requests, as shares of what was measured."""

    mean: float
    p90: float


class BenchmarkFit(msgspec.Struct, frozen=True, kw_only=True):
    """What a calibration from benchmarks found."""

    base: str
    requests: int
    held_back: int
    values: list[Fitted]
    errors: dict[str, Errors]
    """By figure (ttft, tpot, e2e), on the requests that were held back."""
    errors_before: dict[str, Errors]
    """The same of the profile that was started from."""
    notes: list[str]


@dataclass(frozen=True, slots=True)
class Model:
    """How values make a profile."""

    values: tuple[Value, ...]
    profile: Callable[[Floats], Profile]


def scaled_model(base: Profile, runs: Sequence[Measured]) -> Model:
    """Factors on the step times of `base`, and its overheads anew."""
    plain = baked(base)
    time = plain.step_time
    step_s, batch, first_s = scales(runs)
    values = (
        Value(name="f", words="tokens of a step (f)", unit=0.03, start=1.0, prior=0.3,
              advice="a load from idle to full, with prompts of several hundred tokens"),
        Value(name="kv", words="context of decoding requests (a_KV)", unit=0.1, start=1.0, prior=0.3,
              advice="short and long contexts, 500 to 8,000 tokens, in large batches"),
        Value(name="attention", words="attention of prefill (a_W)", unit=0.3, start=1.0, prior=0.5,
              advice="prompts of 8,000 tokens and more"),
        Value(name="overhead_s", words="overhead of a step", unit=0.03 * step_s, start=time.overhead_s,
              prior=0.2 * step_s, advice="a run with --max-concurrency 1"),
        Value(name="sequence_s", words="overhead of a sequence in a step", unit=0.03 * step_s / batch,
              start=time.sequence_s, prior=max(0.1 * step_s / batch, 2e-5),
              advice="several --max-concurrency: 1, 8, 64"),
        Value(name="api_server_s", words="outside of steps, per request", unit=0.1 * first_s, start=base.api_server_s,
              prior=OUTSIDE_S, advice="a run with --max-concurrency 1"),
    )  # fmt: skip

    def profile(v: Floats) -> Profile:
        f, kv, attention, overhead, sequence, outside = (float(x) for x in v)
        fitted = msgspec.structs.replace(
            time,
            knots_s=tuple(s * f for s in time.knots_s),
            decode_s=time.decode_s * f,
            kv_token_s=time.kv_token_s * kv,
            prefill_attention_s=time.prefill_attention_s * attention,
            prefill_context_s=time.prefill_context_s * attention,
            overhead_s=overhead,
            sequence_s=sequence,
        )
        return msgspec.structs.replace(plain, step_time=fitted, api_server_s=outside)

    return Model(values, profile)


def scales(runs: Sequence[Measured]) -> tuple[float, float, float]:
    """(seconds of a step, requests in it, time to first token of an engine that is hardly loaded), about."""
    tpot = np.concatenate([run.tpot_s(run.ttft_s, run.e2e_s) for run in runs])
    sizes = np.concatenate([batch_sizes(run) for run in runs])
    ttft = np.concatenate([run.ttft_s for run in runs])
    return float(np.nanmedian(tpot)), float(np.median(sizes)), min(float(np.nanquantile(ttft, 0.1)), IDLE_TTFT_MOST_S)


def fit_factors(
    runs: Sequence[Measured], base: Profile, *, on_progress: Callable[[float], None] | None = None
) -> tuple[Profile, BenchmarkFit]:
    """A profile whose replay of `runs` comes closest to what they measured, starting from `base`.

    Raises BadInput when the runs cannot tell even how long a step is, BadConfig when the engine's settings forbid
    requests that were served.
    """
    for run in runs:
        refuse_too_long(run, base)
    refuse_few(runs)
    refuse_one_batch(runs)
    model = scaled_model(base, runs)
    fit = Fit(runs, model)
    fit.solve(on_progress or (lambda _: None))
    profile = model.profile(fit.point)
    held = [run.ok & held_back(run) for run in runs]
    notes = [note for run in runs for note in run.notes]
    report = BenchmarkFit(
        base=base.name,
        requests=int(sum(run.ok.sum() for run in runs)),
        held_back=int(sum(h.sum() for h in held)),
        values=fit.fitted(),
        errors=errors_of(runs, held, profile),
        errors_before=errors_of(runs, held, base),
        notes=notes,
    )
    return profile, report


def where(runs: Sequence[Measured]) -> str:
    return ", ".join(run.path for run in runs)


def refuse_few(runs: Sequence[Measured]) -> None:
    """Raises BadInput when there are too few requests."""
    count = sum(int((run.ok & ~np.isnan(run.ttft_s)).sum()) for run in runs)
    if count < REQUESTS_LEAST:
        raise BadInput.at(
            where(runs), f"{count} requests with times are too few to fit step times; {REQUESTS_LEAST} are needed"
        )


def refuse_one_batch(runs: Sequence[Measured]) -> None:
    """Raises BadInput when all requests were decoded in batches of about one size."""
    sizes = np.concatenate([batch_sizes(run) for run in runs])
    if not len(sizes):
        raise BadInput.at(where(runs), "all outputs are one token: nothing is known of decoding")
    low, high = np.quantile(sizes, [0.05, 0.95])
    if high < BATCH_SPREAD_LEAST * low:
        raise BadInput.at(
            where(runs),
            f"all requests were decoded in batches of one size ({low:.1f} to {high:.1f}), so that what a step costs "
            "cannot be told from what a sequence costs; add runs at other loads, such as --max-concurrency 1, 8 and "
            "64, and name all their files",
        )


def stretch_of(run: Measured) -> npt.NDArray[np.int64]:
    """Which of the `STRETCHES` parts of a run each request is in, in order of arrival."""
    count = run.calls.num_rows
    stretches: npt.NDArray[np.int64] = np.arange(count) * STRETCHES // count
    return stretches


def held_back(run: Measured) -> Bools:
    """Every third stretch."""
    held: Bools = stretch_of(run) % 3 == 1
    return held


def errors_of(runs: Sequence[Measured], masks: Sequence[Bools], profile: Profile) -> dict[str, Errors]:
    """Errors of single requests, by figure."""
    found: dict[str, list[Floats]] = {"ttft": [], "tpot": [], "e2e": []}
    for run, mask in zip(runs, masks, strict=True):
        ttft, e2e = replayed(run, profile)
        found["ttft"].append((ttft / run.ttft_s - 1.0)[mask])
        found["tpot"].append((run.tpot_s(ttft, e2e) / run.tpot_s(run.ttft_s, run.e2e_s) - 1.0)[mask])
        found["e2e"].append((e2e / run.e2e_s - 1.0)[mask])
    errors = {}
    for name, parts in found.items():
        values = np.abs(np.concatenate(parts))
        values = values[np.isfinite(values)]
        if len(values):
            errors[name] = Errors(mean=float(values.mean()), p90=float(np.quantile(values, 0.9)))
    return errors


class Fit:
    """The least squares. `point` is where it stands, `free` which values it moves."""

    def __init__(self, runs: Sequence[Measured], model: Model) -> None:
        self.runs = runs
        self.model = model
        self.unit = np.array([value.unit for value in model.values])
        self.start = np.array([value.start for value in model.values])
        self.point = self.start.copy()
        self.free = np.ones(len(self.start), bool)
        self.prior = np.array([value.prior for value in model.values]) / self.unit
        self.half_width = np.full(len(model.values), np.nan)
        self.sigmas = SIGMAS
        logs, clusters, kinds = [], [], []
        offset = 0
        for run in runs:
            seen = run.ok & ~held_back(run)
            for kind, measured in enumerate((run.ttft_s, run.tpot_s(run.ttft_s, run.e2e_s))):
                usable = seen & (measured > 0)
                logs.append(np.where(usable, np.log(np.where(usable, measured, 1.0)), np.nan))
                clusters.append(stretch_of(run) + offset)
                kinds.append(np.full(len(usable), kind))
            offset += STRETCHES
        self.measured = np.concatenate(logs)
        self.kind = np.concatenate(kinds)
        self.cluster = np.concatenate(clusters)
        self.usable = ~np.isnan(self.measured) & np.isfinite(self.simulated(self.point))

    def simulated(self, point: Floats) -> Floats:
        """Logarithms of simulated TTFT and TPOT, run after run."""
        logs = []
        profile = self.model.profile(point)
        for run in self.runs:
            ttft, e2e = replayed(run, profile)
            with np.errstate(divide="ignore", invalid="ignore"):
                logs += [np.log(ttft), np.log(run.tpot_s(ttft, e2e))]
        return np.concatenate(logs)

    def learn(self, spread: float, points: int) -> None:
        """Let `level` and `slope` be what regression says of the replay around `point`.

        A derivative of single requests would be that of their place in a step, which any change of times shuffles. So
        the benchmark is replayed at points all over a box, `spread` units wide to each side, and a plane laid through.
        """
        from scipy.stats import qmc

        cube = 2.0 * qmc.Halton(len(self.unit), rng=SEED).random(points) - 1.0
        places = np.maximum(self.point + spread * self.unit * cube, 0.0)
        design = np.column_stack([np.ones(points), (places - self.point) / self.unit])
        logs = np.array([self.simulated(place)[self.usable] for place in places])
        plane, *_ = np.linalg.lstsq(design, logs, rcond=None)
        self.level, self.slope = plane[0], plane[1:].T
        grain = ((logs - design @ plane) ** 2).sum(axis=0) / (points - design.shape[1])
        doubt = np.sqrt(grain[:, None] * np.diag(np.linalg.inv(design.T @ design))[None, 1:])
        self.clear_slope = np.where(np.abs(self.slope) < CLEAR * doubt, 0.0, self.slope)
        self.doubt = doubt**2

    def move(self, spread: float) -> bool:
        """To the least squares of the planes, within the box that they were learned in; whether its edge is best."""
        from scipy.optimize import lsq_linear

        unit, slope, prior = self.unit[self.free], self.clear_slope[:, self.free], self.prior[self.free]
        here, start = self.point[self.free] / unit, self.start[self.free] / unit
        bounds = (np.maximum(-here, -spread) - 1e-9, np.full(len(here), spread))
        left = self.level - self.measured[self.usable]
        moved = np.zeros(len(here))
        for _ in range(REWEIGHTED):
            weight = self.weights(left + slope @ moved)
            root = np.linalg.cholesky(slope.T @ (weight[:, None] * slope) + np.diag(prior**-2.0)).T
            pull = slope.T @ (weight * left) + (here - start) / prior**2
            moved = lsq_linear(root, -np.linalg.solve(root.T, pull), bounds).x
        self.point[self.free] = np.maximum(here + moved, 0.0) * unit
        self.left = left + slope @ moved
        self.sigmas = (self.scatter(self.left, 0), self.scatter(self.left, 1))
        return bool(np.abs(moved).max() > 0.99 * spread)

    def weights(self, left: Floats) -> Floats:
        """What each log time counts: less where it is far off, as in a soft L1 loss."""
        squares = (left / self.sigma()) ** 2
        weights: Floats = self.sigma() ** -2.0 / np.sqrt(1.0 + squares)
        return weights

    def sigma(self) -> Floats:
        """Scatter of each usable log time."""
        return np.where(self.kind[self.usable] == 0, self.sigmas[0], self.sigmas[1])

    def scatter(self, left: Floats, kind: int) -> float:
        """A robust standard deviation of what is left of TTFT (0) or TPOT (1)."""
        values = left[self.kind[self.usable] == kind]
        return max(float(1.4826 * np.median(np.abs(values))), SIGMA_LEAST) if len(values) else SIGMAS[kind]

    def solve(self, on_progress: Callable[[float], None]) -> None:
        """Fit. Raises BadInput when the data do not even tell how long a step is."""
        spread, points = ROUNDS[0]
        for _ in range(FIRST_ROUNDS_MOST):
            self.learn(spread, points)
            if not self.move(spread):
                break
        whole, done = sum(points for _, points in ROUNDS), ROUNDS[0][1]
        for number, (spread, points) in enumerate(ROUNDS[1:]):
            on_progress(done / whole)
            self.learn(spread, points)
            self.move(spread)
            done += points
            if number == LOOKED_AT:
                self.hold_untold()
        on_progress(1.0)
        self.half_width = np.where(self.free, self.half_widths(), PRIOR_95 * self.prior * self.unit)

    def hold_untold(self) -> None:
        """Put values back to the profile's that the data do not tell.

        f alone stays: where it cannot be told from overheads, those are held and it takes what all steps have in
        common. Raises BadInput when times would not tell it even then.
        """
        weight = self.weights(self.left)
        precision = float(weight @ (self.slope[:, 0] ** 2 - self.doubt[:, 0])) + self.prior[0] ** -2.0
        if precision**-0.5 > TOLD * self.prior[0]:
            raise BadInput.at(
                where(self.runs),
                "its times do not depend enough on how long a step is to fit it; "
                f"measure {self.model.values[0].advice}",
            )
        self.free = self.half_widths() < TOLD * PRIOR_95 * self.prior * self.unit
        self.free[0] = True
        self.point[~self.free] = self.start[~self.free]

    def half_widths(self) -> Floats:
        """Half-widths of 95% intervals: the larger of those for independent and for dependent errors.

        Dependent within a stretch, as requests of one time share steps: the cluster-robust covariance of Liang and
        Zeger (Biometrika 73, 1986).
        """
        from scipy.stats import t

        weight = self.weights(self.left)
        # Grain adds to the squares of slopes, and would make the data look surer than they are (errors in variables).
        inner = self.slope.T @ (weight[:, None] * self.slope) - np.diag(weight @ self.doubt)
        values, vectors = np.linalg.eigh(inner)
        inverse = np.linalg.inv((vectors * np.maximum(values, 0.0)) @ vectors.T + np.diag(self.prior**-2.0))
        scores = self.slope * (weight * self.left)[:, None]
        size, count = len(self.unit), len(self.left)
        groups = np.unique(self.cluster[self.usable], return_inverse=True)[1]
        sums = np.zeros((groups.max() + 1, size))
        np.add.at(sums, groups, scores)
        number = len(sums)
        variances = [
            np.diag(inverse @ (part.T @ part * correction + np.diag(self.prior**-2.0)) @ inverse)
            for part, correction in ((scores, count / max(count - size, 1)), (sums, number / max(number - 1, 1)))
        ]
        variance = np.minimum(np.maximum(*variances), self.prior**2)
        widths: Floats = t.ppf(0.975, max(number - 1, 1)) * np.sqrt(variance) * self.unit
        return widths

    def fitted(self) -> list[Fitted]:
        """The values with their intervals."""
        return [
            Fitted(
                name=value.name,
                words=value.words,
                value=float(self.point[k]),
                half_width=float(self.half_width[k]),
                told=bool(self.free[k]),
                advice="" if self.free[k] else value.advice,
            )
            for k, value in enumerate(self.model.values)
        ]
