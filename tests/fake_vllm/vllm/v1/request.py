"""Requests with the attributes that vLLM's have."""

from __future__ import annotations

import enum
from types import SimpleNamespace


class RequestStatus(enum.IntEnum):
    WAITING = enum.auto()
    RUNNING = enum.auto()
    PREEMPTED = enum.auto()
    FINISHED_STOPPED = enum.auto()
    FINISHED_LENGTH_CAPPED = enum.auto()
    FINISHED_ABORTED = enum.auto()


class Request:
    def __init__(
        self, request_id: str, prompt: int, max_tokens: int, priority: int, arrival_time: float, stop: list[str]
    ) -> None:
        self.request_id = request_id
        self.prompt_token_ids = [7] * prompt
        self.num_prompt_tokens = prompt
        self.max_tokens = max_tokens
        self.priority = priority
        self.arrival_time = arrival_time
        self.sampling_params = SimpleNamespace(stop=stop, max_tokens=max_tokens)
        self.status = RequestStatus.WAITING
        self.num_computed_tokens = 0
        self.num_output_tokens = 0
        self.num_output_placeholders = 0

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens
