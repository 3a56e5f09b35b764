"""How long prompts and outputs are: what attempts of a call know between them, and what can be estimated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trace_schema.columns import is_empty
from trace_schema.fold.groups import Groups
from trace_schema.fold.units import Floats, Ints, Mask, numeric

LEARNED_LEAST = 20
"""Requests of known bytes and tokens from which the tokens of others are estimated."""
FINISHED_LEAST = 20
"""Whole responses from which it is known that the limit is what ends one."""
AT_LIMIT_SHARE = 0.99
KIND_LEAST = 5
"""Requests of a kind from which its overhead is known."""
ANY_KIND = -1.0


@dataclass(frozen=True, slots=True)
class BytesLaw:
    """tokens = (bytes - overhead) / per_token, of a request's length; to ask for a stream takes more bytes."""

    bytes_per_token: float
    overhead_bytes: dict[float, float]
    """By kind: 1 streamed, 0 not, -1 unknown."""

    def tokens(self, size: Floats, kind: Floats) -> Floats:
        """NaN where the bytes are not known."""
        overhead = np.full(len(kind), self.overhead_bytes[ANY_KIND])
        for one, own in self.overhead_bytes.items():
            overhead[kind == one] = own
        return np.asarray(np.maximum(np.round((size - overhead) / self.bytes_per_token), 1.0))


def learned(size: Floats, tokens: Floats, kind: Floats) -> BytesLaw | None:
    """The line through requests whose bytes and tokens are known (Theil and Sen's: the median of slopes).

    None where they are too few, or do not grow together.
    """
    known = ~np.isnan(size) & ~np.isnan(tokens)
    size, tokens, kind = size[known], tokens[known], kind[known]
    if len(size) < LEARNED_LEAST:
        return None
    slope = median_slope(size, tokens, kind)
    if slope <= 0.0:
        return None
    rest = size - tokens / slope
    overhead = {float(k): float(np.median(rest[kind == k])) for k in np.unique(kind) if (kind == k).sum() >= KIND_LEAST}
    return BytesLaw(1.0 / slope, {ANY_KIND: float(np.median(rest)), **overhead})


def median_slope(size: Floats, tokens: Floats, kind: Floats) -> float:
    """Tokens a byte, from pairs of one kind, of which one is half the log away from the other in order of size: noise
    does not outweigh such distances.
    """
    slopes = []
    for one in np.unique(kind):
        own = np.flatnonzero(kind == one)
        own = own[np.argsort(size[own], kind="stable")]
        half = len(own) // 2
        near, far = own[:half], own[len(own) - half :]
        apart = size[far] - size[near]
        slopes.append((tokens[far] - tokens[near])[apart > 0] / apart[apart > 0])
    found = np.concatenate(slopes)
    return float(np.median(found)) if len(found) else 0.0


def kinds(attempts: pa.Table) -> Floats:
    """Of each attempt: 1 where it was to be streamed, 0 where not, -1 unknown."""
    if is_empty(attempts["stream"]):
        return np.full(attempts.num_rows, ANY_KIND)
    return np.asarray(attempts["stream"].cast(pa.int8()).fill_null(-1)).astype(np.float64)


def prompts(attempts: pa.Table, groups: Groups, bytes_per_token: float | None) -> tuple[Floats, Mask]:
    """(prompt tokens of each call, NaN where nothing says; whether they are an estimate).

    An attempt's count by an engine or a server goes before a gateway's own guess, and a guess before an estimate from
    the bytes of the request, by `bytes_per_token` or by what the log's other requests have.
    """
    tokens = numeric(attempts, "prompt_tokens")
    first = tokens[groups.first]
    if not np.isnan(first).any() and is_empty(attempts["prompt_token_source"]):
        return first, np.zeros(len(first), bool)
    source = np.asarray(attempts["prompt_token_source"].to_numpy(zero_copy_only=False), object)
    guessed = np.asarray(source == "client_tokenizer")
    counted = np.fmax.reduceat(np.where(guessed, np.nan, tokens), groups.first)
    guess = np.fmax.reduceat(np.where(guessed, tokens, np.nan), groups.first)
    size = numeric(attempts, "request_bytes")
    kind = kinds(attempts)
    law = learned(size, np.where(guessed, np.nan, tokens), kind)
    if bytes_per_token:
        law = BytesLaw(bytes_per_token, {ANY_KIND: 0.0})
    known = np.where(np.isnan(counted), guess, counted)
    if law is None:
        return known, np.isnan(counted) & ~np.isnan(guess)
    estimate = law.tokens(np.fmax.reduceat(size, groups.first), kind[groups.first])
    return np.where(np.isnan(known), estimate, known), np.isnan(counted)


@dataclass(frozen=True, slots=True)
class Outputs:
    """Output lengths, an entry a call."""

    tokens: Ints
    censored: Mask
    """They are only a lower bound."""
    estimated: Mask
    """They follow from the bytes of the response."""
    limited: bool
    """The limit is what ends an output: whole responses are as long as their `max_tokens`."""


def outputs(attempts: pa.Table, groups: Groups, delivered: Mask, bytes_per_token: float | None) -> Outputs:
    """How long each call's output is, or would have been.

    What a whole response holds; else the limit, where that is what ends outputs; else, of calls that were delivered,
    what they received, or what the bytes of their response say; else the most that any attempt received, as a lower
    bound.
    """
    whole = np.maximum.reduceat(numeric(attempts, "output_tokens", -1.0), groups.first)
    received = np.fmax.reduceat(numeric(attempts, "received_tokens"), groups.first)
    known = whole > 0
    limit = np.fmax.reduceat(numeric(attempts, "max_tokens"), groups.first)
    both = known & delivered & ~np.isnan(limit)
    limited = bool(both.sum() >= FINISHED_LEAST and np.mean(whole[both] == limit[both]) >= AT_LIMIT_SHARE)
    tokens = np.where(known, whole, np.fmax(received, 1.0))
    at_limit = ~known & (limit >= tokens) & limited
    open_ = ~known & ~at_limit & delivered & np.isnan(received)
    guesses = np.full(len(tokens), np.nan)
    if open_.any():
        guesses = response_lengths(attempts, groups, bytes_per_token)
    estimated = open_ & ~np.isnan(guesses)
    tokens = np.where(at_limit, limit, np.where(estimated, guesses, tokens))
    censored = ~known & ~at_limit & ~estimated & (~delivered | np.isnan(received))
    return Outputs(tokens.astype(np.int64), censored, estimated, limited)


def response_lengths(attempts: pa.Table, groups: Groups, bytes_per_token: float | None) -> Floats:
    """What the bytes of each call's last response say of its tokens; NaN where they say nothing."""
    size, kind = numeric(attempts, "response_bytes"), kinds(attempts)
    law = learned(size, numeric(attempts, "output_tokens"), kind)
    if bytes_per_token and law is None:
        law = BytesLaw(bytes_per_token, {ANY_KIND: 0.0})
    return np.full(len(groups.last), np.nan) if law is None else law.tokens(size[groups.last], kind[groups.last])
