"""What a trace holds, for a person and for a program: `figures.py` counts, `caveats.py` warns, `text.py` says it."""

from replay.describe.figures import Description, as_dict, describe
from replay.describe.text import added_lines, report_lines, session_lines

__all__ = ["Description", "added_lines", "as_dict", "describe", "report_lines", "session_lines"]
