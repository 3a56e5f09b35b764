"""The best that was possible: more calls than any policy can deliver, for given traffic and engines.

`prices` is what a token costs at least, `needs` what a call does, `patience` until when it can be delivered, `fluid`
how many calls fit; `bound` puts them together. Why it is a bound is in docs/possible.md.
"""

from __future__ import annotations

from replay.possible.bound import Possible, most_calls

__all__ = ["Possible", "most_calls"]
