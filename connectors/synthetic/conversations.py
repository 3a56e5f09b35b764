"""Sessions of several turns: what was said so far stands at the beginning of each prompt, which grows turn by turn.

The prompt of a turn is the prefix of its session, if it has one, then what user and model said in the turns before,
then what the user says now. Its blocks are those of the turn before and some more, which an engine's cache finds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.synthetic.draws import Floats, stream
from connectors.synthetic.options import Traffic

Counts = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

BLOCK_TOKENS = 16
"""Tokens of a block of such prompts: vLLM's default."""
SESSION_BITS = 24
"""Blocks of a session are numbered in so many bits."""
OF_PREFIX = np.uint64(1 << 62)
"""Marks the blocks of prefixes, which are no session's own."""


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of all sessions, session by session."""

    session: Counts
    turn: Counts
    """From 0."""
    think_s: Floats
    """From the end of the turn before; NaN in the first."""
    arrival_s: Floats
    """Were each response written at the pace that the options name."""
    said_before: Counts
    """Tokens of the turns before, of user and model, without a prefix."""
    text: Counts
    """Tokens that the user says now."""
    output: Counts


def turns_each(traffic: Traffic, sessions: int) -> Counts:
    """How many turns each session has."""
    assert traffic.session_turns is not None
    drawn = traffic.session_turns.draw(stream(traffic.seed, "turns"), sessions)
    return np.clip(np.rint(drawn), 1, TURNS_MOST).astype(np.int64)


TURNS_MOST = 10_000


def turns_of(begins_s: Floats, each: Counts, text: Counts, output: Counts, traffic: Traffic) -> Turns:
    """The turns of sessions that begin then; `text` and `output` are what is said in each turn."""
    session = np.repeat(np.arange(len(each)), each)
    first = np.cumsum(each) - each
    turn = np.arange(len(session)) - first[session]
    think = traffic.think_time_s.draw(stream(traffic.seed, "think time"), len(session))
    lasts = traffic.first_token_s + traffic.token_s * output
    since_begin = before(lasts, first[session]) + before(think, first[session]) + think - think[first[session]]
    return Turns(
        session=session,
        turn=turn,
        think_s=np.where(turn > 0, think, np.nan),
        arrival_s=begins_s[session] + since_begin,
        said_before=before(text + output, first[session]).astype(np.int64),
        text=text,
        output=output,
    )


def before(values: npt.NDArray[np.generic], first: Counts) -> Floats:
    """The sum of the values from a session's first turn to the turn before each."""
    total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    return np.asarray(total[:-1] - total[first])


def short_enough(turns: Turns, most: int) -> npt.NDArray[np.bool_]:
    """Which turns happen: a session ends before the turn whose prompt, but for a prefix, is longer than `most`."""
    return np.asarray((turns.said_before + turns.text <= most) | (turns.turn == 0))


def hashes_of(session: Counts, prompt: Counts, prefix: Counts, which: Hashes) -> pa.Array:
    """The full blocks of each prompt: those within the prefix are the prefix's, all others the session's own.

    A session's k-th block is the same in all its turns, which only add to what was said. `prefix` is how many tokens of
    each prompt are of prefix number `which`.
    """
    number = prompt // BLOCK_TOKENS
    ends = np.cumsum(number)
    place = np.arange(int(ends[-1])) - np.repeat(ends - number, number)
    of_prefix = place < np.repeat(prefix // BLOCK_TOKENS, number)
    own = np.repeat(session.astype(np.uint64), number)
    owner = np.where(of_prefix, OF_PREFIX >> np.uint64(SESSION_BITS) | np.repeat(which, number), own)
    values = owner << np.uint64(SESSION_BITS) | place.astype(np.uint64)
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
