"""What a run comes to, in a few sentences. Each follows from the rows of a query."""

from __future__ import annotations

from typing import Any

from replay.report.words import listed, percent

Rows = list[dict[str, Any]]
Answers = dict[str, Rows]
"""The rows of each query behind a report."""

SAME = 0.005
"""Rates closer than this are called equal."""
AGREES = 0.05
"""A replay of the log's own policy that is farther off a rate than this is pointed out."""


def verdict(found: Answers, own: str | None) -> list[str]:
    """What a run comes to, in a few sentences; for each profile and fleet in it."""
    sentences = []
    for group in dict.fromkeys(r["group"] for r in found["summary"]):
        mine = {name: [r for r in rows if r["group"] == group] for name, rows in found.items()}
        said = [
            served(mine["summary"], own),
            could_be(mine["share_of_possible"]),
            came_back(mine["recovery"]),
            wasted(mine["wasted_compute"], own),
        ]
        said += [doubt(mine["self_replay"], own), cut(mine["summary"])]
        sentences += [f"{group}: {s}" if group else s for s in said if s]
    return sentences


def served(rows: Rows, own: str | None) -> str:
    """Which policies deliver most, beside the log's own."""
    rates = {r["policy"]: r["delivered_call_rate"] for r in rows if r["delivered_call_rate"] is not None}
    if not rates:
        return ""
    top = max(rates.values())
    if len(rates) == 1:
        (only,) = rates
        whose = ", the log's own," if only == own else ""
        return f"{only}{whose} delivers {percent(top)} of calls."
    best = [policy for policy, rate in rates.items() if rate >= top - SAME]
    if len(best) == len(rates) > 1:
        return f"Every policy delivers as many calls: {percent(top)}."
    beside = ""
    if own in rates:
        beside = f" ({own} is the log's own)" if own in best else f"; {own}, the log's own, {percent(rates[own])}"
    return f"{listed(best)} {'delivers' if len(best) == 1 else 'deliver'} most calls: {percent(top)}{beside}."


def could_be(rows: Rows) -> str:
    """How much any policy could deliver; empty where that is all."""
    shares = [r["possible_delivered"] / r["calls"] for r in rows if r["phase"] is None and r["calls"]]
    if not shares or max(shares) > 1 - SAME:
        return ""
    return f"No policy with clients as patient could deliver more than {percent(max(shares))}."


def came_back(rows: Rows) -> str:
    """Which policies are on time again after the overload."""
    seen = [r for r in rows if r["recovered_share"] is not None]
    if not seen:
        return f"Recovery cannot be told: {too_little(rows)}." if rows else ""
    always = [r["policy"] for r in seen if r["recovered_share"] == 1]
    never = [r["policy"] for r in seen if r["recovered_share"] == 0]
    some = [f"{r['policy']} ({percent(r['recovered_share'])} of seeds)" for r in seen if 0 < r["recovered_share"] < 1]
    parts = [f"with {listed(always)}"] if always else []
    parts += [f"sometimes with {listed(some)}"] if some else []
    parts += [f"not with {listed(never)}"] if never else []
    return f"After the overload, service recovers {', '.join(parts)}."


def too_little(rows: Rows) -> str:
    """Why recovery has no answer."""
    after = f"{rows[0]['observed_calls']:,} calls in the {rows[0]['observed_s']:.0f} s after the overload"
    return f"no call was on time before the overload, or {after} are too few"


def wasted(rows: Rows, own: str | None) -> str:
    """What the log's own policy wasted, and what for; what all policies did where the log's own is not known."""
    rows = [r for r in rows if r["wasted_compute_frac"] is not None]
    mine = next((r for r in rows if r["policy"] == own), None)
    if mine is not None:
        waste = {c: mine[f"{c}_gpu_s"] for c in CAUSES}
        total, most = sum(waste.values()), max(waste, key=lambda c: waste[c])
        because = f", most of it {CAUSES[most]}" if total > 0 else ""
        share, busy = percent(mine["wasted_compute_frac"]), mine["busy_gpu_s"]
        return f"{own} wasted {share} of its GPU time ({total:,.0f} of {busy:,.0f} s){because}."
    if not rows:
        return ""
    low = min(rows, key=lambda r: r["wasted_compute_frac"])
    high = max(rows, key=lambda r: r["wasted_compute_frac"])
    if high["wasted_compute_frac"] - low["wasted_compute_frac"] < SAME:
        return f"Every policy wastes {percent(high['wasted_compute_frac'])} of its GPU time."
    return (
        f"{low['policy']} wastes least GPU time, {percent(low['wasted_compute_frac'])}; "
        f"{high['policy']} most, {percent(high['wasted_compute_frac'])}."
    )


CAUSES = {
    "abandoned": "on requests whose client gave up",
    "post_cancel": "on requests that nobody was waiting for any more",
    "duplicate": "on responses that another request had delivered",
    "recompute": "on tokens computed again after preemptions",
    "poll": "on checks whether clients were still there",
    "held_slot": "on batch slots kept after an abort",
}
"""Causes of waste, as a sentence ends."""


def doubt(rows: Rows, own: str | None) -> str:
    """Where the replay of the log's own policy is farthest off the log; empty where it is near."""
    rates = [r for r in rows if r["figure"].startswith("delivered")]
    off = [
        r for r in rates if abs(r["predicted"] - r["observed"]) > AGREES and not r["low"] <= r["observed"] <= r["high"]
    ]
    if not off:
        return ""
    worst = max(off, key=lambda r: abs(r["predicted"] - r["observed"]))
    return (
        f"Caution: replayed as {own}, {worst['figure']} is {worst['predicted']:.3f} where the log has "
        f"{worst['observed']:.3f}; trust no smaller difference between policies."
    )


def cut(rows: Rows) -> str:
    """How many calls had not ended when the run was cut."""
    most = max(rows, key=lambda r: r["unresolved"], default=None)
    if most is None or most["unresolved"] == 0:
        return ""
    return (
        f"The run was cut: up to {most['unresolved']:,.0f} calls ({most['policy']}) had not ended, and count as lost."
    )
