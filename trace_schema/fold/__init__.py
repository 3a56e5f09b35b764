"""Attempts to calls: `joins.py` finds what belongs together, `leaving.py` who left, `sizes.py` how long prompts are,
`clients.py` how clients wait and try again, `calls.py` makes the calls, and `account.py` says what was done.
"""

from trace_schema.fold.account import Example, FoldAccount, Rule, Try
from trace_schema.fold.calls import FOLDED, Folded, fold
from trace_schema.fold.clients import ObservedClient
from trace_schema.fold.joins import RETRY_WINDOW_S, JoinRules
from trace_schema.fold.leaving import Departures

__all__ = [
    "FOLDED",
    "RETRY_WINDOW_S",
    "Departures",
    "Example",
    "FoldAccount",
    "Folded",
    "JoinRules",
    "ObservedClient",
    "Rule",
    "Try",
    "fold",
]
