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


@dataclass(frozen=True, slots=True)
class BytesLaw:
    """tokens = (bytes - overhead) / per_token, of a request's length."""

    overhead_bytes: float
    bytes_per_token: float

    def tokens(self, size: Floats) -> Floats:
        return np.maximum(np.round((size - self.overhead_bytes) / self.bytes_per_token), 1.0)


def learned(size: Floats, tokens: Floats) -> BytesLaw | None:
    """The line through requests whose bytes and tokens are known (Theil and Sen's: the median of slopes).

    None where they are too few, or do not grow together.
    """
    known = ~np.isnan(size) & ~np.isnan(tokens)
    size, tokens = size[known], tokens[known]
    if len(size) < LEARNED_LEAST:
        return None
    # Each with the one half the log away in order of size: slopes over distances that noise does not outweigh.
    order = np.argsort(size, kind="stable")
    half = len(order) // 2
    near, far = order[:half], order[-half:]
    slopes = (tokens[far] - tokens[near]) / np.maximum(size[far] - size[near], 1.0)
    slope = float(np.median(slopes[size[far] > size[near]])) if (size[far] > size[near]).any() else 0.0
    if slope <= 0.0:
        return None
    return BytesLaw(float(np.median(size - tokens / slope)), 1.0 / slope)


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
    law = BytesLaw(0.0, bytes_per_token) if bytes_per_token else learned(size, np.where(guessed, np.nan, tokens))
    known = np.where(np.isnan(counted), guess, counted)
    if law is None:
        return known, np.isnan(counted) & ~np.isnan(guess)
    estimate = law.tokens(np.fmax.reduceat(size, groups.first))
    return np.where(np.isnan(known), estimate, known), np.isnan(counted)


def outputs(attempts: pa.Table, groups: Groups, delivered: Mask) -> tuple[Ints, Mask, bool]:
    """(output tokens of each call, whether they are only a lower bound, whether the limit is what ends an output).

    Where all whole responses are as long as their `max_tokens`, so would have been those that were cut short.
    """
    whole = np.maximum.reduceat(numeric(attempts, "output_tokens", -1.0), groups.first)
    received = np.maximum.reduceat(numeric(attempts, "received_tokens", 0.0), groups.first)
    known = whole > 0
    limit = np.fmax.reduceat(numeric(attempts, "max_tokens"), groups.first)
    both = known & delivered & ~np.isnan(limit)
    limited = bool(both.sum() >= FINISHED_LEAST and np.mean(whole[both] == limit[both]) >= AT_LIMIT_SHARE)
    tokens = np.where(known, whole, np.maximum(received, 1.0))
    censored = ~known & ~delivered
    if limited:
        tokens = np.where(censored & (limit >= tokens), limit, tokens)
        censored &= ~(limit >= tokens)
    return tokens.astype(np.int64), censored, limited
