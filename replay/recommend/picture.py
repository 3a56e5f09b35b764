"""The answer at a glance: the goal's figure by policy, with intervals, the goal, and what was possible."""

from __future__ import annotations

from replay.recommend.answer import Answer, Fared
from replay.recommend.words import value
from replay.report.charts import INK, NEVER, OWN, PALETTE, USEFUL, Bar, Bars, Key, Part
from replay.report.words import percent

GOAL = NEVER
"""Colour of the goal's line."""
POSSIBLE = {"delivered_call_rate": "possible_delivered", "on_time_rate": "possible_on_time"}
"""Figures of which it is known what was possible."""


def pictures(answer: Answer) -> dict[str, Bars]:
    """A chart for each goal, by the name of its file."""
    return {f"recommend-{k + 1}" if k else "recommend": picture(answer, k) for k in range(len(answer.goals))}


def picture(answer: Answer, k: int) -> Bars:
    """Every policy of the last run on goal `k`: bars are means over seeds, whiskers resampled traffic or seeds."""
    goal = answer.now.standings[k]
    policies = [answer.now, *([answer.best] if answer.best else []), *answer.others]
    bars = [bar(one, k, PALETTE[n % len(PALETTE)], own=n == 0) for n, one in enumerate(policies)]
    rules = [(goal.number, GOAL)]
    key = [Key("area", USEFUL, goal.figure), Key("line", GOAL, f"the goal, {goal.goal}")]
    if bars and any(b.whisker for b in bars):
        key.append(Key("line", INK, "95% over resampled traffic, or over seeds"))
    most = getattr(answer, POSSIBLE[goal.figure]) if goal.figure in POSSIBLE else None
    if most is not None:
        rules.append((most, OWN))
        key.append(Key("line", OWN, f"no policy is beyond {percent(most)}"))
    ends = [sum(p.value for p in b.parts) for b in bars] + [b.whisker[1] for b in bars if b.whisker]
    top = max([*ends, *(at for at, _ in rules)], default=1.0)
    share = top <= 1.0 and goal.figure.endswith(("_rate", "_frac"))
    return Bars(tuple(bars), tuple(key), 1.0 if share else top, goal.figure, share, tuple(rules))


def bar(one: Fared, k: int, colour: str, *, own: bool) -> Bar:
    """A policy on a goal."""
    standing = one.standings[k]
    mean = standing.seeds.mean
    over = standing.resampled or standing.seeds
    whisker = None if over.low is None or over.high is None or over.low == over.high else (over.low, over.high)
    holds = standing.margin >= 0
    which = "the goal" if one.reached == holds else "this one"
    note = f"{value(standing.figure, mean)}, {'reaches' if holds else 'misses'} {which}"
    label = f"{one.policy}, as it is" if own else one.policy
    return Bar(label, note, OWN if own else colour, own, (Part(mean or 0.0, USEFUL),), whisker=whisker)
