"""Amazon Bedrock's model invocation log, from S3 (gzipped JSON) or CloudWatch (its own JSON around each record).

https://docs.aws.amazon.com/bedrock/latest/userguide/model-invocation-logging.html. Traps: times are whole seconds;
`inputTokenCount` leaves out what was read from the prompt cache or written to it; latencies stand in the response's
body, and only where bodies are logged.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from connectors.bodies import keyed_hash
from connectors.files import UNDECODABLE
from connectors.record_log import (
    Attempt,
    Record,
    RecordLog,
    amount,
    first_record,
    number,
    positive,
    scaled,
    text,
    within,
)

SCHEMA = "ModelInvocationLog"
STATUS_OF = {
    "ThrottlingException": "rejected", "ServiceQuotaExceededException": "rejected",
    "ServiceUnavailableException": "rejected", "ModelNotReadyException": "rejected", "ModelTimeoutException": "timeout",
}  # fmt: skip
"""By error code; other errors are `error`."""
LIMITS = (("inferenceConfig", "maxTokens"), ("max_tokens",), ("max_completion_tokens",), ("max_gen_len",),
          ("max_tokens_to_sample",), ("textGenerationConfig", "maxTokenCount"))  # fmt: skip
"""Where the families of models have the output limit in a request."""


LACKS = {
    "e2e_s": "no record says how long its request took: Bedrock writes that into bodies, which it logs when told to "
    "(textDataDeliveryEnabled)",
}


class Bedrock(RecordLog):
    name = "bedrock"
    describes = "Amazon Bedrock's model invocation log, JSON: times to the second, models, tokens, errors"
    needed = ("arrival_s",)
    lacks: ClassVar = LACKS

    def sniff(self, head: bytes, path: str) -> float:
        first = first_record(head)
        found = self.unwrap(first)[:1] if first else []
        return 1.0 if any(is_invocation(record) for record in found) else 0.0

    def unwrap(self, record: Record) -> list[Record]:
        if is_invocation(record):
            return [record]
        if isinstance(events := record.get("events"), list):
            return [of_cloudwatch(event) or {} for event in events]
        return [of_cloudwatch(record) or record]

    def attempt(self, record: Record) -> Attempt | str:
        if not is_invocation(record):
            return f"not a record of a {SCHEMA}"
        asked, answered = record.get("input"), record.get("output")
        error = text(record.get("errorCode"))
        status = "ok" if error is None else STATUS_OF.get(error.rpartition(".")[2], "error")
        prompt, cached = prompt_of(asked)
        output = within(answered, "outputTokenCount")
        measured = measurements(within(answered, "outputBodyJson"))
        body = within(asked, "inputBodyJson")
        operation = text(record.get("operation")) or ""
        return {
            "arrival_s": record.get("timestamp"),
            "arrival_basis": "logged_start",
            "time_resolution_s": 1.0,
            "source_request_id": text(record.get("requestId")),
            "model": text(record.get("modelId")),
            "deployment": text(record.get("inferenceRegion")) or text(record.get("region")),
            "tenant": text(within(record, "identity", "arn")),
            "stream": "Stream" in operation if operation else None,
            "status": status,
            "error_class": error,
            "prompt_tokens": prompt,
            "prompt_token_source": None if prompt is None else "server_usage",
            "cached_prompt_tokens": cached,
            "output_tokens": positive(output) if status == "ok" else None,
            "received_tokens": output,
            "max_tokens": next((n for keys in LIMITS if (n := amount(within(body, *keys)))), None),
            "body_hash": None if body is None else keyed_hash(msgspec.json.encode(body)),
            "e2e_s": scaled(measured.get("latency"), 0.001),
            "ttft_s": scaled(measured.get("first"), 0.001),
        }


def is_invocation(record: Any) -> bool:
    return within(record, "schemaType") == SCHEMA or (
        within(record, "modelId") is not None and within(record, "operation") is not None
    )


def of_cloudwatch(event: Any) -> Record | None:
    """The record in a CloudWatch event, or in a row of Logs Insights."""
    message = within(event, "message") or within(event, "@message")
    if isinstance(message, str):
        try:
            message = msgspec.json.decode(message)
        except UNDECODABLE:
            return None
    return message if isinstance(message, dict) else None


def prompt_of(asked: Any) -> tuple[Any, Any]:
    """(prompt tokens with those of the cache, those read from it)."""
    fresh = within(asked, "inputTokenCount")
    read, written = within(asked, "cacheReadInputTokenCount"), within(asked, "cacheWriteInputTokenCount")
    if number(fresh) is None or (read is None and written is None):
        return positive(fresh), read
    return positive((number(fresh) or 0) + (number(read) or 0) + (number(written) or 0)), read


def measurements(body: Any) -> dict[str, Any]:
    """Latencies in a response's body, in milliseconds; of a stream, in its last events."""
    for part in reversed(body if isinstance(body, list) else [body]):
        whole = within(part, "metrics", "latencyMs") or within(part, "metadata", "metrics", "latencyMs")
        invoked = within(part, "amazon-bedrock-invocationMetrics")
        if whole is not None or isinstance(invoked, dict):
            latency = whole if whole is not None else within(invoked, "invocationLatency")
            return {"latency": amount(latency), "first": amount(within(invoked, "firstByteLatency"))}
    return {}
