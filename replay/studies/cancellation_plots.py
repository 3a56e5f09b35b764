"""The plots of the cancellation study: for each workload seven, each with its finding as its title."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from replay.report.charts import NEVER, PALETTE, USEFUL, WAITED, WASTE, Bar, Bars, Key, Part, compact
from replay.report.titled import Line, Lines, Titled

Row = Mapping[str, Any]
Rows = Sequence[Row]
Colours = Mapping[str, str]
NONE, PUSH, HELD, LAZY = "no_cancel_handling", "push_cancel", "push_cancel_no_repack", "push_cancel_lazy_kv"
OWN, REAL = "benchmark", "calibrated"
SETTINGS = {OWN: "linear steps", REAL: "measured H100 steps"}
"""The two variants that are drawn together: the benchmark's own setting, and the same on a measured engine."""
CAUSES = {
    "post_cancel": "computed for nobody",
    "held_slot": "slot held after the abort",
    "poll": "looking for cancels",
}


def plots(tables: Mapping[str, pa.Table]) -> Iterator[Titled]:
    """Every plot, workload by workload."""
    summary, sweep, effects = (tables[name].to_pylist() for name in ("summary", "sweep", "effects"))
    decisions = {row["workload"]: row for row in tables["decision_map"].to_pylist() if row["variant"] == OWN}
    colours = {name: PALETTE[k] for k, name in enumerate(dict.fromkeys(row["policy"] for row in summary))}
    lengths = [row for row in effects if row["part"] == "output_length"]
    for workload, decision in decisions.items():
        mine = [row for row in summary if row["workload"] == workload]
        rows = {variant: [row for row in mine if row["variant"] == variant] for variant in SETTINGS}
        yield wasted_compute(workload, rows[OWN], decision)
        yield survivor_p95(workload, rows[OWN], colours)
        yield kv_waste(workload, rows[OWN], colours)
        yield effect_isolation(workload, rows[OWN], lengths)
        yield cancel_rate_sweep(workload, [row for row in sweep if row["workload"] == workload], colours)
        yield recovery_score(workload, rows[OWN], colours)
        yield polling_frontier(workload, rows)


def of(rows: Rows, policy: str) -> Row:
    """The row of a policy."""
    return next(row for row in rows if row["policy"] == policy)


def spoken(workload: str) -> str:
    """A workload's name as words."""
    return workload.replace("_", " ")


def bars_of(
    rows: Rows, colours: Colours, column: str, words: Callable[[float], str], note: Callable[[Row], str], axis: str
) -> Bars:
    """A bar for each policy, as long as a column says."""
    bars = tuple(
        Bar(
            row["policy"],
            note(row),
            colours[row["policy"]],
            row["policy"] == PUSH,
            (Part(max(row[column], 0.0), colours[row["policy"]], words(row[column])),),
        )
        for row in rows
    )
    return Bars(bars, (), max(bar.parts[0].value for bar in bars) or 1.0, axis)


def wasted_compute(workload: str, rows: Rows, decision: Row) -> Titled:
    """GPU time spent on users who had left, by what it was."""
    bars = []
    for row in rows:
        parts = tuple(Part(v := row[f"{key}_gpu_ms"], WASTE[key], f"{compact(v)} ms") for key in CAUSES)
        share = sum(part.value for part in parts) / row["busy_gpu_ms"]
        bars.append(Bar(row["policy"], f"{share:.2%} of GPU time", USEFUL, row["policy"] == PUSH, parts))
    bars.sort(key=length)
    kept = decision["fallback_saves_gpu_ms"] / decision["push_saves_gpu_ms"]
    return Titled(
        f"01_wasted_compute_{workload}",
        f"Push: it saves {decision['push_saves_frac_of_waste']:.0%} of the GPU time that departed users cost; "
        f"{decision['fallback']} keeps {kept:.1%} of that",
        f"{spoken(workload)}: GPU time spent after users had left, mean over seeds; the benchmark's setting",
        Bars(
            tuple(bars),
            tuple(Key("area", WASTE[key], said) for key, said in CAUSES.items()),
            length(bars[-1]),
            "GPU-milliseconds",
        ),
    )


def length(bar: Bar) -> float:
    """Of all its parts."""
    return sum(part.value for part in bar.parts)


def survivor_p95(workload: str, rows: Rows, colours: Colours) -> Titled:
    """How long those waited who stayed."""
    push, held = of(rows, PUSH), of(rows, HELD)
    kept = held["survivor_p95_saved_ms"] / push["survivor_p95_saved_ms"]
    return Titled(
        f"02_survivor_p95_{workload}",
        f"Users who stay wait {push['survivor_p95_saved_ms']:,.0f} ms less at p95 when cancels are pushed; without "
        f"repacking {max(kept, 0.0):.0%} of that is left",
        f"{spoken(workload)}: 95th percentile of latency over the users who never leave; mean over seeds",
        bars_of(
            sorted(rows, key=lambda row: float(row["survivor_p95_s"])),
            colours,
            "survivor_p95_s",
            lambda seconds: f"{seconds:.2f} s",
            lambda row: f"{1e3 * (row['survivor_p95_s'] - push['survivor_p95_s']):+,.0f} ms to push",
            "seconds",
        ),
    )


def kv_waste(workload: str, rows: Rows, colours: Colours) -> Titled:
    """KV held for nobody, without the baseline that dwarfs it."""
    push, lazy = (of(rows, policy)["kv_wasted_request_ms"] for policy in (PUSH, LAZY))
    times = f"{lazy / push:.0f} times as much" if push else f"{compact(lazy)} request-ms"
    return Titled(
        f"03_kv_waste_{workload}",
        f"Free KV with the abort: releasing it late strands {times}",
        f"{spoken(workload)}: KV held for users who had left, in request-milliseconds; never noticing them holds "
        f"{compact(of(rows, NONE)['kv_wasted_request_ms'])}",
        bars_of(
            sorted((r for r in rows if r["policy"] != NONE), key=lambda row: float(row["kv_wasted_request_ms"])),
            colours,
            "kv_wasted_request_ms",
            compact,
            lambda row: f"{compact(row['stranded_kv_block_s'])} block-s",
            "request-milliseconds",
        ),
    )


def effect_isolation(workload: str, rows: Rows, lengths: Rows) -> Titled:
    """What each part of handling a cancel is worth to those who stay, and to the GPU."""
    push = of(rows, PUSH)["survivor_mean_s"]
    worth = {
        "notice it at all": (NONE, USEFUL),
        "repack the batch": (HELD, WASTE["held_slot"]),
        "8 tokens sooner": ("poll_every_8", WASTE["post_cancel"]),
        "free KV at once": (LAZY, NEVER),
    }
    later = {name: 1e3 * (of(rows, policy)["survivor_mean_s"] - push) for name, (policy, _) in worth.items()}
    total = later["notice it at all"]
    bars = tuple(
        Bar(
            name,
            f"{later[name] / total:.0%} of the whole" if total else "",
            colour,
            name == "repack the batch",
            (Part(max(later[name], 0.0), colour, f"{later[name]:,.1f} ms"),),
        )
        for name, (_, colour) in worth.items()
    )
    grown = {row["output_tokens_mean"]: row["held_slot_gpu_ms_per_cancel"] for row in lengths if row["policy"] == HELD}
    return Titled(
        f"04_effect_isolation_{workload}",
        f"Repack the batch: that is {later['repack the batch'] / total:.0%} of an abort's worth to those who stay",
        f"{spoken(workload)}: how much sooner survivors are served, mean, by what the engine does. It grows with the "
        f"output: a held slot costs {grown[min(grown)]:,.0f} GPU-ms a cancel at {min(grown):,.0f} tokens, "
        f"{grown[max(grown)]:,.0f} at {max(grown):,.0f}",
        Bars(bars, (), max(*later.values(), 1e-3), "milliseconds of mean latency"),
    )


def cancel_rate_sweep(workload: str, rows: Rows, colours: Colours) -> Titled:
    """The recovery score over the cancel rate."""
    lines = []
    for policy in dict.fromkeys(row["policy"] for row in rows):
        mine = [row for row in rows if row["policy"] == policy]
        rates, scores = ([row[key] for row in mine] for key in ("cancel_rate", "recovery_score_ms"))
        low, high = ([row[f"recovery_score_ms_{end}"] for row in mine] for end in ("low", "high"))
        band = (low, high) if policy == PUSH and None not in low else (None, None)
        lines.append(Line(policy, rates, scores, colours[policy], *band))
    least = min(row["recovery_score_ms"] for row in rows)
    return Titled(
        f"05_cancel_rate_sweep_{workload}",
        f"Handling cancels pays from {min(row['cancel_rate'] for row in rows):.0%} on, in proportion to their number",
        f"{spoken(workload)}: recovery score (GPU-ms that cancelled calls no longer cost, less polling), mean, and "
        f"bootstrap interval of push; straight lines with r2 >= {min(row['linear_r2'] for row in rows):.3f}; the least "
        f"score is {compact(least)} ms",
        Lines(tuple(lines), "share of users who leave", "recovery score, GPU-ms", x_share=True),
    )


def recovery_score(workload: str, rows: Rows, colours: Colours) -> Titled:
    """The recovery score of each policy, with its interval."""
    shown = [row for row in rows if row["policy"] != NONE]
    shown.sort(key=lambda row: (row["policy"] == HELD, -row["recovery_score_ms"]))
    best = max(
        (row for row in shown if row["policy"].startswith("poll")), key=lambda row: float(row["recovery_score_ms"])
    )
    share = best["recovery_score_ms"] / of(rows, PUSH)["recovery_score_ms"]
    return Titled(
        f"06_recovery_score_{workload}",
        f"Which policy matters less than having one: {best['policy']} recovers {share:.0%} of what push does",
        f"{spoken(workload)}: GPU-ms by which cancelled calls lengthen steps less than without handling, less polling; "
        "mean [bootstrap interval]",
        bars_of(shown, colours, "recovery_score_ms", compact, spread, "GPU-milliseconds"),
    )


def spread(row: Row) -> str:
    """The interval of a score, where there is one."""
    low, high = row["recovery_score_ms_low"], row["recovery_score_ms_high"]
    if row["policy"] == HELD:
        return "less the slot that it holds"
    return "" if low is None else f"[{compact(low)} to {compact(high)}]"


def polling_frontier(workload: str, rows: Mapping[str, Rows]) -> Titled:
    """What is lost to push over the poll interval: to the lag, and to the looks."""
    lines, best = [], {}
    for variant, colour, faint in ((OWN, USEFUL, WAITED[2]), (REAL, NEVER, WASTE["post_cancel"])):
        saved = of(rows[variant], PUSH)["net_saved_gpu_ms"]
        polls = [row for row in rows[variant] if row["policy"].startswith("poll")]
        tokens = [float(row["policy"].rpartition("_")[2]) for row in polls]
        lost = [1 - row["net_saved_gpu_ms"] / saved for row in polls]
        lag = [row["gap_to_push_gpu_ms"] / saved for row in polls]
        best[variant] = int(tokens[lost.index(min(lost))])
        lines.append(Line(f"{SETTINGS[variant]}: all", tokens, lost, colour))
        lines.append(Line(f"{SETTINGS[variant]}: lag alone", tokens, lag, faint, dashed=True))
    title = f"If you must poll, look every {best[OWN]} token{'s' * (best[OWN] > 1)}"
    if best[OWN] != best[REAL]:
        title += f" where steps are linear, every {best[REAL]} on a measured engine, whose tokens cost less"
    return Titled(
        f"07_polling_frontier_{workload}",
        title,
        f"{spoken(workload)}: share of what push saves that polling loses, to the lag (proportional to the interval) "
        "and to the looks themselves (inversely proportional)",
        Lines(tuple(lines), "tokens between two looks", "lost of what push saves", log_x=True, y_share=True),
    )
