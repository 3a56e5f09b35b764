"""Azure's public traces of LLM inference: 2023 and 2024 (LLM), 2025 (multimodal).

Splitwise (ISCA 2024), DynamoLLM (HPCA 2025) and ModServe (SoCC 2025); https://github.com/Azure/AzurePublicDataset.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from connectors.tabular import NamedCsv


class AzureLlm(NamedCsv):
    name = "azure_llm"
    describes = "Azure's public LLM traces of 2023, 2024 and 2025 (multimodal), CSV: times and lengths"
    needed: ClassVar = {"arrival_s": "TIMESTAMP", "prompt_tokens": "ContextTokens", "output_tokens": "GeneratedTokens"}
    optional: ClassVar = {"extra": "NumImages"}

    def columns(self, found: dict[str, pa.Array]) -> dict[str, pa.Array]:
        if "extra" in found:
            found["extra"] = labelled("num_images", found["extra"])
        return found


def labelled(key: str, values: pa.Array) -> pa.Array:
    """A map of one key for each value."""
    count = len(values)
    return pa.MapArray.from_arrays(np.arange(count + 1, dtype=np.int32), pa.repeat(key, count), values)
