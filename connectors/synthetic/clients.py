"""Clients that differ: each with its own rate, burstiness and lengths, window by window, as real services have them.

The traffic of a service is the sum of that of its clients, of whom a few send most and some in bursts (Xiang et al.,
ServeGen, NSDI '26). Within a window a client is a stationary renewal process of its own rate and law of gaps; windows
and clients are drawn apart, so that another client shifts no draw of this one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from connectors.synthetic.draws import Floats, stream
from connectors.synthetic.gaps import Gaps
from connectors.synthetic.laws import Law


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How a client sends from `start_s` until its next window."""

    start_s: float
    rate_per_s: float
    gaps: Gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long the prompts and outputs of a client are, from `start_s` until its next lengths."""

    start_s: float
    prompt_tokens: Law
    output_tokens: Law


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client: its windows and its lengths, each in order of time, none empty."""

    name: str
    windows: Sequence[Window]
    lengths: Sequence[Lengths]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What a client sends, in order of time: when, and how many tokens."""

    arrival_s: Floats
    prompt_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]


def requests(client: Client, *, start_s: float, end_s: float, seed: int, rate: float = 1.0) -> Requests:
    """What a client sends from `start_s` until `end_s`, with its own rates times `rate`.

    A pure function. Each window has draws of its own, and a call's lengths depend on its place in the window alone:
    another `end_s` cuts or continues, and changes nothing before it.
    """
    ends = [*(window.start_s for window in client.windows[1:]), math.inf]
    parts = []
    for number, (window, next_s) in enumerate(zip(client.windows, ends, strict=True)):
        if window.rate_per_s > 0.0 and next_s > start_s and window.start_s < end_s:
            purpose = f"client {client.name}, window {number}"
            arrivals = window_arrivals(window, min(next_s, end_s), seed, purpose, rate)
            columns = np.stack([arrivals, *lengths_at(client.lengths, arrivals, seed, purpose)])
            parts.append(columns[:, arrivals >= start_s])
    arrival_s, prompt, output = np.concatenate([np.empty((3, 0)), *parts], axis=1)
    return Requests(arrival_s=arrival_s, prompt_tokens=whole(prompt), output_tokens=whole(output))


def lengths_at(lengths: Sequence[Lengths], arrivals: Floats, seed: int, purpose: str) -> tuple[Floats, Floats]:
    """Prompt and output lengths of calls that arrive then, by the lengths that hold at that time."""
    n = len(arrivals)
    prompt, output = np.ones(n), np.ones(n)
    which = np.searchsorted([law.start_s for law in lengths], arrivals, side="right") - 1
    for k in np.unique(np.maximum(which, 0)):
        now = np.maximum(which, 0) == k
        prompt[now] = lengths[k].prompt_tokens.draw(stream(seed, f"{purpose}, prompts"), n)[now]
        output[now] = lengths[k].output_tokens.draw(stream(seed, f"{purpose}, outputs"), n)[now]
    return prompt, output


def window_arrivals(window: Window, end_s: float, seed: int, purpose: str, rate: float) -> Floats:
    """When a client sends in one window, up to `end_s`."""
    per_s = rate * window.rate_per_s
    expected = per_s * (end_s - window.start_s)
    for doublings in itertools.count():
        n = int(expected + 4.0 * max(window.gaps.cv, 1.0) * math.sqrt(expected) + 16.0) << doublings
        counts = window.gaps.arrivals(n, stream(seed, purpose), stream(seed, f"{purpose}, first"))
        if counts[-1] > expected:
            break
    return np.asarray(window.start_s + counts[counts < expected] / per_s)


def whole(lengths: Floats) -> npt.NDArray[np.int64]:
    """Lengths in whole tokens, at least 1."""
    return np.maximum(np.rint(lengths), 1.0).astype(np.int64)
