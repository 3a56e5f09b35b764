"""A scheduler that keeps vLLM's books, in vLLM's order, for decisions that it is told."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput
from vllm.v1.request import Request, RequestStatus


class Scheduler:
    def __init__(self, vllm_config: Any, kv_cache_config: Any, block_size: int, log_stats: bool = False) -> None:
        self.vllm_config = vllm_config
        self.scheduler_config = vllm_config.scheduler_config
        self.cache_config = vllm_config.cache_config
        self.kv_cache_config = kv_cache_config
        self.block_size = block_size
        self.max_num_running_reqs = self.scheduler_config.max_num_seqs
        self.max_num_scheduled_tokens = self.scheduler_config.max_num_batched_tokens
        self.max_model_len = vllm_config.model_config.max_model_len
        self.requests: dict[str, Request] = {}
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        pool = SimpleNamespace(get_num_free_blocks=self.free_blocks)
        self.kv_cache_manager = SimpleNamespace(block_pool=pool)
        self.told: deque[tuple[dict[str, int], list[str]]] = deque()
        """What the next steps run, and whom they preempt first."""

    def free_blocks(self) -> int:
        """Blocks that no running request needs; block 0 is reserved."""
        held = sum(-(-request.num_computed_tokens // self.block_size) for request in self.running)
        return int(self.kv_cache_config.num_blocks) - 1 - held

    def get_request_counts(self) -> tuple[int, int]:
        return len(self.running), len(self.waiting)

    def add_request(self, request: Request) -> None:
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def schedule(self) -> SchedulerOutput:
        tokens, preempted = self.told.popleft()
        for name in preempted:
            self.running.remove(self.requests[name])
            self._preempt_request(self.requests[name], 0.0)
        new, cached = [], []
        for name in tokens:
            request = self.requests[name]
            (new if request.status == RequestStatus.WAITING else cached).append(request)
            if request.status != RequestStatus.RUNNING:
                self.waiting.remove(request)
                self.running.append(request)
                request.status = RequestStatus.RUNNING
        output = SchedulerOutput(
            [NewRequestData(r.request_id, r.prompt_token_ids, r.num_computed_tokens) for r in new],
            CachedRequestData([r.request_id for r in cached], [r.num_computed_tokens for r in cached]),
            dict(tokens),
            sum(tokens.values()),
        )
        self._update_after_schedule(output)
        return output

    def _update_after_schedule(self, output: SchedulerOutput) -> None:
        for name, count in output.num_scheduled_tokens.items():
            request = self.requests[name]
            request.num_computed_tokens += count
            if request.num_computed_tokens >= request.num_tokens + request.num_output_placeholders:
                output.sampling.add(name)

    def _preempt_request(self, request: Request, timestamp: float) -> None:
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        request.num_output_placeholders = 0
        self.waiting.insert(0, request)

    def update_from_output(self, scheduler_output: SchedulerOutput, model_runner_output: Any) -> dict[int, Any]:
        for name in scheduler_output.num_scheduled_tokens:
            request = self.requests.get(name)
            if request is None or name not in scheduler_output.sampling:
                continue
            self._take_token(request)
            if request.num_output_tokens >= request.max_tokens:
                request.status = RequestStatus.FINISHED_LENGTH_CAPPED
                self.running.remove(request)
                self._free_request(request)
        return {}

    def _take_token(self, request: Request) -> None:
        request.num_output_tokens += 1

    def finish_requests(self, request_ids: str | Iterable[str], finished_status: RequestStatus) -> None:
        for name in [request_ids] if isinstance(request_ids, str) else request_ids:
            request = self.requests.get(name)
            if request is not None:
                (self.running if request in self.running else self.waiting).remove(request)
                request.status = finished_status
                self._free_request(request)

    def _free_request(self, request: Request, delay_free_blocks: bool = False) -> None:
        del self.requests[request.request_id]

    def shutdown(self) -> None:
        pass
