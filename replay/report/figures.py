"""The figures of the page: which rows of which query become which chart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from replay.report.charts import (
    INK,
    MUTED,
    NEVER,
    OWN,
    SHADE,
    UNRESOLVED,
    USEFUL,
    WAITED,
    WASTE,
    Bar,
    Bars,
    Key,
    Layer,
    Panel,
    Panels,
    Part,
    compact,
)
from replay.report.scenes import Found, Rows, Scene, Shown
from replay.report.words import percent

CAUSES = {
    "abandoned": "client gave up",
    "post_cancel": "nobody was waiting",
    "duplicate": "delivered twice",
    "recompute": "preempted, done again",
    "poll": "asking for cancels",
    "held_slot": "slot held after abort",
}
"""Causes of waste, as a key has them."""
ON_TIME, LATE, RANGE = 0.55, 0.16, 0.22
"""Opacity of areas."""
DWARFS = 4
"""A chart runs out of the common scale where it is more than so many times higher than the one in the middle."""
LEAST = 0.0005
"""A cause with less than this share of the longest bar is not in the key."""


def share(value: float | None) -> str:
    """A share in percent; a dash where there is none."""
    return "–" if value is None else percent(value)


def time_end(found: Found) -> float:
    """Where the time axes end: with the last bin of arrivals, and half as far again where much happens later."""
    arrivals = max((r["end_s"] for r in found["delivered_over_time"]), default=1.0)
    later = [r["end_s"] for r in found["queue_over_time"] if r["waiting"] + r["running"] >= 0.5]
    return float(min(max([arrivals, *later]), 1.5 * arrivals))


def filled(rows: Rows, key: str) -> tuple[list[float], list[float]]:
    """A series over time through the middles of its bins, from the first one's start to the last one's end.

    Where bins are missing, there is a gap.
    """
    x: list[float] = []
    y: list[float] = []
    for n, row in enumerate(rows):
        value = math.nan if row[key] is None else float(row[key])
        if n == 0 or row["start_s"] > rows[n - 1]["end_s"] + 1e-9:
            if n:
                x += [rows[n - 1]["end_s"], (rows[n - 1]["end_s"] + row["start_s"]) / 2]
                y += [y[-1], math.nan]
            x.append(row["start_s"])
            y.append(value)
        x.append((row["start_s"] + row["end_s"]) / 2)
        y.append(value)
    if rows:
        x.append(rows[-1]["end_s"])
        y.append(y[-1])
    return x, y


def delivered_over_time(found: Found, scene: Scene, phases: Rows, own: str | None, seeds: int) -> Panels:
    """The load first, then for each policy the share of arriving calls that were delivered, and of them on time."""
    rows = found["delivered_over_time"]
    reference = scene.rows(rows, own) if own else []
    panels = [load(scene.rows(rows, scene.shown[0].policy))]
    compared = scene.in_panels() if reference else ()
    for one in scene.in_panels():
        mine = scene.rows(rows, one.policy)
        x, rate = filled(mine, "delivered_rate")
        on_time = filled(mine, "on_time_rate")[1]
        layers = [Layer("area", x, on_time, one.colour, ON_TIME), Layer("area", x, rate, one.colour, LATE, on_time)]
        if any(r["delivered_rate_low"] < r["delivered_rate_high"] for r in mine):
            low, high = filled(mine, "delivered_rate_low")[1], filled(mine, "delivered_rate_high")[1]
            layers.append(Layer("area", x, high, INK, RANGE, low))
        layers.append(Layer("line", x, rate, one.colour))
        if reference and not one.own:
            layers.append(Layer("dashes", *filled(reference, "delivered_rate"), OWN))
        panels.append(panel(one, tuple(layers)))
    end = max((r["end_s"] for r in rows), default=1.0)
    key = [
        Key("line", MUTED, "delivered"),
        Key("area", MUTED, "on time", ON_TIME),
        Key("area", MUTED, "late", LATE),
    ]
    key += [Key("dashes", OWN, f"{own}, the log's own")] if any(not one.own for one in compared) else []
    key += [Key("area", INK, "range over seeds", RANGE)] if seeds > 1 else []
    return Panels(tuple(panels), (*key, *overload_key(phases)), end, overload(phases))


def load(rows: Rows) -> Panel:
    """The calls that arrive, the same under every policy."""
    rates = [{**r, "a_second": r["arrivals"] / (r["end_s"] - r["start_s"])} for r in rows]
    most = max((r["a_second"] for r in rates), default=1.0)
    peak = f"at most {most:,.3g} a second"
    notes = (f"{sum(r['arrivals'] for r in rows):,.0f} calls, {peak}", peak)
    layer = Layer("area", *filled(rates, "a_second"), MUTED, ON_TIME)
    return Panel(("calls that arrive", "arrivals"), notes, MUTED, (layer,), most)


def panel(one: Shown, layers: tuple[Layer, ...]) -> Panel:
    """A policy's panel of shares."""
    got = f"{share(one.delivered)} delivered"
    notes = (*(f"{words}, {got}" for words in one.recovered), *(one.recovered or (got,)))
    return Panel(one.labels, notes, one.colour, layers, 1.0, share=True)


def overload(phases: Rows) -> tuple[float, float] | None:
    """When the overload was."""
    during = next((p for p in phases if p["phase"] == "during"), None)
    return None if during is None else (during["start_s"], during["end_s"])


def overload_key(phases: Rows) -> tuple[Key, ...]:
    return () if overload(phases) is None else (Key("area", SHADE, "overload"),)


def queue_over_time(found: Found, scene: Scene, phases: Rows) -> Panels:
    """Requests that wait and that run, for each policy."""
    rows = found["queue_over_time"]
    of = {one: scene.rows(rows, one.policy) for one in scene.in_panels()}
    most = {one: max((max(r["waiting"], r["running"]) for r in mine), default=0.0) for one, mine in of.items()}
    top = readable(list(most.values()))
    panels = []
    for one, mine in of.items():
        x, waiting = filled(mine, "waiting")
        layers = (
            Layer("area", x, waiting, one.colour, ON_TIME),
            Layer("line", x, waiting, one.colour),
            Layer("line", *filled(mine, "running"), INK, 0.75),
        )
        peak = f"{max((r['waiting'] for r in mine), default=0.0):,.0f} waiting"
        notes = (f"at most {peak}, off the scale", f"{peak} ↑") if most[one] > top else (f"at most {peak}",)
        panels.append(Panel(one.labels, notes, one.colour, layers, top))
    key = (Key("area", MUTED, "waiting", ON_TIME), Key("line", INK, "running", 0.75), *overload_key(phases))
    return Panels(tuple(panels), key, time_end(found), overload(phases))


def readable(most: Sequence[float]) -> float:
    """The upper end of a scale for charts that reach so high: one that dwarfs the others runs out of it."""
    middle = sorted(most)[len(most) // 2] if most else 0.0
    return max([v for v in most if v <= DWARFS * middle], default=0.0) * 1.05 or 1.0


def retries_over_time(found: Found, scene: Scene, phases: Rows) -> Panels:
    """Attempts a second, first tries and retries, and timeouts, for each policy."""
    of = {one: scene.rows(found["retries_over_time"], one.policy) for one in scene.in_panels()}
    per_s = {one: [a_second(r) for r in mine] for one, mine in of.items()}
    most = {one: max((max(r["all"], r["timeouts"]) for r in rows), default=0.0) for one, rows in per_s.items()}
    top = readable(list(most.values()))
    panels = []
    for one, rows in per_s.items():
        x, first = filled(rows, "first")
        layers = (
            Layer("area", x, first, MUTED, 0.45),
            Layer("area", x, filled(rows, "all")[1], one.colour, ON_TIME, first),
            Layer("line", *filled(rows, "timeouts"), INK, 0.75),
        )
        again, tries = (sum(r[key] for r in of[one]) for key in ("retries", "first"))
        few = f"{again:,.0f} retries"
        count = f"{few} of {tries:,.0f} calls"
        notes = (f"{count}, off the scale", f"{few} ↑") if most[one] > top else (count, few)
        panels.append(Panel(one.labels, notes, one.colour, layers, top))
    key = (
        Key("area", MUTED, "first attempts a second", 0.45),
        Key("area", INK, "retries", ON_TIME),
        Key("line", INK, "timeouts", 0.75),
        *overload_key(phases),
    )
    return Panels(tuple(panels), key, time_end(found), overload(phases))


def a_second(row: Mapping[str, Any]) -> dict[str, Any]:
    """A bin's counts as rates."""
    rates = {key: row[key] / (row["end_s"] - row["start_s"]) for key in ("first", "retries", "timeouts")}
    return {**row, **rates, "all": rates["first"] + rates["retries"]}


def by_waste(found: Found, scene: Scene) -> list[tuple[Shown, Mapping[str, Any]]]:
    """The policies of a scene with their GPU time, the least wasteful first."""
    pairs = [(one, row) for one in scene.shown for row in scene.rows(found["wasted_compute"], one.policy)]
    return sorted(pairs, key=lambda pair: pair[1]["wasted_compute_frac"] or 0.0)


def beside_the_possible(found: Found, scene: Scene) -> Bars:
    """Calls that each policy delivers, on time and late, and the most that any could deliver."""
    rows = {r["policy"]: r for r in scene.rows(found["share_of_possible"]) if r["phase"] is None}
    bars = []
    for one in scene.shown:
        if one.policy not in rows:
            continue
        row = rows[one.policy]
        late = row["delivered"] - row["on_time"]
        parts = (
            Part(row["on_time"], USEFUL, f"{row['on_time']:,.0f} on time"),
            Part(late, WAITED[-2], f"{late:,.0f} late"),
        )
        note = f"{share(row['share_delivered'])} of the possible"
        bars.append(Bar(one.short_label, note, one.colour, one.own, parts, row["possible_delivered"]))
    key = (
        Key("area", USEFUL, "delivered on time"),
        Key("area", WAITED[-2], "delivered late"),
        Key("line", INK, "no policy delivers more"),
    )
    return Bars(tuple(bars), key, max((r["calls"] for r in rows.values()), default=0.0), "calls")


def gpu_time(found: Found, scene: Scene) -> Bars:
    """What the GPU's time went into, for each policy."""
    pairs = by_waste(found, scene)
    top = max((row["busy_gpu_s"] for _, row in pairs), default=0.0)
    causes = [c for c in WASTE if any(row[f"{c}_gpu_s"] > LEAST * top for _, row in pairs)]
    colours = {"useful": USEFUL, **{c: WASTE[c] for c in causes}, "unresolved": UNRESOLVED}
    bars = [
        Bar(
            one.short_label,
            used(row),
            one.colour,
            one.own,
            tuple(Part(v := row[f"{part}_gpu_s"], colour, f"{v:,.0f} s") for part, colour in colours.items()),
        )
        for one, row in pairs
    ]
    key = [Key("area", USEFUL, "useful"), *(Key("area", WASTE[c], CAUSES[c]) for c in causes)]
    if any(row["unresolved_gpu_s"] > LEAST * top for _, row in pairs):
        key.append(Key("area", UNRESOLVED, "not ended at the cut"))
    return Bars(tuple(bars), tuple(key), top, "GPU-seconds")


def used(row: Mapping[str, Any]) -> str:
    """How much GPU time there was, and which share of it was wasted."""
    busy = f"{row['busy_gpu_s']:,.0f} s"
    return busy if row["wasted_compute_frac"] is None else f"{percent(row['wasted_compute_frac'])} of {busy} wasted"


def counter_view(found: Found, scene: Scene) -> Bars:
    """Computed prompt tokens, the part of them that the engine's counter ever showed, and where the counter stood."""
    rows = {r["policy"]: r for r in scene.rows(found["counter_gap"])}
    bars = []
    for one, _ in by_waste(found, scene):
        if one.policy not in rows:
            continue
        row = rows[one.policy]
        missed = row["counter_shortfall"] or 0.0
        computed = row["computed_prompt_tokens"]
        seen, unseen = computed * (1 - missed), computed * missed
        parts = (Part(seen, USEFUL, compact(seen)), Part(unseen, WASTE["abandoned"], compact(unseen)))
        note = f"misses {share(row['counter_shortfall'])} of the work"
        bars.append(Bar(one.short_label, note, one.colour, one.own, parts, row["counter_prompt_tokens"]))
    key = (
        Key("area", USEFUL, "computed, and in the counter"),
        Key("area", WASTE["abandoned"], "computed, never in the counter"),
        Key("line", INK, "the counter's reading"),
    )
    top = max((max(sum(p.value for p in b.parts), b.mark or 0) for b in bars), default=0.0)
    return Bars(tuple(bars), key, top, "prompt tokens")


def survivor_latency(found: Found, scene: Scene) -> Bars:
    """How long users waited who stayed: the share of them within each time, and never."""
    bars = []
    curve = scene.rows(found["survivor_latency_curve"])
    steps = thinned(sorted({r["within_s"] for r in curve}), curve)
    for one in scene.shown:
        mine = {r["within_s"]: r["delivered_share"] for r in curve if r["policy"] == one.policy}
        for row in scene.rows(found["survivor_latency"], one.policy):
            parts, before = [], 0.0
            for step, colour in zip(steps, WAITED, strict=False):
                parts.append(Part(mine[step] - before, colour, share(mine[step] - before)))
                before = mine[step]
            parts.append(Part(row["undelivered_share"], NEVER, share(row["undelivered_share"])))
            note = f"p50 {wait(row['p50_s'])}, p95 {wait(row['p95_s'])}"
            bars.append(Bar(one.short_label, note, one.colour, one.own, tuple(parts)))
    key = [Key("area", c, f"within {duration(s)}") for s, c in zip(steps, WAITED, strict=False)]
    return Bars(tuple(bars), (*key, Key("area", NEVER, "never")), 1.0, "", share=True)


def thinned(steps: Sequence[float], curve: Rows) -> list[float]:
    """At most as many times as there are colours: those between which most calls are answered, and the last one."""
    kept = list(steps)
    while len(kept) > len(WAITED):
        gains = [gain(curve, kept[k - 1] if k else 0.0, kept[k]) for k in range(len(kept) - 1)]
        kept.pop(gains.index(min(gains)))
    return kept


def gain(curve: Rows, low: float, high: float) -> float:
    """Calls answered between two times, over all policies."""
    shares = {low: 0.0, high: 0.0}
    for row in curve:
        if row["within_s"] in shares:
            shares[row["within_s"]] += row["delivered_share"]
    return shares[high] - shares[low]


def wait(seconds: float) -> str:
    """A percentile of a wait."""
    return "never" if not math.isfinite(seconds) else duration(seconds)


def duration(seconds: float) -> str:
    """A time in few letters."""
    return f"{seconds:,.3g} s" if seconds < 300 else f"{seconds / 60:,.3g} min"
