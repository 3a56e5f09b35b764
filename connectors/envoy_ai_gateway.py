"""The access log of Envoy AI Gateway: Envoy's, with the model and the tokens of each request.

https://aigateway.envoyproxy.io/docs/capabilities/observability/accesslogs. The keys are the operator's own; those of
the documentation are known, in its older (`genai_tokens_input`) and newer (`gen_ai.usage.input_tokens`) spelling.
Traps: tokens are null where no response was read to its end; requests of MCP stand in the same log.
"""

from __future__ import annotations

from typing import Any

from connectors.envoy import NAMES, Envoy, envoy_keys
from connectors.record_log import Attempt, Vocabulary, extras, first_record, positive, text

AI_NAMES = {
    "input": ("genaiusageinputtokens", "genaitokensinput", "genaiinputtokens", "llminputtoken"),
    "output": ("genaiusageoutputtokens", "genaitokensoutput", "genaioutputtokens", "llmoutputtoken"),
    "cached": ("genaiusagecachereadinputtokens", "genaiusagecachedinputtokens",
               "genaitokenscachedinput", "llmcachedinputtoken"),
    "model": ("genairequestmodel", "genaimodelname", "xaiegmodel"),
    "override": ("genairequestmodeloverride", "genaimodelnameoverride", "genairesponsemodel"),
    "provider": ("genaiprovidername", "genaibackendname"),
    "conversation": ("genaiconversationid",),
    "mcp": ("mcpmethodname", "mcpmethod", "mcpprovidername", "mcpbackend"),
}  # fmt: skip
"""What the AI gateway adds to `envoy.NAMES`."""


class EnvoyAiGateway(Envoy):
    name = "envoy_ai_gateway"
    describes = "access log of Envoy AI Gateway, JSON: times, outcomes, models, tokens"
    vocabulary = Vocabulary(NAMES | AI_NAMES)

    def sniff(self, head: bytes, path: str) -> float:
        sure, ai = envoy_keys(first_record(head))
        return 1.0 if ai and sure else 0.0

    def of_names(self, said: dict[str, Any]) -> Attempt | str:
        if said["mcp"] is not None:
            return "not a request for text (mcp)"
        found = super().of_names(said)
        if isinstance(found, str):
            return found
        whole = found["status"] == "ok"
        return found | {
            "prompt_tokens": positive(said["input"]),
            "output_tokens": positive(said["output"]) if whole else None,
            "prompt_token_source": "server_usage" if positive(said["input"]) is not None else None,
            "received_tokens": said["output"],
            "cached_prompt_tokens": said["cached"],
            "model": text(said["model"]),
            "deployment": text(said["provider"]) or found["deployment"],
            "session_id": text(said["conversation"]) or found["session_id"],
            "extra": [*(found["extra"] or []), *(extras(model_override=said["override"]) or [])] or None,
        }
