"""From attempts to calls, by the cheapest way that says the same."""

from __future__ import annotations

import pyarrow as pa

from replay.errors import BadInput
from trace_schema.alone import calls_alone, stand_alone
from trace_schema.columns import is_empty
from trace_schema.fold import FoldAccount, JoinRules, ObservedClient, fold


def calls_of(
    attempts: pa.Table, rules: JoinRules, bytes_per_token: float | None
) -> tuple[pa.Table, ObservedClient, FoldAccount]:
    """(calls, what is known of the clients, how it was done). Raises BadInput when nothing has a length."""
    if not attempts["prompt_tokens"].null_count and stand_alone(attempts):
        account = FoldAccount(retry_window_s=rules.retry_window_s, inferred=rules.infer)
        return calls_alone(attempts), ObservedClient(), account
    folded = fold(attempts, rules, bytes_per_token)
    if folded.calls.num_rows == 0:
        measured = "" if is_empty(attempts["request_bytes"]) else ", or estimate them with --bytes-per-token 4"
        raise BadInput(
            f"none of {attempts.num_rows:,} attempts says how long its prompt was: read the log with one of the engine "
            f"that served it (--with vllm.steps.jsonl){measured}"
        )
    return folded.calls, folded.client, folded.account
