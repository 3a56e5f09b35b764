"""One page that shows a trace: when its calls came, how long and bursty they are, how they ended, what to beware of."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from replay.describe import Description
from replay.ingest import Trace
from replay.phases import arrivals_by_window
from replay.report.charts import INK, LINE, MUTED, NEVER, SHADE, USEFUL, compact

WINDOWS_MOST, WINDOWS_LEAST, CALLS_A_WINDOW = 240, 24, 8
"""The time line is cut into windows with so many calls on average, as far as their number allows."""
CAVEATS_MOST = 6
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "font.family": "sans-serif",
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
}
Floats = npt.NDArray[np.float64]


def trace_png(trace: Trace, description: Description, name: str) -> bytes:
    """The page as a PNG file; `name` is what the trace is called. Equal traces give equal bytes."""
    with rc_context(STYLE):
        figure = Figure(figsize=(11.5, 10.5), layout="constrained")
        grid = figure.subplot_mosaic([["time"] * 2, ["prompt", "output"], ["dispersion", "ends"], ["caveats"] * 2],
                                     height_ratios=[1.25, 1, 1, 0.72])  # fmt: skip
        rate = f"{description.calls_per_s:,.2f} calls/s on average"
        figure.suptitle(
            f"{name}: {description.calls:,} calls in {duration(description.span_s)}, {rate}", x=0.01, ha="left", size=14
        )
        draw_time(grid["time"], trace.calls, description)
        draw_lengths(grid["prompt"], trace.calls, "prompt_tokens", "prompt")
        draw_lengths(grid["output"], trace.calls, "output_tokens", "output")
        draw_dispersion(grid["dispersion"], description)
        draw_ends(grid["ends"], trace.calls, description)
        write_caveats(grid["caveats"], description)
        sink = io.BytesIO()
        figure.savefig(sink, format="png", dpi=120, facecolor="white", metadata={"Software": None})
    return sink.getvalue()


def duration(seconds: float) -> str:
    """Seconds in the unit that a person would take."""
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def unit_of(seconds: float) -> tuple[str, float]:
    """(unit, its seconds) for a time line so long."""
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 3 * size:
            return unit, size
    return "seconds", 1.0


def draw_time(axes: Axes, calls: pa.Table, d: Description) -> None:
    """Calls over time by how they ended, episodes of overload shaded."""
    arrivals = np.asarray(calls["arrival_s"])
    windows = min(max(d.calls // CALLS_A_WINDOW, WINDOWS_LEAST), WINDOWS_MOST)
    window = max(d.span_s / windows, d.report.time_resolution_s if d.report else 0.0, 1e-9)
    number = int(d.span_s / window) + 1
    unit, size = unit_of(d.span_s)
    edges = np.arange(number + 1) * window / size
    total = arrivals_by_window(arrivals, window, number) / window
    for episode in d.episodes:
        axes.axvspan(episode.start_s / size, min(episode.end_s, d.span_s) / size, color=SHADE, lw=0)
    axes.stairs(total, edges, fill=True, color=USEFUL, alpha=0.85, label="all calls")
    status = calls["observed_status"]
    if status.null_count < len(status):
        lost = np.asarray(pc.fill_null(pc.invert(pc.is_in(status, pa.array(["ok", "unknown"]))), False))
        if lost.any():
            failed = arrivals_by_window(arrivals[lost], window, number) / window
            axes.stairs(failed, edges, fill=True, color=NEVER, label="not delivered")
            axes.legend(frameon=False, loc="upper right", ncols=2)
    axes.set(xlim=(0, edges[-1]), ylim=(0, None), ylabel="calls/s", xlabel=f"{unit} from the start of the trace")
    peak = max(d.peak_calls_per_s.items(), key=lambda item: item[1], default=None)
    most = "" if peak is None else f": at most {peak[1]:,.4g}/s over {peak[0]} s"
    shaded = f"; shaded: {len(d.episodes)} of overload" if d.episodes else ""
    axes.set_title(f"When calls came{most}{shaded}")


def draw_lengths(axes: Axes, calls: pa.Table, column: str, what: str) -> None:
    """How many calls are at most so long."""
    values = np.sort(np.asarray(calls[column].drop_null()))
    if not len(values):
        empty(axes, f"No {what} lengths")
        return
    x, share = thinned(values.astype(np.float64))
    axes.plot(x, share, color=USEFUL, lw=2)
    logarithmic(axes, compact)
    axes.set(ylim=(0, 1), xlabel="tokens", ylabel="share of the calls")
    for quantile, side in ((0.5, "left"), (0.99, "right")):
        at = float(np.quantile(values, quantile))
        axes.plot([at, at], [0, quantile], color=MUTED, lw=1, ls=":")
        axes.annotate(f"p{quantile * 100:.0f} {compact(at)}", (at, quantile if side == "left" else 0.12),
                      xytext=(4 if side == "left" else -4, -12), textcoords="offset points", ha=side,
                      color=INK)  # fmt: skip
    axes.set_title(f"Half of the {what}s have at most {float(np.quantile(values, 0.5)):,.0f} tokens")


def logarithmic(axes: Axes, words: Callable[[float], str] = "{:g}".format) -> None:
    """A logarithmic axis whose powers of ten alone are written."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: words(value))
    axes.xaxis.set_minor_formatter(NullFormatter())


def thinned(values: Floats, least: float = 1.0) -> tuple[Floats, Floats]:
    """(sorted values, `least` at least; share at or below each), no more of them than a line needs."""
    places = np.unique(np.linspace(0, len(values) - 1, min(len(values), 600)).astype(np.int64))
    return np.maximum(values[places], least), (places + 1) / len(values)


def draw_dispersion(axes: Axes, d: Description) -> None:
    """Variance over mean of the arrivals, by the length of the window."""
    if not d.dispersion:
        empty(axes, "Too short to say how bursty it is")
        return
    windows = [float(w) for w in d.dispersion]
    values = list(d.dispersion.values())
    axes.axhline(1.0, color=MUTED, lw=1, ls="--")
    axes.annotate("Poisson", (1, 1.0), xycoords=("axes fraction", "data"), xytext=(-2, 3),
                  textcoords="offset points", ha="right", color=MUTED)  # fmt: skip
    axes.plot(windows, values, color=USEFUL, lw=2, marker="o")
    for window, value in zip(windows, values, strict=True):
        axes.annotate(f"{value:.3g}", (window, value), xytext=(4, 4), textcoords="offset points", color=INK)
    logarithmic(axes)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.12, y=0.2)
    axes.set(xlabel="window, s", ylabel="variance / mean of arrivals")
    worst = max(d.dispersion.items(), key=lambda item: item[1])
    calm = worst[1] < 1.5
    axes.set_title(
        "Arrivals are about as even as chance" if calm
        else f"Over {worst[0]} s arrivals vary {worst[1]:,.3g} times as much as by chance"
    )  # fmt: skip


def draw_ends(axes: Axes, calls: pa.Table, d: Description) -> None:
    """How long users waited, or else how much of the prompts is shared."""
    waited = np.sort(np.asarray(calls["observed_e2e_s"].drop_null()))
    if len(waited):
        x, share = thinned(waited, least=1e-3)
        axes.plot(x, share, color=USEFUL, lw=2)
        logarithmic(axes)
        axes.set(ylim=(0, 1), xlabel="s from the call to its whole response", ylabel="share of those delivered")
        if d.client.timeout_s:
            axes.axvline(d.client.timeout_s, color=NEVER, lw=1.5)
            axes.annotate(f"clients wait {d.client.timeout_s:g} s", (d.client.timeout_s, 0.05), xytext=(4, 0),
                          textcoords="offset points", color=NEVER)  # fmt: skip
        delivered = d.outcomes.get("ok", 0) / max(d.calls - d.outcomes.get("unknown", 0), 1)
        axes.set_title(f"{delivered:.0%} of the calls were delivered, half of them within {np.median(waited):,.3g} s")
    elif d.leavers:
        patience = np.sort(np.asarray(calls["user_cancel_s"].drop_null()))
        x, share = thinned(patience, least=1e-3)
        axes.plot(x, share * len(patience) / d.calls, color=NEVER, lw=2)
        logarithmic(axes)
        axes.set(ylim=(0, 1), xlabel="s from the call to when its user leaves", ylabel="share of all users")
        axes.set_title(f"{d.leavers / d.calls:.0%} of the users leave, unless they are served before")
    elif d.sharing is not None:
        bars = {
            "prompt tokens in an earlier\nprompt's blocks": d.sharing.reusable_prompt_share,
            "calls that begin as an\nearlier one did": d.sharing.calls_with_a_known_prefix / d.sharing.calls,
            "calls with the commonest\nbeginning": d.sharing.commonest_prefix_calls / d.sharing.calls,
        }
        places = range(len(bars))
        axes.barh(places, list(bars.values()), color=USEFUL)
        axes.set_yticks(places, list(bars))
        axes.invert_yaxis()
        axes.set(xlim=(0, 1))
        for place, width in zip(places, bars.values(), strict=True):
            inside = width > 0.85
            axes.annotate(f"{width:.0%}", (width, place), xytext=(-5 if inside else 5, -4), textcoords="offset points",
                          ha="right" if inside else "left", color="white" if inside else INK)  # fmt: skip
        axes.set_title(f"An endless prefix cache would hit {d.sharing.reusable_prompt_share:.0%} of the prompt tokens")
    else:
        empty(axes, "The log shows neither outcomes nor shared prefixes")


def write_caveats(axes: Axes, d: Description) -> None:
    """What to know before a replay is believed."""
    axes.set_axis_off()
    if not d.caveats:
        axes.set_title("Nothing in it changes the meaning of a replay")
        return
    axes.set_title("Before you believe a replay of it")
    shown = d.caveats[:CAVEATS_MOST]
    lines = [line for caveat in shown for line in bullet(caveat.says)]
    if len(d.caveats) > len(shown):
        lines.append(f"... and {len(d.caveats) - len(shown)} more: replay describe says them")
    axes.text(0, 1, "\n".join(lines), va="top", ha="left", transform=axes.transAxes, linespacing=1.4)


def bullet(sentence: str) -> list[str]:
    return textwrap.wrap(sentence, 150, initial_indent="•  ", subsequent_indent="    ")


def empty(axes: Axes, title: str) -> None:
    """A place of which there is nothing to show."""
    axes.set_axis_off()
    axes.set_title(title, color=MUTED)
