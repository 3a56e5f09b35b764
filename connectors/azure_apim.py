"""Azure API Management's logs of its AI gateway: GatewayLlmLogs (tokens), and GatewayLogs (outcomes) beside them.

https://learn.microsoft.com/azure/api-management/api-management-howto-llm-logs. As Azure Monitor exports them: with
`properties` of their own in a storage account or an event hub, in flat columns from Log Analytics. Traps: a long
request's messages are several records, counted by SequenceNumber, of which one has the tokens; what became of it stands
in the other log under the same CorrelationId. All records of a request are one row here, that of the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from connectors.base import Batch, Dropped
from connectors.http_log import GATEWAY_TIMEOUT, LEFT, address, failure, other_request, outcome
from connectors.json_values import decoded
from connectors.record_log import (
    Attempt,
    Record,
    RecordLog,
    Vocabulary,
    bytes_of,
    code_of,
    extras,
    first_record,
    plain,
    positive,
    scaled,
    text,
)

VOCABULARY = Vocabulary({
    "start": ("timegenerated", "timegeneratedutc", "time", "timestamp"),
    "id": ("correlationid",),
    "prompt": ("prompttokens",),
    "output": ("completiontokens",),
    "model": ("modelname",),
    "deployment": ("deploymentname",),
    "backend": ("backendid",),
    "stream": ("isstreamcompletion",),
    "code": ("responsecode",),
    "reason": ("lasterrorreason",),
    "duration": ("totaltime", "durationms"),
    "backend_time": ("backendtime",),
    "request_bytes": ("requestsize",),
    "response_bytes": ("responsesize",),
    "method": ("method",),
    "path": ("url",),
    "user": ("apimsubscriptionid", "userid"),
    "address": ("calleripaddress",),
})  # fmt: skip
LLM_KEYS, GATEWAY_KEYS = {"prompttokens", "completiontokens"}, {"responsecode", "apiid"}
REASONS = {"ClientConnectionFailure": LEFT, "Timeout": GATEWAY_TIMEOUT}
"""What API Management calls its failures, where the status code does not say it."""
HELD = 100_000
"""Requests whose records may still come: both logs write theirs within seconds of each other."""


LACKS = {
    "e2e_s": "no record says what became of a request nor how long it took: GatewayLogs do, in the same file",
    "prompt_tokens": "no record knows tokens: GatewayLlmLogs do, in the same file",
}


class AzureApim(RecordLog):
    name = "azure_apim"
    describes = "Azure API Management's LLM and gateway logs, JSON: times, models, tokens, outcomes"
    needed = ("arrival_s",)
    lacks: ClassVar = LACKS

    def sniff(self, head: bytes, path: str) -> float:
        first = first_record(head)
        found = self.unwrap(first)[:1] if first else []
        keys = {plain(key) for record in found for key in flat(record)}
        if "correlationid" not in keys:
            return 0.0
        return 1.0 if keys >= LLM_KEYS else 0.9 if keys >= GATEWAY_KEYS else 0.0

    def unwrap(self, record: Record) -> list[Record]:
        inner = record.get("records")
        return [item if isinstance(item, dict) else {} for item in inner] if isinstance(inner, list) else [record]

    def read(self, path: str) -> Iterator[Batch]:
        held: dict[str, tuple[int, Record]] = {}
        for found, rows, dropped in self.records(path):
            for record, row in zip(found, rows, strict=True):
                said = VOCABULARY.said(flat(record))
                key = text(said["id"]) or f"row {row}"
                first, known = held.get(key, (row, VOCABULARY.nothing))
                held[key] = first, {name: said[name] if known[name] is None else known[name] for name in said}
            yield self.settled(held, len(held) - HELD, dropped, path)
        yield self.settled(held, len(held), Dropped(), path)

    def settled(self, held: dict[str, tuple[int, Record]], count: int, dropped: Dropped, path: str) -> Batch:
        """The first `count` of the requests that are held."""
        keys = list(held)[: max(count, 0)]
        rows, found = [], []
        for key in keys:
            row, said = held.pop(key)
            rows.append(row)
            found.append(self.attempt(said))
        return self.batch(found, rows, dropped, path)

    def attempt(self, record: Record) -> Attempt | str:
        """The attempt that a request's records together say, by the names of `VOCABULARY`."""
        said = record
        if (other := other_request(said["method"], said["path"])) is not None:
            return other
        status, reason = REASONS.get(str(said["reason"])) or outcome(said["code"])
        prompt, output = positive(said["prompt"]), said["output"]
        return {
            "arrival_s": said["start"],
            "arrival_basis": "logged_start",
            "source_request_id": text(said["id"]),
            "status": status,
            "cancel_reason": reason,
            "http_status": code_of(said["code"]),
            "error_class": text(said["reason"]) or failure(said["code"], status),
            "prompt_tokens": prompt,
            "prompt_token_source": None if prompt is None else "server_usage",
            "output_tokens": positive(output) if status in ("ok", "unknown") else None,
            "received_tokens": output,
            "stream": said["stream"],
            "model": text(said["model"]),
            "deployment": text(said["deployment"]) or text(said["backend"]),
            "tenant": text(said["user"]) or address(said["address"]),
            "e2e_s": scaled(said["duration"], 0.001),
            "request_bytes": bytes_of(said["request_bytes"]),
            "response_bytes": bytes_of(said["response_bytes"]),
            "extra": extras(backend_s=scaled(said["backend_time"], 0.001)),
        }


def flat(record: Record) -> Record:
    """A record with its `properties`, which some exports write as a text, among its own keys."""
    inner = record.get("properties")
    inner = decoded(inner.encode("utf-8", "surrogatepass")) if isinstance(inner, str) else inner
    return record | inner if isinstance(inner, dict) else record
