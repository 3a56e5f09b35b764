"""Traces of the Splitwise simulator (ISCA 2024): CSV, https://github.com/Mutinifni/splitwise-sim, traces/."""

from __future__ import annotations

from typing import ClassVar

from connectors.tabular import NamedCsv


class Splitwise(NamedCsv):
    """An application is an endpoint, behind which the simulator has instances of its own."""

    name = "splitwise"
    describes = "Traces of the Splitwise simulator, CSV: times, lengths, applications"
    needed: ClassVar = {
        "arrival_s": "arrival_timestamp", "prompt_tokens": "prompt_size", "output_tokens": "token_size",
        "source_request_id": "request_id",
    }  # fmt: skip
    optional: ClassVar = {"deployment": "application_id"}
