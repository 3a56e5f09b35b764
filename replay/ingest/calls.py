"""From attempts to calls, by the cheapest way that says the same."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from replay.errors import BadInput
from replay.ingest.report import FileReport
from trace_schema.alone import calls_alone, stand_alone
from trace_schema.columns import is_empty
from trace_schema.fold import FoldAccount, Folded, JoinRules, ObservedClient, fold


def calls_of(
    attempts: pa.Table,
    files: Sequence[FileReport],
    rules: JoinRules,
    bytes_per_token: float | None,
    *,
    keep_attempts: bool = False,
) -> tuple[pa.Table, ObservedClient, FoldAccount, pa.Table | None]:
    """(calls, what is known of the clients, how it was done, the attempts with their calls where they are kept).

    Raises BadInput when nothing has a length.
    """
    if not keep_attempts and not attempts["prompt_tokens"].null_count and stand_alone(attempts):
        account = FoldAccount(retry_window_s=rules.retry_window_s, inferred=rules.infer)
        return calls_alone(attempts), ObservedClient(), account, None
    folded = fold(attempts, rules, bytes_per_token, keep_attempts=keep_attempts)
    if folded.calls.num_rows == 0:
        raise BadInput("\n".join(little_known(attempts, folded, files)))
    return folded.calls, folded.client, folded.account, folded.attempts


def little_known(attempts: pa.Table, folded: Folded, files: Sequence[FileReport]) -> list[str]:
    """What logs without any length say, what they cannot, and what would make them better."""
    counts = pc.value_counts(attempts["status"]).to_pylist()
    ended = ", ".join(f"{c['counts']:,} {c['values']}" for c in sorted(counts, key=lambda c: -c["counts"]))
    span = pc.max(attempts["arrival_s"]).as_py() - pc.min(attempts["arrival_s"]).as_py()
    measured = "" if is_empty(attempts["request_bytes"]) else ", or estimate them with --bytes-per-token 4"
    notes = [f"  {file.path}: {note}" for file in files for note in file.notes]
    left = folded.account.departures
    gone = f"; {left.untold:,} whose client went away, and nothing says why" if left.untold else ""
    paths = ", ".join(file.path for file in files)
    return [
        f"{paths}: none of {attempts.num_rows:,} attempts says how long its prompt was; read them with a log of the "
        f"engine that served them (--with vllm.steps.jsonl){measured}",
        f"  known: {attempts.num_rows:,} attempts in {span:,.0f} s: {ended}{gone}",
        *notes,
    ]
