"""One account of the same traffic from several logs: outcomes and users from the gateway's, sizes from the engine's.

`ids.py` finds the ids that both have, `times.py` what only time can tell, `sides.py` by how much the two may differ,
`tables.py` makes the attempts.
"""

from trace_schema.merge.logs import MergeAccount, ids_match, merge

__all__ = ["MergeAccount", "ids_match", "merge"]
