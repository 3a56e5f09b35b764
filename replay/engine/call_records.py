"""The records of calls that a run reads and writes, from the columns of a trace: one pass over them."""

from __future__ import annotations

from typing import Any, NamedTuple

from replay.engine.kernel import entry
from replay.engine.state import INFINITY, LIVE, NONE, TOO_LONG, UNKNOWN


class CallInputs(NamedTuple):
    """Columns of a trace. Those that it does not have are empty."""

    arrival_s: Any
    prompt_tokens: Any
    output_tokens: Any
    stream: Any


@entry
def write_records(inputs: CallInputs, longest: int, block_tokens: int, blocks: int, to: Any) -> None:
    """A record for each call.

    One with more than `longest` tokens, or with more than `blocks` blocks of `block_tokens`, cannot be served.
    """
    for c in range(len(to)):
        call = to[c]
        prompt = inputs.prompt_tokens[c]
        output = max(min(inputs.output_tokens[c], max(longest - prompt, 1)), 1)
        call.arrival = inputs.arrival_s[c]
        call.prompt = prompt
        call.output = output
        call.stream = inputs.stream[c] if len(inputs.stream) > 0 else UNKNOWN
        call.end = INFINITY
        call.first_token = INFINITY
        call.attempt = NONE
        call.delivered_by = NONE
        needed = (min(prompt + inputs.output_tokens[c], longest) - 1 + block_tokens - 1) // block_tokens
        call.status = TOO_LONG if prompt + 1 > longest or needed > blocks else LIVE
