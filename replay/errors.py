"""The errors of a replay. `cli.py` turns each class into its exit code."""

from __future__ import annotations

from trace_schema.errors import BadConfig, BadInput, UnknownName, UserError


class RunFailed(UserError):
    """A simulation could not be carried through: says which cell and why."""


__all__ = ["BadConfig", "BadInput", "RunFailed", "UnknownName", "UserError"]
