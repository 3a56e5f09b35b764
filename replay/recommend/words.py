"""The answer for people: what to change, what it brings and costs, how sure it is, and what to paste."""

from __future__ import annotations

from typing import Any

from replay.recommend.answer import Answer, Cost, Fared, Interval, Room, Sensed, Standing
from replay.report.tables import grid
from replay.report.words import listed, paragraphs, percent

SHARES = ("_rate", "_frac", "_share", "shortfall")
"""Ends of figures that are shares."""


def in_words(answer: Answer) -> str:
    """The whole answer."""
    parts = [
        paragraphs([headline(answer), *why_not(answer), *(f"Note: {c}." for c in map(without_dot, answer.cautions))]),
        changes(answer.best) if answer.best else "",
        goals(answer),
        paragraphs(surety(answer)),
        money(answer),
        sensed(answer),
        paragraphs(engines(answer)),
        alternatives(answer),
        paste(answer),
    ]
    return "\n\n".join(part for part in parts if part)


def without_dot(sentence: str) -> str:
    return sentence.rstrip(".")


def headline(answer: Answer) -> str:
    """What to do, in a sentence."""
    goal = ", ".join(answer.goals)
    best = answer.best
    if answer.now.reached:
        return f"{answer.now.policy} reaches {goal} as it is."
    if best is None:
        return f"Nothing that {listed(answer.can)} can change makes a difference to this traffic."
    what = listed([turn.words for turn in best.turns])
    if best.reached:
        count = "one change" if len(best.turns) == 1 else f"{len(best.turns)} changes"
        same = f" (as {best.known_as} of the catalogue)" if best.known_as else ""
        return f"To reach {goal} takes {count}{same}: {what}."
    return (
        f"No policy within what {listed(answer.can)} can change reaches {goal}: {answer.tried:,} were tried. "
        f"The nearest changes {what}."
    )


def why_not(answer: Answer) -> list[str]:
    """What was possible at all, where the goal is not reached."""
    if answer.reached or answer.now.reached:
        return []
    said = []
    for goal, most in (("delivered_call_rate", answer.possible_delivered), ("on_time_rate", answer.possible_on_time)):
        if most is not None and most < 1 and any(g.startswith(goal) for g in answer.goals):
            kind = "delivers" if goal.startswith("delivered") else "delivers on time"
            said.append(f"No policy whatever {kind} more than {percent(most)} on these engines.")
    return said


def changes(best: Fared) -> str:
    """Each change: its setting, what it was, who makes it, and whether it takes code."""
    rows = [
        [key, said(value), said(turn.before.get(key)), turn.who, turn.effort]
        for turn in best.turns
        for key, value in turn.settings.items()
    ]
    return grid(["setting", "to", "was", "who", "takes"], rows, "What to change")


def said(value: Any) -> str:
    """A setting's value, as YAML has it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) else str(value) if value != {} else "{} (defaults)"


def goals(answer: Answer) -> str:
    """The goals, now and then."""
    shown = answer.best or answer.now
    rows = []
    for now, then in zip(answer.now.standings, shown.standings, strict=True):
        over = spread(then, then.resampled) if then.resampled else "-"
        both = [spread(now, now.seeds), spread(then, then.seeds)] if answer.best else [spread(now, now.seeds)]
        rows.append([now.goal, *both, over, f"{then.margin:+.1%}"])
    heads = ["goal", f"now ({answer.now.policy})", *(["then"] if answer.best else []), "on resampled traffic", "margin"]
    return grid(heads, rows, "The goals: mean over seeds [95%], and mean over resampled traffic [middle 95%]")


def spread(standing: Standing, found: Interval) -> str:
    """A figure with its interval."""
    if found.mean is None or found.low is None or found.high is None:
        return "infinite"
    low, mean, high = (value(standing.figure, v) for v in (found.low, found.mean, found.high))
    return mean if low == high else f"{mean} [{low} to {high}]"


def value(figure: str, number: float | None) -> str:
    """A figure in few characters."""
    if number is None:
        return "infinite"
    return f"{number:.3f}" if figure.endswith(SHARES) else f"{number:,.3g}" if abs(number) < 1000 else f"{number:,.0f}"


def surety(answer: Answer) -> list[str]:
    """In how much of the resampled traffic the goal is reached."""
    shown = answer.best or answer.now
    if shown.holds_in is None:
        return []
    beside = f"; {answer.now.policy} on {percent(answer.now.holds_in or 0.0)}" if answer.best else ""
    return [f"On {percent(shown.holds_in)} of resampled traffics {shown.policy} reaches the goal{beside}."]


def money(answer: Answer) -> str:
    """What a change costs and brings."""
    rows = [[cost.figure.replace("_", " "), amount(cost, cost.now), amount(cost, cost.then)] for cost in answer.costs]
    title = "What it brings and costs (calls: beside the present policy, mean over seeds)"
    return grid(["figure", "now", "then"], rows, title) if rows else ""


def amount(cost: Cost, number: float | None) -> str:
    """A cost in few characters."""
    if number is None:
        return "-"
    return (
        percent(number) if cost.kind == "share" else f"{number:,.2f} s" if cost.kind == "seconds" else f"{number:,.4g}"
    )


def sensed(answer: Answer) -> str:
    """The goals where one thing is other than it was."""
    name = answer.best.policy if answer.best else answer.now.policy
    mine = [s for s in answer.sensitivity if s.policy == name]
    figures = [standing.figure for standing in answer.now.standings]
    rows = [[s.variant, *(value(f, v) for f, v in zip(figures, s.values, strict=True)), outcome(s)] for s in mine]
    return grid(["", *figures, "goal"], rows, f"Where one thing is other than it was, with {name}") if rows else ""


def outcome(found: Sensed) -> str:
    """Whether the goal is reached in all replays of a variant."""
    if found.reached == found.replays:
        return "reached"
    return "MISSED" if found.reached == 0 else f"missed in {found.replays - found.reached} of {found.replays}"


def engines(answer: Answer) -> list[str]:
    """What more engines would do instead."""
    return [room(r, answer) for r in answer.capacity]


def room(found: Room, answer: Answer) -> str:
    """What more engines would do under one policy."""
    instead = "instead of a change, " if answer.reached and found.policy == answer.now.policy else ""
    if found.needed is None:
        return f"More engines: {instead}not even {found.tried_most} replicas reach the goal with {found.policy}."
    there = f"where there are {found.now}" if found.now > 1 else "where there is 1"
    return f"More engines: {instead}{found.needed} replicas reach the goal with {found.policy}, {there}."


def alternatives(answer: Answer) -> str:
    """The other policies of the last run."""
    rows = [
        [
            other.policy,
            ", ".join(dict.fromkeys(f"{t.who} {t.effort}" for t in other.turns)),
            *(spread(s, s.seeds) for s in other.standings),
            "reached" if other.reached else "missed",
            "-" if other.holds_in is None else percent(other.holds_in),
        ]
        for other in answer.others
    ]
    heads = ["policy", "takes", *(s.figure for s in answer.now.standings), "goal", "resampled"]
    return grid(heads, rows, "Other changes") if rows else ""


def paste(answer: Answer) -> str:
    """The policy as a file."""
    if not answer.snippet or answer.now.reached:
        return ""
    return f"To replay it again, or to carry it over (--policy FILE.yaml):\n\n{answer.snippet.rstrip()}"
