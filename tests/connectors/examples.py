"""A small log of each format: where it is."""

from __future__ import annotations

from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures"
TRACES = FIXTURES / "traces"
TRACE_FORMATS = {
    "azure_2023.csv": "azure_llm", "azure_2024.csv": "azure_llm", "azure_2025.csv": "azure_llm",
    "burstgpt_1.csv": "burstgpt", "burstgpt_3.csv": "burstgpt", "mooncake.jsonl": "mooncake",
    "mooncake_sessions.jsonl": "mooncake", "qwen_bailian.jsonl": "qwen_bailian", "ragpulse.jsonl": "ragpulse",
    "splitwise.csv": "splitwise", "tracelab_sessions.csv": "tracelab", "tracelab_rounds.jsonl": "tracelab",
    "blis_tracev2.csv": "blis_tracev2", "dynamo_request_trace.jsonl": "dynamo_request_trace",
}  # fmt: skip
"""Format of each of `TRACES`, which have four rows each."""
WITH_BAD_ROWS = FIXTURES / "traps"
"""Logs that show their format's traps, rows that are no requests among them."""
FORMAT_OF = {
    **{path: path.name.split(".")[0] for path in sorted((FIXTURES / "logs").iterdir())},
    **{path: path.name.split(".")[0] for path in sorted(WITH_BAD_ROWS.iterdir())},
    **{TRACES / name: format for name, format in TRACE_FORMATS.items()},
    FIXTURES / "servegen" / "chunk-7-trace.csv": "servegen",
}
"""Format by example: those of logs and traps are called after theirs."""
