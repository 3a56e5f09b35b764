"""The plots of the overload study: the maps of policy and load, and a line for each policy over what is swept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from replay.report.charts import PALETTE, USEFUL, WASTE, Bar, Bars, Key, Part
from replay.report.titled import Field, Heat, Line, Lines, Mark, Titled
from replay.report.words import percent

Rows = Sequence[Mapping[str, Any]]
RETRIES, BUDGET, KEPT = "cancel", "retry_budget", "coalesce"
DELIVERED = "delivered_since_overload"


def plots(tables: Mapping[str, pa.Table]) -> Iterator[Titled]:
    """Every plot, the maps first."""
    cells, sweeps, turning = (tables[name].to_pylist() for name in ("map", "sweeps", "turning_points"))
    policies = list(dict.fromkeys(row["policy"] for row in cells))
    colours = {policy: PALETTE[k % len(PALETTE)] for k, policy in enumerate(policies)}
    yield delivered_map(cells)
    yield recovery_map(cells, turning)
    yield wasted(cells, colours)
    of = {part: [row for row in sweeps if row["swept"] == part] for part in dict.fromkeys(r["swept"] for r in sweeps)}
    yield patience(of["patience_s"], colours)
    yield timeouts(of["timeout_s"], colours)
    yield attempts(of["max_attempts"], colours)
    yield peaks(of["peak"], colours)
    yield delays(of["cancel_delay_s"], colours)
    yield caching(of["cached_attempts"], of["max_attempts"])


def heat(cells: Rows, column: str, note: str, written: Any) -> Heat:
    """A map of a column: policies down, loads across, an engine each."""
    engines, policies, loads = (list(dict.fromkeys(row[key] for row in cells)) for key in ("engine", "policy", "load"))
    of = {(row["engine"], row["policy"], row["load"]): row for row in cells}
    fields = []
    for engine in engines:
        rows = [[of[engine, policy, load] for load in loads] for policy in policies]
        per_s = rows[0][0]["capacity_per_s"]
        fields.append(
            Field(
                f"{engine} model, {per_s:.3g} calls/s",
                tuple(tuple(row[column] for row in line) for line in rows),
                tuple(tuple(written(row) for row in line) for line in rows),
            )
        )
    across = tuple(f"{load:g}" for load in loads)
    return Heat(tuple(fields), tuple(policies), across, "load before and after the overload", note)


def delivered_map(cells: Rows) -> Titled:
    """Who was served, from the overload on; the policy to take is the best of those that always come back."""
    least: dict[str, float] = {}
    for row in cells:
        least[row["policy"]] = min(least.get(row["policy"], 1.0), row[DELIVERED])
    lost = {row["policy"] for row in cells if row["metastable"]}
    best = max(least, key=lambda policy: (policy not in lost, least[policy]))
    worst = least[best]
    alone = [row for row in cells if row["policy"] == RETRIES and row["metastable"]]
    title = f"Take {best}: at least {percent(worst)} of the calls from the overload on are delivered, at every load"
    if alone:
        title += f"; {RETRIES} alone falls to {percent(min(row[DELIVERED] for row in alone))}"
    return Titled(
        "01_map_delivered",
        title,
        "Calls that arrived from the overload's start on and were delivered, however late, by policy and load. In the "
        "overload calls arrive at twice the engine's capacity; mean over seeds",
        heat(cells, DELIVERED, "in the cells: percent delivered", lambda row: f"{100 * row[DELIVERED]:.0f}"),
    )


def recovery_map(cells: Rows, turning: Rows) -> Titled:
    """Whether the service came back."""
    lost = {row["policy"] for row in turning if row["metastable_from_load"] is not None}
    policies = list(dict.fromkeys(row["policy"] for row in turning))
    safe = [policy for policy in policies if policy not in lost]
    froms = [row["metastable_from_load"] for row in turning if row["policy"] == RETRIES and row["policy"] in lost]
    title = "Every policy comes back"
    if froms:
        title = f"From a load of {min(froms):g} on, {RETRIES} with retries does not come back"
    if froms and safe:
        soonest = min(safe, key=lambda policy: seconds_lost(cells, policy))
        title += f"; {len(safe)} of {len(policies)} policies always do, {soonest} soonest"

    def words(row: Mapping[str, Any]) -> str:
        if not row["recovered_share"]:
            return "never" if row["recovered_share"] == 0 else "?"
        if row["recovery_s"] is None:
            return percent(row["recovered_share"])
        return f"{row['recovery_s']:.0f}s"

    return Titled(
        "02_map_recovery",
        title,
        "Share of seeds in which calls are on time again as before the overload, by policy and load: where a row turns "
        "red, the policy is metastable",
        heat(cells, "recovered_share", "in the cells: seconds until service is back, median; or share of seeds", words),
    )


def seconds_lost(cells: Rows, policy: str) -> float:
    """Seconds until service is back, over all loads and engines."""
    return sum(row["recovery_s"] or 0.0 for row in cells if row["policy"] == policy)


def wasted(cells: Rows, colours: Mapping[str, str]) -> Titled:
    """What the GPU did at a load of one half, or near it."""
    load = min({row["load"] for row in cells}, key=lambda value: abs(value - 0.5))
    engine = sorted({row["engine"] for row in cells}, key=lambda name: name != "medium")[0]
    rows = [row for row in cells if row["load"] == load and row["engine"] == engine]
    rows.sort(key=lambda row: row["wasted_compute_frac"])
    bars = []
    for row in rows:
        lost = row["wasted_compute_frac"]
        parts = (Part(1 - lost, USEFUL, percent(1 - lost)), Part(lost, WASTE["abandoned"], percent(lost)))
        note = f"{row['attempts_per_call']:.2f} tries, {percent(row[DELIVERED])} served"
        bars.append(Bar(row["policy"], note, colours[row["policy"]], row["policy"] == RETRIES, parts))
    alone = next(row for row in rows if row["policy"] == RETRIES)
    return Titled(
        "03_gpu_time",
        f"Every abort succeeded, and {percent(alone['wasted_compute_frac'])} of the GPU time was wasted: the engine "
        f"had done {percent(alone['prefill_progress_at_abort'])} of the prompt by then",
        f"{engine} model at a load of {load:g}: share of GPU time that went into delivered responses. Retries that ran "
        f"began {alone['cancel_window_s']:.2f} s before their timeout (median). Beside: attempts of a call, and calls "
        "delivered from the overload on",
        Bars(
            tuple(bars), (Key("area", USEFUL, "useful"), Key("area", WASTE["abandoned"], "wasted")), 1.0, "", share=True
        ),
    )


def lines_of(
    rows: Rows, colours: Mapping[str, str], x_axis: str, marks: Sequence[Mark] = (), log_x: bool = False
) -> Lines:
    """Delivered calls over what is swept, a line for each policy with its interval."""
    lines = []
    for policy in dict.fromkeys(row["policy"] for row in rows):
        mine = [row for row in rows if row["policy"] == policy]
        values, means, low, high = (
            [row[key] for row in mine] for key in ("value", DELIVERED, f"{DELIVERED}_low", f"{DELIVERED}_high")
        )
        band = (None, None) if None in low else (low, high)
        lines.append(Line(policy, values, means, colours[policy], *band))
    y_axis = "delivered, of the calls from the overload on"
    return Lines(tuple(lines), x_axis, y_axis, tuple(marks), share=True, log_x=log_x)


def about(rows: Rows) -> str:
    """Where a sweep was made."""
    row = rows[0]
    where = f"{row['engine']} model at a load of {row['load']:g}"
    return f"{where}; delivered, mean and bootstrap interval over {row['seeds']} seeds"


def patience(rows: Rows, colours: Mapping[str, str]) -> Titled:
    """Over how long users wait."""
    kept = [row for row in rows if row["policy"] == KEPT]
    enough = [row["value"] for row in kept if row[DELIVERED] >= 0.995]
    title = (
        f"Coalescing delivers every call once users wait {min(enough):g} s: their patience must outlast the backlog"
        if enough
        else "Users give up before the backlog is served: coalescing does not deliver every call"
    )
    marks = [
        Mark(kept[0]["backlog_s"], "backlog / capacity"),
        Mark(kept[0]["drain_s"], "backlog / (capacity - load)"),
    ]
    return Titled(
        "04_patience", title, about(rows), lines_of(rows, colours, "seconds that users wait for their answer", marks)
    )


def delivered_with(rows: Rows, policy: str) -> dict[float, float]:
    """What a policy delivers, by the value of what is swept."""
    return {row["value"]: row[DELIVERED] for row in rows if row["policy"] == policy}


def timeouts(rows: Rows, colours: Mapping[str, str]) -> Titled:
    """Over the clients' timeout."""
    alone = delivered_with(rows, RETRIES)
    return Titled(
        "05_timeout",
        f"A longer timeout is the cheapest cure: {RETRIES} delivers {percent(alone[max(alone)])} with "
        f"{max(alone):g} s, {percent(alone[min(alone)])} with {min(alone):g} s",
        about(rows),
        lines_of(rows, colours, "seconds that a client waits for an attempt", log_x=True),
    )


def attempts(rows: Rows, colours: Mapping[str, str]) -> Titled:
    """Over the attempts of a call."""
    alone = delivered_with(rows, RETRIES)
    return Titled(
        "06_attempts",
        f"Retry less, or coalesce: {RETRIES} delivers {percent(alone[max(alone)])} with {max(alone):g} attempts, "
        f"{percent(alone[min(alone)])} with {min(alone):g}",
        about(rows),
        lines_of(rows, colours, "attempts that a client makes of a call, at most"),
    )


def peaks(rows: Rows, colours: Mapping[str, str]) -> Titled:
    """Over the overload's height."""
    kept = delivered_with(rows, KEPT)
    return Titled(
        "07_overload_factor",
        f"The higher the overload, the less helps: coalescing delivers {percent(kept[min(kept)])} at {min(kept):g} "
        f"times the capacity, {percent(kept[max(kept)])} at {max(kept):g} times, where clients give up first",
        about(rows),
        lines_of(rows, colours, "arrivals of the overload / capacity"),
    )


def delays(rows: Rows, colours: Mapping[str, str]) -> Titled:
    """Over what a cancel takes to reach the engine."""
    alone = delivered_with(rows, RETRIES)
    return Titled(
        "08_cancel_delay",
        f"Faster cancels do not save it: {RETRIES} delivers {percent(alone[min(alone)])} when they take no time, "
        f"{percent(alone[max(alone)])} when they take {max(alone):g} s",
        about(rows),
        lines_of(rows, colours, "seconds that a cancel takes from gateway to engine"),
    )


def caching(cached: Rows, plain: Rows) -> Titled:
    """Cancellation alone with prefix caching and without."""
    bars, gains = [], []
    without = {row["max_attempts"]: row for row in plain if row["policy"] == RETRIES}
    for row in (row for row in cached if row["policy"] == RETRIES and row["max_attempts"] in without):
        bare = without[row["max_attempts"]]
        gains.append(row[DELIVERED] - bare[DELIVERED])
        for shown, said, colour in ((bare, "off", WASTE["abandoned"]), (row, "on", USEFUL)):
            label, note = f"{row['max_attempts']} attempts, caching {said}", percent(shown["salvaged_frac"] or 0.0)
            part = Part(shown[DELIVERED], colour, percent(shown[DELIVERED]))
            bars.append(Bar(label, f"{note} salvaged", colour, said == "on", (part,)))
    return Titled(
        "09_prefix_caching",
        f"Prefix caching does not save {RETRIES}: a retry resumes what its predecessor computed, worth "
        f"{100 * min(gains):+.0f} to {100 * max(gains):+.0f} points of delivered calls",
        f"{about(cached)}. Salvaged: of the GPU time of aborted requests, what a delivered one used again",
        Bars(tuple(bars), (), 1.0, "delivered, of the calls from the overload on", share=True),
    )
