"""Figures and names in a sentence or a cell."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from replay.report.tables import WIDTH


def percent(share: float) -> str:
    """A share in percent, which is 0 or 100 only where it is all or nothing."""
    whole = f"{share:.0%}"
    return f"{share:.1%}" if whole in ("0%", "100%") and 0 < share < 1 else whole


def listed(names: Sequence[str]) -> str:
    """Names as in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def spread(mean: float | None, low: float | None, high: float | None, digits: int = 3) -> str:
    """A mean with its range over seeds, which is left out where all seeds agree."""
    if mean is None or low is None or high is None:
        return "-"
    if f"{low:.{digits}f}" == f"{high:.{digits}f}":
        return f"{mean:,.{digits}f}"
    return f"{mean:,.{digits}f} [{low:,.{digits}f} to {high:,.{digits}f}]"


def paragraphs(sentences: Iterable[str]) -> str:
    """Each sentence wrapped to the width of a page."""
    return "\n".join(textwrap.fill(sentence, WIDTH, subsequent_indent="  ") for sentence in sentences)
