"""Users and their clients: who leaves and when, how long a client waits. Laid over any calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connectors.synthetic.draws import Floats, stream
from connectors.synthetic.laws import Exponential
from connectors.synthetic.options import Overlay, Users, read, written
from trace_schema.calls import CALLS
from trace_schema.errors import BadConfig
from trace_schema.fold import ObservedClient

LEAVES = Exponential(10.0)
"""When users leave, where only their share is given. A guess: the public traces show no user who leaves."""


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace holds that nobody observed: made from options and a seed."""

    workload: str | None
    """The named workload that made all of it; null: users were laid over a log."""
    options: dict[str, Any]
    """The options from which it is made again."""
    says: list[str]
    """The same in words."""
    max_attempts: int | None = None
    """Attempts of a call, where the options say it; the clients' timeout is on each call."""
    scales: list[dict[str, Any]] = []
    """How the log was made busier or longer, one time after the other."""

    @property
    def seed(self) -> int:
        """The seed of what was made first."""
        made = [self.options, *self.scales] if self.options else self.scales
        return int(made[0].get("seed", 0)) if made else 0

    @property
    def what(self) -> str:
        """What is synthetic, in a few words."""
        if self.workload is not None:
            return f"workload {self.workload}"
        made = ["users"] if self.options else []
        return " and ".join([*made, *(["scale"] if self.scales else [])])


def leaving(users: Users, calls: pa.Table) -> Floats:
    """When the user of each call leaves, in seconds from its arrival; infinity where he stays."""
    n = calls.num_rows
    leaves = np.full(n, np.inf)
    if users.user_cancel_rate > 0.0 and users.user_cancel_tokens is None:
        leaves = np.where(who_leaves(users, n), leaving_times(users, calls), leaves)
    if users.patience_s is not None:
        leaves = np.minimum(leaves, users.patience_s.draw(stream(users.seed, "patience"), n))
    if users.disconnect_every_s is not None:
        arrival = np.asarray(calls["arrival_s"])
        wait = (np.floor(arrival / users.disconnect_every_s) + 1.0) * users.disconnect_every_s - arrival
        chosen = stream(users.seed, "disconnects").random(n) < users.disconnect_share
        leaves = np.where(chosen & (wait <= users.disconnect_window_s), np.minimum(leaves, wait), leaves)
    return np.maximum(leaves, 0.0)


def who_leaves(users: Users, n: int) -> npt.NDArray[np.bool_]:
    """Whose users are those of `user_cancel_rate`."""
    return stream(users.seed, "who leaves").random(n) < users.user_cancel_rate


def leaving_times(users: Users, calls: pa.Table) -> Floats:
    """When each user would leave, were he one who does."""
    random = stream(users.seed, "when they leave")
    if users.user_cancel_share is None:
        return (users.user_cancel_s or LEAVES).draw(random, calls.num_rows)
    read = np.minimum(users.user_cancel_share.draw(random, calls.num_rows), 1.0)
    output = np.asarray(calls["output_tokens"], dtype=np.float64)
    return users.first_token_s + users.token_s * read * output


def leaving_tokens(users: Users, calls: pa.Table, streamed: pa.ChunkedArray | pa.Array) -> pa.Array:
    """With how many tokens of a stream users leave; null where they stay, or where nothing is streamed."""
    assert users.user_cancel_tokens is not None
    tokens = users.user_cancel_tokens.draw(stream(users.seed, "when they leave"), calls.num_rows)
    at_once = ~np.asarray(pc.fill_null(streamed, True))
    return pa.array(
        np.maximum(np.rint(tokens), 1.0).astype(np.int64), mask=~who_leaves(users, calls.num_rows) | at_once
    )


def columns(users: Users, calls: pa.Table) -> dict[str, pa.Array]:
    """The columns of CALLS that users decide, where the options say something of them."""
    n = calls.num_rows
    made: dict[str, pa.Array] = {}
    if users.stream_share is not None:
        made["stream"] = pa.array(stream(users.seed, "streams").random(n) < users.stream_share)
    if leave(users):
        leaves = leaving(users, calls)
        stays = np.isinf(leaves)
        made["user_cancel_s"] = pa.array(leaves, mask=stays)
        if users.user_cancel_tokens is not None and users.user_cancel_rate > 0.0:
            made["user_cancel_tokens"] = leaving_tokens(users, calls, made.get("stream", calls["stream"]))
            stays &= np.asarray(made["user_cancel_tokens"].is_null())
        made["patience_censored"] = pa.array(np.asarray(calls["patience_censored"]) & stays)
    if users.client_timeout_s is not None:
        made["client_timeout_s"] = pa.repeat(users.client_timeout_s, n)
    return made


def leave(users: Users) -> bool:
    """Whether users may leave."""
    return users.user_cancel_rate > 0.0 or users.patience_s is not None or users.disconnect_every_s is not None


def lay_over(calls: pa.Table, client: ObservedClient, given: Mapping[str, Any]) -> tuple[pa.Table, Added]:
    """(`calls` with users laid over them, what was added); `client` is what the log shows of its clients.

    Raises BadConfig for options that cannot be, when nothing would be added, or when the log shows it already.
    """
    options = read(given, Overlay, "synthetic")
    made = columns(options, calls)
    if not made and options.max_attempts is None:
        raise BadConfig(
            "synthetic: nothing is added: give user_cancel_rate, patience_s, disconnect_every_s, client_timeout_s, "
            "max_attempts or stream_share"
        )
    if not options.replace:
        refuse_observed(calls, client, options, made)
    calls = put(calls, made)
    return calls, added(None, options, calls)


def put(calls: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """The calls with `columns` in the place of their own."""
    for name, column in columns.items():
        place = calls.column_names.index(name)
        calls = calls.set_column(place, CALLS.arrow.field(name), column.cast(CALLS.field(name).type))
    return calls


def refuse_observed(calls: pa.Table, client: ObservedClient, options: Overlay, made: dict[str, pa.Array]) -> None:
    """Raises BadConfig when the log shows already what the options add."""
    n = {name: calls.num_rows - calls[name].null_count for name in ("user_cancel_s", "client_timeout_s", "stream")}
    shown = (
        ("user_cancel_s" in made and n["user_cancel_s"], f"{n['user_cancel_s']:,} users who leave"),
        ("client_timeout_s" in made and n["client_timeout_s"], "how long its clients wait"),
        ("client_timeout_s" in made and client.timeouts, f"{client.timeouts:,} timeouts"),
        (options.max_attempts is not None and client.retries, f"{client.retries:,} retries"),
        ("stream" in made and n["stream"], f"which of {n['stream']:,} responses were streamed"),
    )
    for both, what in shown:
        if both:
            raise BadConfig(
                f"synthetic: the log shows {what} already; leave that out, or put replace=true beside it "
                "to have the synthetic in its place"
            )


def added(workload: str | None, options: Users, calls: pa.Table, says: Sequence[str] = ()) -> Added:
    """What `options` made of `calls`; `says` is what they say of other things than users."""
    return Added(
        workload=workload,
        options=written(options),
        says=[*says, *sentences(options, calls)],
        max_attempts=options.max_attempts,
    )


def sentences(users: Users, calls: pa.Table) -> list[str]:
    """What the options say of users and clients, and how many users it makes leave."""
    said = []
    if users.user_cancel_rate > 0.0:
        said.append(f"{percent(users.user_cancel_rate)} of the users leave, {when(users)}")
    if users.disconnect_every_s is not None:
        said.append(
            f"every {users.disconnect_every_s:g} s, {percent(users.disconnect_share)} of those who asked in the last "
            f"{users.disconnect_window_s:g} s lose their connection"
        )
    if users.patience_s is not None:
        said.append(f"every user leaves without a whole response after {users.patience_s} s")
    if said:
        count = pc.sum(pc.or_(calls["user_cancel_s"].is_valid(), calls["user_cancel_tokens"].is_valid())).as_py()
        said.append(f"so that users of {count:,} of {calls.num_rows:,} calls leave, where those have not ended before")
    if users.client_timeout_s is not None:
        said.append(f"clients wait {users.client_timeout_s:g} s for an attempt")
    if users.max_attempts is not None:
        said.append(f"clients make {users.max_attempts} attempts at most")
    if users.stream_share is not None:
        said.append(f"{percent(users.stream_share)} of the responses are streamed")
    return said


def when(users: Users) -> str:
    """When those users leave who do."""
    if users.user_cancel_tokens is not None:
        return f"with {users.user_cancel_tokens} tokens of a stream"
    if users.user_cancel_share is None:
        return f"{users.user_cancel_s or LEAVES} s after they ask"
    return (
        f"with {users.user_cancel_share} of the response read, "
        f"as if it began after {users.first_token_s:g} s and took {users.token_s:g} s a token"
    )


def percent(share: float) -> str:
    return f"{100.0 * share:.4g}%"
