"""Forms in which step times may be written in a profile, brought into the one that the engine reads.

A profile's `step_time` may hold, in the place of `knots_tokens` and `knots_s`:

`compact`: `{floor_s, token_s, p}`, a soft roofline: f(T) = (floor_s^p + (token_s * T)^p)^(1/p).

`table`: rows of (prefill tokens, decoding requests, sum of their contexts, seconds) of measured steps, and nothing
else. A step lasts f(prefill + decode) + decode_s * decode + kv_token_s * context; a table in which context costs more
beside more requests, or in which decoding and prefill slow each other down, is not of that form, and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from replay.errors import BadConfig
from replay.profiles.profile import StepTime
from replay.settings import converted

KNOT_RATIO = 1.05
"""Between two knots that stand for a curve: the line between them is off by less than 0.01%."""
CURVE_TOKENS_MAX = 1 << 17
TABLE_ERROR_MAX = 0.10
"""Largest error of a row beyond which a table is refused."""


class Compact(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """f(T) = (floor_s^p + (token_s * T)^p)^(1/p), for a step that is bound by memory, by compute, or by both."""

    floor_s: Annotated[float, Meta(gt=0.0)]
    token_s: Annotated[float, Meta(gt=0.0)]
    p: Annotated[float, Meta(ge=1.0)] = 1.6

    def seconds(self, tokens: float) -> float:
        """f of so many tokens."""
        return float((self.floor_s**self.p + (self.token_s * tokens) ** self.p) ** (1.0 / self.p))


def plain_form(profile: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The content of a profile with `step_time` in the form of StepTime, and what a table says of its own fit.

    Raises BadConfig that begins with `where` for a form that is wrong, or a table that step times cannot be.
    """
    step_time = profile.get("step_time")
    if not isinstance(step_time, Mapping):
        return dict(profile)
    if "compact" in step_time:
        rest = {key: value for key, value in step_time.items() if key != "compact"}
        curve = converted(step_time["compact"], Compact, where, "step_time.compact.")
        return {**profile, "step_time": {**rest, **knots_of(curve)}}
    if "table" in step_time:
        if len(step_time) > 1:
            raise BadConfig(f"{where}: step_time.table: gives all of the step time; leave the other keys out")
        fitted, worst = from_table(step_time["table"], f"{where}: step_time.table")
        error = profile.get("error") or f"{worst:.1%} at most on the rows of its table"
        fields = {name: getattr(fitted, name) for name in fitted.__struct_fields__}
        return {**profile, "step_time": fields, "error": error}
    return dict(profile)


def knots_of(curve: Compact) -> dict[str, list[Any]]:
    """The curve as knots so near to each other that nothing is lost between them."""
    tokens = [1]
    while tokens[-1] < CURVE_TOKENS_MAX:
        tokens.append(max(tokens[-1] + 1, int(tokens[-1] * KNOT_RATIO)))
    return {"knots_tokens": tokens, "knots_s": [curve.seconds(n) for n in tokens]}


def from_table(rows: Any, where: str = "table") -> tuple[StepTime, float]:
    """The step times nearest to a table of steps, and the largest error that they have on one of its rows.

    f has a knot at each number of tokens of the table. Raises BadConfig for rows that are none, and for a table that
    is off by more than `TABLE_ERROR_MAX`.
    """
    import numpy as np
    from scipy.optimize import nnls

    if not isinstance(rows, Sequence) or isinstance(rows, str) or len(rows) < 3:
        raise BadConfig(f"{where}: must be rows of (prefill, decode, context, seconds), three at least")
    for number, row in enumerate(rows, 1):
        good = isinstance(row, Sequence) and len(row) == 4 and all(isinstance(x, int | float) for x in row)
        if not good or row[0] < 0 or row[1] < 0 or row[0] + row[1] < 1 or row[2] < 0 or row[3] <= 0:
            raise BadConfig(f"{where}: row {number} is not (prefill, decode, context, seconds) of a step")
    table = np.array(rows, dtype=np.float64)
    prefill, decode, context, seconds = table.T
    knots = np.unique(prefill + decode)
    # f is a sum of ramps from each knot to the next, so that it never falls.
    lengths = np.diff(knots, prepend=knots[0] - 1)
    ramps = np.clip((prefill + decode)[:, None] - knots[None, :] + lengths, 0.0, lengths)
    columns = np.column_stack([ramps, decode, context]) / seconds[:, None]
    scale = np.maximum(columns.max(axis=0), 1e-300)
    solution = nnls(columns / scale, np.ones(len(seconds)))[0] / scale
    worst = float(np.abs(columns @ solution - 1.0).max())
    if worst > TABLE_ERROR_MAX:
        row = int(np.abs(columns @ solution - 1.0).argmax()) + 1
        raise BadConfig(
            f"{where}: row {row} is {worst:.0%} off the nearest step times of the form "
            "f(prefill + decode) + decode_s * decode + kv_token_s * context, which is what the engine can use"
        )
    return (
        StepTime(
            knots_tokens=tuple(int(n) for n in knots),
            knots_s=tuple(float(s) for s in np.cumsum(solution[:-2] * lengths)),
            decode_s=float(solution[-2]),
            kv_token_s=float(solution[-1]),
        ),
        worst,
    )
