"""The best that was possible: more calls than any policy can deliver, for given traffic and engines.

`prices` is what a token costs at least, `needs` what a call does, `arrivals` and `patience` when it can be worked on,
`fluid` how many calls fit; `bound` puts them together. Why it is a bound is in docs/possible.md.
"""

from __future__ import annotations

from replay.possible.arrivals import arrivals_of
from replay.possible.bound import Possible, most_calls

__all__ = ["Possible", "arrivals_of", "most_calls"]
