"""The table of `replay validate`."""

from __future__ import annotations

import textwrap

from replay.calibrate.validate import Comparison, Validation
from replay.report.tables import WIDTH, grid


def validation_text(validation: Validation) -> str:
    """Every figure measured and predicted, the fit behind them and each recording's drift."""
    rows = [row(c) for c in validation.comparisons]
    heads = ["policy", "figure", "measured", "predicted", "range over seeds", "tolerance"]
    fit = validation.fit
    drift = ", ".join(f"{policy} {ratio:.3f}" for policy, ratio in validation.drift.items())
    missed = sum(not c.ok for c in validation.comparisons)
    verdict = "all figures within tolerance" if missed == 0 else f"{missed} of {len(rows)} figures out of tolerance"
    return "\n".join(
        [
            f"step times: {fit.steps:,} steps, error on held-back ones {fit.mape:.1%} (p90 {fit.p90:.1%})",
            textwrap.fill(f"drift (recorded / modelled step time): {drift}", WIDTH, subsequent_indent="  "),
            "",
            grid(heads, rows),
            "",
            verdict,
        ]
    )


def row(c: Comparison) -> list[str]:
    """A comparison as text."""

    def value(x: float) -> str:
        return f"{x:.3f}" if c.figure.startswith("delivered") else f"{x:,.0f}"

    spread = f"{value(c.low)}-{value(c.high)}"
    return [
        c.policy,
        c.figure,
        value(c.measured),
        value(c.predicted),
        spread,
        f"{value(c.tolerance)} {'ok' if c.ok else 'MISS'}",
    ]
