"""Synthetic traffic: arrival processes, length laws, users who leave, the named workloads. Seeded, and drawn by numpy.

>>> from connectors import synthetic
>>> table = synthetic.calls("overload", seed=3)
>>> table.num_rows
6000
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from connectors.synthetic.traffic import Made, make
from connectors.synthetic.users import Added, overlay
from connectors.synthetic.workloads import WORKLOADS, Workload, workload

__all__ = ["WORKLOADS", "Added", "Made", "Workload", "calls", "make", "overlay", "workload"]


def calls(name: str = "poisson", **options: Any) -> pa.Table:
    """The calls (schema CALLS) of a named workload, with `options` in the place of its own; see docs/synthetic.md.

    A pure function: equal arguments give equal tables. Raises UnknownName and BadConfig.
    """
    return make(name, options).calls
