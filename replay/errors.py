"""The errors of a replay. `cli.py` turns each class into its exit code."""

from __future__ import annotations

from trace_schema.errors import BadInput, UnknownName, UserError


class BadConfig(UserError):
    """A flag, a knob or an experiment file is wrong: names the key and the valid values."""


class RunFailed(UserError):
    """A simulation could not be carried through: says which cell and why."""


__all__ = ["BadConfig", "BadInput", "RunFailed", "UnknownName", "UserError"]
