"""What traffic and users can be told to be: strict records, from keys and values that people write."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, Struct

from connectors.synthetic.arrivals import CALLS_MOST, States
from connectors.synthetic.gaps import Family
from connectors.synthetic.laws import Exponential, Law, law_of
from replay.settings import check_keys, complaint
from trace_schema.errors import BadConfig

CV_MOST = 20.0
SECONDS_MOST = 1e9
"""30 years."""


Seconds = Annotated[float, Meta(ge=0.0, le=SECONDS_MOST)]
Length = Annotated[float, Meta(gt=0.0, le=SECONDS_MOST)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Factor = Annotated[float, Meta(gt=0.0, le=1e6)]
Tokens = Annotated[int, Meta(ge=1, le=10_000_000)]


def says(sentence: str) -> Meta:
    """What an option says."""
    return Meta(description=sentence)


class Users(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How users and their clients behave."""

    seed: Annotated[
        Annotated[int, Meta(ge=0, le=2**63 - 1)], says("seed of every draw; each law has draws of its own")
    ] = 0
    user_cancel_rate: Annotated[Share, says("share of users who leave for good, whatever becomes of their call")] = 0.0
    user_cancel_s: Annotated[Law | None, says("law of when those leave, in seconds from the call's arrival")] = None
    user_cancel_tokens: Annotated[
        Law | None, says("or law of the tokens of a stream with which they leave, however long those take")
    ] = None
    user_cancel_share: Annotated[Law | None, says("or law of the share of their response that they have by then")] = (
        None
    )
    first_token_s: Annotated[
        Seconds, says("for `user_cancel_share` and sessions: when a response is taken to begin")
    ] = 0.25
    token_s: Annotated[Seconds, says("and how long each of its tokens is taken to last")] = 0.01
    disconnect_every_s: Annotated[
        Length | None, says("every so often many users lose their connection at once, and leave")
    ] = None
    disconnect_window_s: Annotated[Length, says("it can be those whose call arrived at most so long before")] = 3.0
    disconnect_share: Annotated[Share, says("share of those who do")] = 0.5
    patience_s: Annotated[Law | None, says("law of how long every user waits for the whole response")] = None
    client_timeout_s: Annotated[Length | None, says("how long a client waits for one attempt")] = None
    max_attempts: Annotated[
        Annotated[int, Meta(ge=1, le=1_000)] | None,
        says("attempts that a client makes of a call, the first one included"),
    ] = None
    stream_share: Annotated[Share | None, says("share of responses that are streamed")] = None


class Overlay(Users, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Users laid over a trace that shows none."""

    replace: Annotated[bool, says("take the place of what the log shows")] = False


class Scale(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trace made busier or calmer, longer or shorter."""

    seed: Annotated[Annotated[int, Meta(ge=0, le=2**63 - 1)], says("seed of every draw")] = 0
    rate: Annotated[
        Annotated[float, Meta(gt=0.0, le=1_000.0)],
        says("so many times the sessions: below 1 some are left out, above 1 others like them come on top"),
    ] = 1.0
    jitter_s: Annotated[Seconds, says("for `rate`: how far at most those others are moved in time, either way")] = 10.0
    prompt: Annotated[Annotated[float, Meta(gt=0.0, le=1_000.0)], says("factor of prompt lengths")] = 1.0
    output: Annotated[Annotated[float, Meta(gt=0.0, le=1_000.0)], says("factor of output lengths")] = 1.0
    stretch: Annotated[
        Annotated[float, Meta(gt=0.0, le=1_000.0)],
        says("factor of times: 2 makes the same calls come at half the rate, and bursts and days twice as long"),
    ] = 1.0


class Traffic(Users, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Traffic made from nothing."""

    calls: Annotated[Annotated[int, Meta(ge=1, le=CALLS_MOST)] | None, says("how many calls")] = None
    duration_s: Annotated[Length | None, says("or how long calls arrive")] = None
    rate_per_s: Annotated[Factor, says("arrivals per second, outside of overload and bursts")]
    arrival_cv: Annotated[
        Annotated[float, Meta(ge=0.0, le=CV_MOST)],
        says("standard deviation / mean of the gaps between arrivals; 1: Poisson, 0: all equal"),
    ] = 1.0
    arrival_family: Annotated[Family, says("law of gaps that are neither: gamma or weibull")] = "gamma"
    overload_s: Annotated[Length | None, says("length of an overload; without it, there is none")] = None
    overload_start_s: Annotated[Length, says("when the overload begins: the length of the warm-up")] = 60.0
    overload_factor: Annotated[Factor, says("`rate_per_s` is multiplied by it during the overload")] = 2.0
    recovery_factor: Annotated[Factor, says("and by this from its end on")] = 1.0
    burst_every_s: Annotated[Length | None, says("from burst to burst; without it, there are none")] = None
    burst_s: Annotated[Length, says("length of a burst, with which each period ends")] = 3.0
    burst_factor: Annotated[Factor, says("the rate is multiplied by it in a burst")] = 4.0
    quiet_factor: Annotated[
        Annotated[float, Meta(ge=0.0, le=1e6)], says("and by this between bursts; 0: on and off")
    ] = 1.0
    states: Annotated[
        States | None, says("states that come and go at random, FACTOR@SECONDS of each: 1@60,4@10,0.2@30 (an MMPP)")
    ] = None
    daily_swing: Annotated[Share | None, says("how far a daily curve goes above and below its mean, from 0 to 1")] = (
        None
    )
    daily_period_s: Annotated[Length, says("length of its day")] = 86_400.0
    daily_peak_s: Annotated[Seconds, says("when in it most calls arrive")] = 50_400.0
    clients: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        says("number of clients that send apart, each with its share of the rate; without it, they are not told apart"),
    ] = None
    client_skew: Annotated[
        Annotated[float, Meta(ge=0.0, le=10.0)],
        says("the k-th client's share of the rate falls as k^-skew (Zipf); 0: all alike"),
    ] = 1.0
    client_cv: Annotated[
        Law | None, says("law of the clients' `arrival_cv`, at most 20; without it, all have that")
    ] = None
    client_spread: Annotated[
        Annotated[float, Meta(ge=0.0, le=10.0)],
        says("standard deviation / mean of the clients' mean lengths, as factors of the laws of lengths"),
    ] = 0.0
    burst_law: Annotated[
        Literal["periodic", "random"],
        says("periodic; or random: bursts and the quiet between them last exponentially, so long on average"),
    ] = "periodic"
    prompt_tokens: Annotated[Law, says("law of prompt lengths, rounded to whole tokens, at least 1")]
    output_tokens: Annotated[Law, says("law of output lengths, likewise rounded")]
    prompt_tokens_max: Annotated[Tokens, says("longer prompts are cut to it")] = 32_000
    output_tokens_max: Annotated[Tokens, says("longer outputs are cut to it")] = 16_000
    prefixes: Annotated[
        Annotated[int, Meta(ge=1, le=100_000_000)] | None,
        says("number of prefixes that calls share; without it, they share none"),
    ] = None
    prefix_tokens: Annotated[Tokens, says("length of a prefix, which comes on top of `prompt_tokens`")] = 512
    prefix_share: Annotated[Share, says("share of calls that begin with a prefix, each prefix as likely")] = 1.0

    session_turns: Annotated[
        Law | None,
        says("law of the turns of a session; with it, the arrivals are those of sessions, and turns follow"),
    ] = None
    think_time_s: Annotated[Law, says("law of the time from the end of a turn to the next one of its session")] = (
        Exponential(20.0)
    )
    session_loop: Annotated[
        Literal["closed", "open"],
        says(
            "closed: a turn comes `think_time_s` after the one before has ended in the replay; open: when it was made"
        ),
    ] = "closed"


Record = TypeVar("Record", bound=Struct)

EITHER = (("calls", "duration_s"), ("user_cancel_s", "user_cancel_share", "user_cancel_tokens"))
"""Of such options one can be given; it takes the place of the others' defaults."""
PACED = ("user_cancel_share", "session_turns")
NEEDS: Mapping[str, str | tuple[str, ...]] = {
    "user_cancel_s": "user_cancel_rate",
    "user_cancel_share": "user_cancel_rate",
    "user_cancel_tokens": "user_cancel_rate",
    "first_token_s": PACED,
    "token_s": PACED,
    "disconnect_window_s": "disconnect_every_s",
    "disconnect_share": "disconnect_every_s",
    "overload_start_s": "overload_s",
    "overload_factor": "overload_s",
    "recovery_factor": "overload_s",
    "burst_s": "burst_every_s",
    "burst_factor": "burst_every_s",
    "quiet_factor": "burst_every_s",
    "burst_law": "burst_every_s",
    "daily_period_s": "daily_swing",
    "daily_peak_s": "daily_swing",
    "client_skew": "clients",
    "client_cv": "clients",
    "client_spread": "clients",
    "think_time_s": "session_turns",
    "session_loop": "session_turns",
    "prefix_tokens": "prefixes",
    "prefix_share": "prefixes",
}
"""Options that say nothing without another, or without one of several."""


def read(
    options: Mapping[str, Any], kind: type[Record], where: str, defaults: Mapping[str, Any] | None = None
) -> Record:
    """`options` over `defaults` as a record of `kind`. Values may be texts, as flags give them.

    Raises BadConfig for an unknown option, with the nearest valid ones, an impossible value, or a contradiction.
    """
    check_keys(options, kind, where)
    together = dict(defaults or {})
    for among in EITHER:
        given = [key for key in among if options.get(key) is not None]
        if len(given) > 1:
            raise BadConfig(f"{where}: {given[0]} and {given[1]} contradict each other; give one of them")
        if given:
            together = {key: value for key, value in together.items() if key not in among}
    together |= options
    not_numbers = [key for key, value in together.items() if isinstance(value, float) and math.isnan(value)]
    for key in not_numbers:
        raise BadConfig(f"{where}: {key}: is not a number")
    try:
        record = msgspec.convert(together, kind, strict=False, dec_hook=as_written)
    except msgspec.ValidationError as error:
        raise BadConfig(f"{where}: {complaint(error, kind)}") from error
    for key in options:
        needed = NEEDS.get(key, ())
        needed = (needed,) if isinstance(needed, str) else needed
        if needed and not any(name in options or getattr(record, name, None) for name in needed):
            raise BadConfig(f"{where}: {key} says nothing without {' or '.join(needed)}; give that too")
    return record


def as_written(kind: type[Any], written: Any) -> Law | States:
    """For msgspec: a law or states where a record has them."""
    return States.of(written) if kind is States else law_of(written)


def written(record: Struct) -> dict[str, Any]:
    """The options that differ from their defaults, as people write them; `read` makes the record of them again."""
    usual = defaults_of(type(record))
    return {
        key: str(value) if isinstance(value, Law | States) else value
        for key, value in msgspec.structs.asdict(record).items()
        if value != usual[key]
    }


@cache
def defaults_of(kind: type[Struct]) -> Mapping[str, Any]:
    """The default of each option, None for one that must be given."""
    return {field.name: None if field.required else field.default for field in msgspec.structs.fields(kind)}


def explained(kind: type[Struct]) -> Iterator[tuple[str, Any, str]]:
    """(option, its default, its sentence) of a record's options, in order."""
    hints = get_type_hints(kind, include_extras=True)
    for key, default in defaults_of(kind).items():
        *_, meta = hints[key].__metadata__
        yield key, default, meta.description
