"""Synthetic traffic: arrival processes, length laws, users who leave, the named workloads. Seeded, and drawn by numpy.

>>> from connectors import synthetic
>>> table = synthetic.calls("overload", seed=3)
>>> table.num_rows
6000
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from connectors.synthetic.options import Overlay, Scale, Traffic, Users, explained
from connectors.synthetic.scaling import scaled_trace
from connectors.synthetic.traffic import Made, make
from connectors.synthetic.users import Added, lay_over
from connectors.synthetic.workloads import WORKLOADS, Workload, workload

__all__ = [
    "WORKLOADS",
    "Added",
    "Made",
    "Overlay",
    "Scale",
    "Traffic",
    "Users",
    "Workload",
    "about",
    "calls",
    "explained",
    "lay_over",
    "make",
    "scaled_trace",
    "workload",
]


def calls(name: str = "poisson", **options: Any) -> pa.Table:
    """The calls (schema CALLS) of a named workload, with `options` in the place of its own; see docs/synthetic.md.

    A pure function: equal arguments give equal tables. Raises UnknownName and BadConfig.
    """
    return make(name, options).calls


def about() -> dict[str, Any]:
    """What there is to ask for: workloads, options and their sentences; for `replay formats`."""
    users = {key: sentence for key, _, sentence in explained(Users)}
    return {
        "describes": "no log: synthetic:WORKLOAD in a file's place makes calls (replay formats show synthetic)",
        "workloads": {name: one.summary for name, one in WORKLOADS.items()},
        "users": users,
        "traffic": {key: sentence for key, _, sentence in explained(Traffic) if key not in users},
        "scale": {key: sentence for key, _, sentence in explained(Scale)},
        "options": {key: default if default is None else str(default) for key, default, _ in explained(Traffic)},
    }
