"""What tokens and rows cost at least, in GPU seconds, whatever else runs beside them.

A step of P prefill tokens, D decoding rows and R chunks lasts `F(P, D, R)` and the terms of context (see StepTime).
Prices are numbers such that in every step that an engine can take

    token * P + decode * D + row * (D + R) + held * M <= F(P, D, R)

where M are tokens of context that its rows hold in blocks of their own, of which there is room for no more than the
pool. What a call needs, at these prices, is then no more than the steps last that serve it, together with whatever
else they serve. The dearest such prices for given traffic are a linear program; F is linear between its knots, so that
its corners are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from replay.engine.setup import step_seconds
from replay.profiles.profile import Profile

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prices:
    """GPU seconds of the first engine of a fleet, and how fast the fleet spends them."""

    token: float
    """Of a prompt token that is computed."""
    decode: float
    """Of an output token that a decoding row gives, beyond `row`; may be negative."""
    row: float
    """Of a row in a step: a decoding request, or a chunk of a prompt."""
    held: float
    """Of a token of context in blocks of its own, for a step."""
    context: float
    """Of a token of context that a decoding row reads."""
    attention: float
    """Of a pair of a computed prompt token and a token before it."""
    chunk_context: float
    """Of a token of context before a chunk."""
    shortest_step_s: float
    """No step takes less."""
    speed: float
    """GPU seconds that the fleet spends in a second."""


@dataclass(frozen=True, slots=True)
class Corners:
    """The corners of the steps that an engine can take, and how long each lasts, without the terms of context."""

    prefill: Floats
    decode: Floats
    rows: Floats
    seconds: Floats
    held_most: float
    """Tokens that fit into the pool."""


def corners_of(profile: Profile) -> Corners:
    """The corners of an engine's steps: between them, durations are linear."""
    engine, step = profile.engine, profile.timed
    seqs, most = engine.max_num_seqs, engine.max_num_batched_tokens
    seconds = step_seconds(step, most + seqs)
    if np.any(np.diff(seconds[1:]) + step.decode_s + step.sequence_s < 0):
        most += seqs  # slots that are held after an abort would make a step shorter: they belong into the picture
    turns = {1, 2, seqs - 1, seqs, seqs + 1, most, *step.knots_tokens}
    found = []
    for tokens in sorted(t for t in turns if 1 <= t <= most):
        if tokens <= seqs:
            found.append((0, tokens, tokens))
        chunks = [(0, 1), (0, min(seqs, tokens)), (min(tokens, seqs) - 1, 1)]
        found += [(tokens - decode, decode, decode + chunk) for decode, chunk in chunks]
    prefill, decode, rows = np.array(sorted(set(found)), dtype=np.float64).T
    lasts = step.overhead_s + step.sequence_s * rows + seconds[(prefill + decode).astype(int)] + step.decode_s * decode
    return Corners(prefill, decode, rows, np.maximum(lasts, 0.0), float((engine.num_blocks - 1) * engine.block_size))


def dearest(engines: Sequence[Profile], prefill: float, decode: float, rows: float, held: float) -> Prices:
    """The prices on a fleet at which traffic of so many tokens and rows costs most.

    `engines` are those of all replicas. `decode` counts output tokens, `rows` them and the least number of chunks,
    `held` the tokens of context of all rows over all steps.
    """
    from scipy.optimize import linprog

    corners = corners_of(engines[0])
    sizes = np.array([prefill, decode, rows, held])
    table = np.column_stack(
        [corners.prefill, corners.decode, corners.rows, np.full(len(corners.rows), corners.held_most)]
    )
    scale = np.maximum(np.abs(table).max(axis=0), 1.0)  # the columns differ by orders of magnitude
    found = linprog(
        -sizes / scale,
        A_ub=np.vstack([table / scale, [0.0, -1.0 / scale[1], -1.0 / scale[2], 0.0]]),
        b_ub=np.append(corners.seconds, 0.0),
        bounds=[(0, None), (None, None), (0, None), (0, None)],
        method="highs",
    )
    token, each, row, block = (found.x / scale).tolist() if found.success else (0.0, 0.0, 0.0, 0.0)
    return on_fleet(engines, token, each, row, block)


def charged(engines: Sequence[Profile]) -> Prices:
    """Prices that hold even where an abort ends a step's work for a row in mid-step and gives its charge back.

    What is left of such a step is no less than the charges of its other rows (see `replay.engine.ledger`): each has
    its share of `f(T)` by tokens, its own terms, and its share of the overhead among the rows.
    """
    engine, step = engines[0].engine, engines[0].timed
    seconds = step_seconds(step, engine.max_num_batched_tokens + engine.max_num_seqs)[1:]
    token = float((seconds / np.arange(1, len(seconds) + 1)).min())
    row = step.sequence_s + step.overhead_s / engine.max_num_seqs
    return replace(on_fleet(engines, token, max(token + step.decode_s, -row), row, 0.0), shortest_step_s=0.0)


def on_fleet(engines: Sequence[Profile], token: float, decode: float, row: float, held: float) -> Prices:
    """Prices of a step of the first engine as those of a fleet, in which others may be faster.

    An engine is as fast as it must be called so that no step of its own is shorter than what the step serves: the
    largest ratio over its corners, which also brings down prices that a solver found a hair too dear.
    """
    kinds = list({id(p): p for p in engines}.values())
    terms = np.array([(*context_terms(p),) for p in kinds])
    least = np.where(terms.min(axis=0) > 0, terms[0], 0.0)
    speed = 0.0
    shortest = np.inf
    for kind, own in zip(kinds, terms, strict=True):
        c = corners_of(kind)
        asked = token * c.prefill + decode * c.decode + row * c.rows + held * c.held_most
        ratio = np.divide(asked, c.seconds, out=np.where(asked > 0, np.inf, 0.0), where=c.seconds > 0)
        fast = max(float(ratio.max()), *np.divide(least, own, out=np.zeros(3), where=own > 0).tolist(), 1e-12)
        speed += fast * sum(p is kind for p in engines)
        shortest = min(shortest, float(c.seconds.min()))
    context, attention, before = least.tolist()
    return Prices(token, decode, row, held, context, attention, before, shortest, speed)


def context_terms(profile: Profile) -> tuple[float, float, float]:
    """Seconds for a token that a decoding row reads, for a pair of tokens in prefill, for one before a chunk."""
    step = profile.timed
    read = step.kv_token_s * min(step.mixed_kv_factor, 1.0)
    return read, step.prefill_attention_s, step.prefill_context_s
