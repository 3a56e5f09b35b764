"""What a SageMaker endpoint captured of its invocations (data capture), JSON lines.

https://docs.aws.amazon.com/sagemaker/latest/dg/model-monitor-data-capture-endpoint.html. Traps: times are whole
seconds, and say when an inference was made, not how long it took; request and response are texts or base64 in the line;
what they hold is the container's own: usage as OpenAI's API has it, or the details of Text Generation Inference.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, ClassVar

import msgspec

from connectors.bodies import keyed_hash
from connectors.files import UNDECODABLE
from connectors.record_log import Attempt, Record, RecordLog, amount, first_record, positive, text, within

PROMPT = (("usage", "prompt_tokens"), ("usage", "input_tokens"), ("details", "prompt_tokens"))
OUTPUT = (("usage", "completion_tokens"), ("usage", "output_tokens"), ("details", "generated_tokens"))
LIMITS = (("max_tokens",), ("max_completion_tokens",), ("parameters", "max_new_tokens"), ("max_new_tokens",))
CACHED = ("usage", "prompt_tokens_details", "cached_tokens")


LACKS = {
    "prompt_tokens": "no response has usage: give --bytes-per-token, or let the container return it",
    "e2e_s": "data capture does not say how long a request took, nor whose client left",
}


class SageMaker(RecordLog):
    name = "sagemaker"
    describes = (
        "data capture of a SageMaker endpoint, JSON lines: times to the second, tokens where responses have usage"
    )
    needed = ("arrival_s",)
    lacks: ClassVar = LACKS

    def sniff(self, head: bytes, path: str) -> float:
        first = first_record(head) or {}
        return 1.0 if isinstance(first.get("captureData"), dict) and "eventMetadata" in first else 0.0

    def attempt(self, record: Record) -> Attempt | str:
        asked, answered = (captured(record, side) for side in ("endpointInput", "endpointOutput"))
        if asked is None and answered is None:
            return "captured neither a request nor a response"
        request, response = content(asked), content(answered)
        meta = record.get("eventMetadata")
        prompt, output = first_of(response, PROMPT), first_of(response, OUTPUT)
        failed = within(response, "error") is not None
        status = "error" if failed else "unknown" if answered is None else "ok"
        return {
            "arrival_s": within(meta, "inferenceTime"),
            "arrival_basis": "logged_start",
            "time_resolution_s": 1.0,
            "source_request_id": text(within(meta, "inferenceId")) or text(within(meta, "eventId")),
            "status": status,
            "model": text(within(request, "model")) or text(within(response, "model")),
            "stream": within(request, "stream") if isinstance(within(request, "stream"), bool) else None,
            "prompt_tokens": positive(prompt),
            "prompt_token_source": None if positive(prompt) is None else "server_usage",
            "cached_prompt_tokens": within(response, *CACHED),
            "output_tokens": positive(output) if status == "ok" else None,
            "received_tokens": output,
            "max_tokens": next((n for keys in LIMITS if (n := amount(within(request, *keys)))), None),
            "body_hash": None if asked is None else keyed_hash(asked),
            "request_bytes": None if asked is None else len(asked),
            "response_bytes": None if answered is None else len(answered),
        }


def captured(record: Record, side: str) -> bytes | None:
    """The bytes of a request or a response."""
    part = within(record, "captureData", side)
    data = within(part, "data")
    if not isinstance(data, str):
        return None
    if within(part, "encoding") == "BASE64":
        try:
            return base64.b64decode(data)
        except (binascii.Error, ValueError):
            return None
    return data.encode("utf-8", "surrogatepass")


def content(body: bytes | None) -> Any:
    """What a body says, if it is JSON; of Text Generation Inference's array, its first item."""
    if body is None:
        return None
    try:
        found = msgspec.json.decode(body)
    except UNDECODABLE:
        return None
    return found[0] if isinstance(found, list) and found else found


def first_of(record: Any, places: tuple[tuple[str, ...], ...]) -> Any:
    """The first value in `places` that is there."""
    return next((found for keys in places if (found := within(record, *keys)) is not None), None)
