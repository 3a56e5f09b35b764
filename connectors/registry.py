"""The formats by name: built-ins and third-party connectors in one list, none imported before it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import msgspec

from connectors.base import Connector
from connectors.bystanders import known_as
from replay.settings import converted
from trace_schema.errors import BadConfig, BadInput, UnknownName

ENTRY_POINTS = "replay.connectors"
BUILT_IN = {
    "gateway": "connectors.gateway:Gateway",
    "azure_llm": "connectors.azure_llm:AzureLlm",
    "burstgpt": "connectors.burstgpt:BurstGpt",
    "mooncake": "connectors.mooncake:Mooncake",
    "qwen_bailian": "connectors.qwen_bailian:QwenBailian",
    "servegen": "connectors.servegen:ServeGen",
    "ragpulse": "connectors.ragpulse:RagPulse",
    "splitwise": "connectors.splitwise:Splitwise",
    "tracelab": "connectors.tracelab:TraceLab",
    "blis_tracev2": "connectors.blis_tracev2:BlisTraceV2",
    "dynamo_request_trace": "connectors.dynamo_request_trace:DynamoRequestTrace",
    "vllm_steps": "connectors.vllm_steps:VllmSteps",
    "nginx": "connectors.nginx:Nginx",
    "litellm": "connectors.litellm:LiteLlm",
    "otlp": "connectors.otlp:Otlp",
    "openinference": "connectors.openinference:OpenInference",
    "envoy": "connectors.envoy:Envoy",
    "envoy_ai_gateway": "connectors.envoy_ai_gateway:EnvoyAiGateway",
    "traefik": "connectors.traefik:Traefik",
    "kong": "connectors.kong:Kong",
    "azure_apim": "connectors.azure_apim:AzureApim",
    "bedrock": "connectors.bedrock:Bedrock",
    "helicone": "connectors.helicone:Helicone",
    "langfuse": "connectors.langfuse:Langfuse",
    "sagemaker": "connectors.sagemaker:SageMaker",
    "uvicorn": "connectors.uvicorn:Uvicorn",
    "vllm_log": "connectors.vllm_log:VllmLog",
    "sglang": "connectors.sglang:Sglang",
    "vllm_bench": "connectors.benchmarks.vllm_bench:VllmBench",
    "guidellm": "connectors.benchmarks.guidellm:GuideLlm",
    "aiperf": "connectors.benchmarks.aiperf:AiPerf",
    "inference_perf": "connectors.benchmarks.inference_perf:InferencePerf",
    "llmservingsim": "connectors.benchmarks.llmservingsim:LlmServingSim",
    "csv": "connectors.tabular:Csv",
    "parquet": "connectors.tabular:Parquet",
    "jsonl": "connectors.tabular:JsonLines",
}
MAPPED = ("csv", "parquet", "jsonl")
"""Formats whose columns the user may name."""
SURE = 0.5
"""Confidence from which a format is taken without asking."""


def names() -> list[str]:
    """All formats, in order of name."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def connector(
    name: str, mapping: Mapping[str, str] | None = None, options: Mapping[str, Any] | None = None
) -> Connector:
    """The connector called `name`; `options` are the fields of its record `Options`, if it has one.

    Raises UnknownName, and BadConfig for an option that it does not have.
    """
    factory = connector_class(name)
    refuse_misplaced(options or {}, getattr(factory, "Options", None))
    made: Connector
    if hasattr(factory, "Options"):
        made = factory(converted(options or {}, factory.Options, f"options of {name}"))
    elif mapping and name not in MAPPED:
        raise BadConfig(f"format {name} knows its own columns; --map is for {', '.join(MAPPED)}")
    elif options:
        raise BadConfig(f"format {name} has no options, such as {next(iter(options))!r}")
    else:
        made = factory(mapping) if name in MAPPED else factory()
    return made


def refuse_misplaced(options: Mapping[str, Any], kind: Any) -> None:
    """Raises BadConfig for an option of users that is given as one of a format, whose own are the fields of `kind`."""
    from connectors.synthetic.options import Users

    own = kind.__struct_fields__ if kind else ()
    for key in options:
        if key in Users.__struct_fields__ and key not in own:
            raise BadConfig(f"--option {key}: is no log's; lay users over a log with --synthetic {key}={options[key]}")


def connector_class(name: str) -> Any:
    """What makes the connector called `name`; hyphens are taken for underscores. Raises UnknownName."""
    if (built_in := name.replace("-", "_")) in BUILT_IN:
        module, attribute = BUILT_IN[built_in].split(":")
        return getattr(import_module(module), attribute)
    found = [point for point in entry_points(group=ENTRY_POINTS) if point.name == name]
    if not found:
        raise UnknownName.of("format", name, names())
    try:
        return found[0].load()
    except Exception as error:
        package = found[0].dist.name if found[0].dist else "a package"
        raise BadConfig(
            f"format {name}, which {package} registers, cannot be loaded ({type(error).__name__}: {error}); "
            f"mend or uninstall {package}"
        ) from error


def options_of(name: str) -> dict[str, Any]:
    """The options of the format called `name`, and what they are unless they are given. Raises UnknownName."""
    kind = getattr(connector_class(name), "Options", None)
    return msgspec.to_builtins(kind()) if kind else {}


def guess(
    head: bytes, path: str, mapping: Mapping[str, str] | None = None, options: Mapping[str, Any] | None = None
) -> tuple[Connector, float]:
    """The connector that knows a file by its first bytes, and how sure it is.

    Raises BadInput when none does, and BadConfig when it does not have the `options`.
    """
    if not head:
        raise BadInput.at(path, "the file is empty")
    candidates = MAPPED if mapping else names()
    confidence, best = surest(head, path, (connector(name, mapping) for name in candidates))
    if confidence < SURE and (what := known_as(head)) is not None:
        raise BadInput.at(path, what)
    if confidence < SURE:
        looks = f"it looks most like {best.name}" if confidence > 0 else "it looks like none of them"
        raise BadInput.at(
            path,
            f"unknown format; formats are {', '.join(names())}, {looks}. "
            "Name one with --format, or name its columns with --map field=column",
        )
    return connector(best.name, mapping, options) if options else best, confidence


def surest(head: bytes, path: str, candidates: Iterable[Connector]) -> tuple[float, Connector]:
    """(how sure it is, the candidate that is the surest), the first of those that are equally so."""
    rated = []
    for candidate in candidates:
        rated.append((candidate.sniff(head, path), candidate))
        if rated[-1][0] >= 1.0:
            break
    return max(rated, key=lambda pair: pair[0])


def looks_otherwise(head: bytes, path: str, format: str) -> str:
    """What to add to a refusal of a file that was said to be of a format and looks like another; else nothing."""
    confidence, best = surest(head, path, map(connector, names()))
    if confidence >= SURE:
        return "" if best.name == format else f"; it looks like {best.name} (--format {best.name})"
    what = known_as(head)
    return f"; it {what}" if what else ""
