"""What `replay calibrate` found in benchmarks, and the table of `replay validate FILE`, for people."""

from __future__ import annotations

from replay.calibrate.factors import BenchmarkFit, Fitted
from replay.calibrate.serving import Figure, ServingValidation
from replay.report.tables import grid

MS = 1e3
US = 1e6


def fit_text(fit: BenchmarkFit) -> str:
    """Every value with its interval, the errors on the requests that were held back, and what would tell more."""
    values = grid(["value", "fitted", "95% interval", "told by the data"], [value_row(value) for value in fit.values])
    errors = grid(
        ["error of a request", f"{fit.base}: mean", "p90", "fitted: mean", "p90"],
        [
            [name.upper(), percent(before.mean), percent(before.p90), percent(after.mean), percent(after.p90)]
            for name, after in fit.errors.items()
            for before in [fit.errors_before[name]]
        ],
    )
    advice = [f"{value.words}: {value.advice} would tell it" for value in fit.values if not value.told]
    heading = f"fitted to {fit.requests - fit.held_back:,} requests; errors of {fit.held_back:,} others"
    return "\n".join([heading, "", values, "", errors, *([""] if advice else []), *advice])


def value_row(value: Fitted) -> list[str]:
    """A value as text: factors plainly, times in milliseconds or microseconds."""
    factor, unit = {"overhead_s": (MS, " ms"), "api_server_s": (MS, " ms"), "sequence_s": (US, " us")}.get(
        value.name, (1.0, "")
    )
    low, high = max(value.value - value.half_width, 0.0) * factor, (value.value + value.half_width) * factor
    sign = "x " if not unit else ""
    told = "yes" if value.told else "no: kept"
    return [value.words, f"{sign}{value.value * factor:.3g}{unit}", f"{low:.3g} to {high:.3g}{unit}", told]


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def serving_text(validation: ServingValidation) -> str:
    """Every figure measured and predicted, and how far the prediction is off."""
    rows = [figure_row(figure) for figure in validation.figures]
    heading = f"{validation.path}: {validation.requests:,} requests, replayed on {validation.profile}"
    return "\n".join([heading, "", grid(["figure", "measured", "predicted", "error"], rows)])


def figure_row(figure: Figure) -> list[str]:
    return [figure.figure, f"{figure.measured:,.2f}", f"{figure.predicted:,.2f}", f"{100 * figure.error:+.1f}%"]
