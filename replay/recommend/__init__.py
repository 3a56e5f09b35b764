"""The smallest change of policy that reaches a goal on a user's own calls: what it takes and costs, how sure it is.

`changes` is who can change what, `candidates` are policies made of it, `search` tries them, `robust` holds what it
found against other traffic, `capacity` asks what engines would do instead, `answer` says it. Everything is replayed by
`bench`, whose runs lie beneath the run directory that the answer is in.
"""

from __future__ import annotations

from replay.recommend.answer import Answer
from replay.recommend.recommend import recommend

__all__ = ["Answer", "recommend"]
