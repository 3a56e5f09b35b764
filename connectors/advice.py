"""What a log cannot show for want of a field, and the setting that would write it."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa


def lacking(attempts: pa.Table, sentences: Mapping[str, str]) -> list[str]:
    """The sentence of each field of ATTEMPTS that no attempt has."""
    return [said for field, said in sentences.items() if attempts[field].null_count == attempts.num_rows]
