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
    from replay.engine.warm import warm_up

    if warm and not is_compiled():
        warm_up()
    return {
        "packages": str(next(iter(places.values()))),
        "engine": "compiled" if is_compiled() else "not compiled yet: the first run does, or replay doctor --warm",
        "engine cache": str(CACHE),
    }
