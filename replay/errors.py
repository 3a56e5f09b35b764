"""The errors of a replay. `cli.py` turns each class into its exit code."""

from __future__ import annotations

from trace_schema.errors import BadConfig, BadInput, UnknownName, UserError


class RunFailed(UserError):
    """A simulation could not be carried through: says which cell and why."""


class ClusterUnreachable(UserError):
    """There is no Ray cluster at an address, or it does not let us in."""


__all__ = ["BadConfig", "BadInput", "ClusterUnreachable", "RunFailed", "UnknownName", "UserError"]
