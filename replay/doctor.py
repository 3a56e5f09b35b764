"""Is this installation in order?"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from replay.errors import RunFailed

PACKAGES = ("replay", "trace_schema", "connectors", "queries")


def examine(*, warm: bool = False) -> dict[str, str]:
    """What there is to know of the installation. Raises RunFailed when the packages come from different places."""
    places = {}
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise RunFailed(f"the package {name} is missing; install llm-traffic-replay again")
        places[name] = Path(spec.origin).parent.parent
    if len(set(places.values())) > 1:
        where = ", ".join(f"{name} from {place}" for name, place in places.items())
        raise RunFailed(f"the packages come from different places: {where}; another package shadows one of them")
    from replay.engine.kernel import CACHE, is_compiled

    if warm and not is_compiled():
        compile_engine()
    return {
        "packages": str(next(iter(places.values()))),
        "engine": "compiled" if is_compiled() else "not compiled yet: the first run does, or replay doctor --warm",
        "engine cache": str(CACHE),
    }


def compile_engine() -> None:
    """Compile the engine by running one call through it."""
    import pyarrow as pa

    from replay.engine import simulate
    from replay.policies.knobs import Policy
    from replay.profiles.profile import EngineSettings, Profile, StepTime

    one = {"call_id": [0], "content_id": [0], "arrival_s": [0.0], "prompt_tokens": [1], "output_tokens": [1]}
    step_time = StepTime(knots_tokens=(1,), knots_s=(0.001,))
    profile = Profile(name="warm", engine=EngineSettings(num_blocks=64), step_time=step_time)
    simulate(pa.table(one), Policy(name="warm"), profile)
