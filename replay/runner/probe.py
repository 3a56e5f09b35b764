"""Asks a Ray cluster what it has; a script of its own, see `replay.runner.session.probed`. Imports nothing of ours."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

TIMEOUT_S = 40.0


def ask(address: str) -> dict[str, Any]:
    """`cpus` of the cluster, and the `digest` of our engine there: None where this package is not installed."""
    import ray

    def digest() -> str | None:
        # Sent as it stands, since the cluster may not have this module.
        try:
            from replay.engine.kernel import source_digest
        except ImportError:
            return None
        return source_digest()

    ray.init(address=address, logging_level=logging.CRITICAL, log_to_driver=False)
    resources: Any = ray.cluster_resources
    there = ray.get(ray.remote(num_cpus=0)(digest).remote(), timeout=TIMEOUT_S)
    return {"cpus": int(resources().get("CPU", 0)), "digest": there}


if __name__ == "__main__":
    try:
        found = ask(sys.argv[1])
    except Exception as error:
        found = {"error": str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__}
    print(json.dumps(found))
