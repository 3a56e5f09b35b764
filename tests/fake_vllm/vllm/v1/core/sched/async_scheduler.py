"""The same with outputs that are scheduled before they are read."""

from __future__ import annotations

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request


class AsyncScheduler(Scheduler):
    def _update_after_schedule(self, output: SchedulerOutput) -> None:
        super()._update_after_schedule(output)
        for name in output.sampling:
            self.requests[name].num_output_placeholders += 1

    def _take_token(self, request: Request) -> None:
        super()._take_token(request)
        request.num_output_placeholders = max(request.num_output_placeholders - 1, 0)
