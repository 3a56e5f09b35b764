"""What an answer leaves in its run directory: itself, the policy, a plot, and the report of its last run."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from replay.files import write_whole
from replay.recommend.answer import Answer
from replay.recommend.picture import pictures
from replay.recommend.words import in_words
from replay.report.plots import png


def save(answer: Answer) -> list[str]:
    """Write the answer as JSON and as text, the policy as YAML, its plot and the page; returns the files' paths."""
    from replay.report.page import write_page

    root = Path(answer.run)
    contents = {
        "recommend.json": json.dumps(msgspec.to_builtins(answer), indent=1).encode(),
        "recommend.txt": f"{in_words(answer)}\n".encode(),
    }
    if answer.snippet:
        contents["recommended.yaml"] = answer.snippet.encode()
    for name, content in contents.items():
        write_whole(root / name, content)
    page = write_page(answer.run)
    for name, chart in pictures(answer).items():
        write_whole(root / "plots" / f"{name}.png", png(chart))
    return [str(root / "recommend.json"), str(root / "plots" / "recommend.png"), str(page)]
