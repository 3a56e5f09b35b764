"""BurstGPT: ten months of ChatGPT and GPT-4 calls of a university (KDD 2025; https://github.com/HPMLL/BurstGPT)."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from connectors.rows import as_floats
from connectors.tabular import NamedCsv


class BurstGpt(NamedCsv):
    """Versions 1 and 2 have six columns; version 3 puts two more between the first and the others.

    A response of 0 tokens is a failure, as its authors say; what it would have held is unknown.
    """

    name = "burstgpt"
    describes = "BurstGPT's public traces (versions 1 to 3), CSV: times, lengths, models, failures, sessions"
    needed: ClassVar = {
        "arrival_s": "Timestamp", "model": "Model", "prompt_tokens": "Request tokens",
        "output_tokens": "Response tokens", "client": "Log Type",
    }  # fmt: skip
    optional: ClassVar = {"session_id": "Session ID", "e2e_s": "Elapsed time"}

    def columns(self, found: dict[str, pa.Array]) -> dict[str, pa.Array]:
        output = found["output_tokens"]
        failed = pc.equal(as_floats(output), 0.0)
        found["status"] = pc.if_else(failed, "error", "ok")
        found["output_tokens"] = pc.if_else(pc.fill_null(failed, False), pa.scalar(None, output.type), output)
        return found
