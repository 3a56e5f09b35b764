"""Until when a call can still be delivered: the last instant at which its client could be waiting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from replay.engine.intake import column, timeouts
from replay.engine.state import UNKNOWN, WHOLE
from replay.policies.knobs import Policy
from replay.policies.waits import longest_waits_s

Floats = npt.NDArray[np.float64]


def waits_s(calls: pa.Table, policy: Policy) -> Floats:
    """Seconds from the arrival of each call until its client gives up for good; infinity where it never does.

    All attempts time out after the longest waits between them. With a timeout for the first token, or between two, a
    client that has begun to receive waits on: such a call has no last instant, unless it is not streamed.
    """
    client = policy.client
    waits = timeouts(calls, client) * client.max_attempts + longest_waits_s(policy)
    if client.timeout_kind != "total":
        in_one_piece = column(calls, "stream", UNKNOWN, np.int8) == WHOLE
        waits = np.where(in_one_piece, waits, np.inf)
    return waits if client.deadline_s is None else np.minimum(waits, client.deadline_s)


def patience_s(calls: pa.Table, policies: Sequence[Policy]) -> Floats:
    """The same under the policy of `policies` whose clients wait longest, and not beyond its user's leaving."""
    longest = np.max([waits_s(calls, policy) for policy in policies], axis=0)
    patience: Floats = np.minimum(longest, column(calls, "user_cancel_s", np.inf, np.float64))
    return patience


def slo_s(calls: pa.Table, policies: Sequence[Policy], slo: float | None) -> Floats:
    """Seconds within which each call is on time: `slo`, else the longest timeout that a policy gives its client."""
    if slo is not None:
        return np.full(calls.num_rows, slo)
    longest: Floats = np.max([timeouts(calls, policy.client) for policy in policies], axis=0)
    return longest
