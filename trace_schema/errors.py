"""What can be wrong with a trace or with a request, in one sentence for the person who asked."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can mend. Its only argument is the whole message, so that it survives pickling."""


class BadInput(UserError):
    """The data is wrong: names the file, the row or the field."""

    @classmethod
    def at(cls, file: object, problem: str, *, row: int | None = None, field: str | None = None) -> BadInput:
        """`problem` located in `file`, at 1-based `row` and in `field` where they are known."""
        place = str(file) + (f", row {row}" if row is not None else "") + (f", field {field!r}" if field else "")
        return cls(f"{place}: {problem}")


class BadConfig(UserError):
    """A flag, a knob or an experiment file is wrong: names the key and the valid values."""


class UnknownName(BadConfig):
    """A name that no registry holds; the message lists the nearest valid ones."""

    @classmethod
    def of(cls, kind: str, name: str, valid: Iterable[str]) -> UnknownName:
        names = sorted(valid)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"valid: {', '.join(names)}"
        return cls(f"unknown {kind} {name!r}; {hint}")
