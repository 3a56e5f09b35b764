"""The first compiled call of a process, before anybody waits for a result."""

from __future__ import annotations

import pyarrow as pa

from replay.engine.simulate import simulate
from replay.policies.knobs import Policy
from replay.profiles.profile import EngineSettings, Profile, StepTime


def warm_up() -> None:
    """Run one call through the engine: reads its compiled code from the cache, or compiles it there."""
    one = {"call_id": [0], "content_id": [0], "arrival_s": [0.0], "prompt_tokens": [1], "output_tokens": [1]}
    step_time = StepTime(knots_tokens=(1,), knots_s=(0.001,))
    profile = Profile(name="warm", engine=EngineSettings(num_blocks=64), step_time=step_time)
    simulate(pa.table(one), Policy(name="warm"), profile)
