"""The named workloads: what each is, and the options that make it.

The six of the cancellation benchmark keep its names, cancel rates and descriptions; it does not publish its lengths and
rates, so those here are sized for one replica of h100-sxm/llama-3.1-8b/tp1/bf16/vllm (a step of about 7 ms + 0.02 ms a
token, 27,000 blocks of 16 tokens), such that users leave while their response is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from trace_schema.errors import UnknownName


class Workload(msgspec.Struct, frozen=True):
    """A named workload: a sentence, and its options."""

    summary: str
    options: Mapping[str, Any]


PLAIN: Mapping[str, Any] = {
    "calls": 2_000,
    "rate_per_s": 20.0,
    "prompt_tokens": "lognormal:mean=600,cv=0.8",
    "output_tokens": "lognormal:mean=250,cv=0.6",
    "stream_share": 1.0,
}
LEAVING: Mapping[str, Any] = {**PLAIN, "user_cancel_share": "uniform:low=0.1,high=0.9", "token_s": 0.012}
"""Users who leave while their response is written, at any point of it."""

WORKLOADS: Mapping[str, Workload] = {
    "poisson": Workload("calls that know nothing of each other; users who wait", PLAIN),
    "bursty": Workload(
        "the same, in bursts of four times the rate, which come and go at random",
        {
            **PLAIN,
            "rate_per_s": 12.0,
            "burst_every_s": 30.0,
            "burst_s": 5.0,
            "burst_factor": 4.0,
            "burst_law": "random",
        },
    ),
    "overload": Workload(
        "a warm-up, an overload, a recovery; clients with a timeout that try again",
        {
            "calls": 6_000,
            "rate_per_s": 12.0,
            "overload_start_s": 60.0,
            "overload_s": 60.0,
            "overload_factor": 2.0,
            "prompt_tokens": "lognormal:mean=2000,cv=0.6",
            "output_tokens": "geometric:mean=60",
            "client_timeout_s": 10.0,
            "max_attempts": 4,
            "stream_share": 0.0,
        },
    ),
    "daily": Workload(
        "two days with a peak in the afternoon and a quiet night",
        {
            **{key: value for key, value in PLAIN.items() if key != "calls"},
            "duration_s": 172_800.0,
            "rate_per_s": 0.2,
            "daily_swing": 0.8,
        },
    ),
    "clients": Workload(
        "a few clients that send most, and many that send a little, some of them in bursts, with lengths of their own",
        {
            **PLAIN,
            "clients": 100,
            "arrival_family": "weibull",
            "client_cv": "lognormal:mean=2,cv=0.7",
            "client_spread": 0.7,
        },
    ),
    "chat": Workload(
        "people who talk for some turns, and think before each; prompts hold all that was said",
        {
            **PLAIN,
            "rate_per_s": 2.0,
            "prompt_tokens": "lognormal:mean=150,cv=1.2",
            "session_turns": "geometric:mean=5",
            "think_time_s": "lognormal:mean=25,cv=1.2",
            "prefixes": 5,
            "prefix_tokens": 800,
        },
    ),
    "low_cancel_rate": Workload("minimal cancellations", {**LEAVING, "user_cancel_rate": 0.06}),
    "moderate_cancel_rate": Workload("a realistic production rate", {**LEAVING, "user_cancel_rate": 0.18}),
    "high_cancel_rate": Workload("heavy churn", {**LEAVING, "user_cancel_rate": 0.35}),
    "long_output_cancel_heavy": Workload(
        "long expected outputs",
        {
            **LEAVING,
            "user_cancel_rate": 0.25,
            "rate_per_s": 5.0,
            "output_tokens": "lognormal:mean=1200,cv=0.5",
            "token_s": 0.015,
        },
    ),
    "kv_pressure_cancel_heavy": Workload(
        "long prompts, at a rate that fills the KV pool unless cancelled calls leave it",
        {
            **LEAVING,
            "user_cancel_rate": 0.22,
            "rate_per_s": 9.5,
            "prompt_tokens": "lognormal:mean=2000,cv=0.6",
            "output_tokens": "lognormal:mean=500,cv=0.5",
            "first_token_s": 1.0,
            "token_s": 0.04,
        },
    ),
    "bursty_disconnects": Workload(
        "20% at base, and connections that break for many at once",
        {
            **LEAVING,
            "user_cancel_rate": 0.2,
            "disconnect_every_s": 20.0,
            "disconnect_window_s": 3.0,
            "disconnect_share": 0.6,
        },
    ),
}


def workload(name: str) -> Workload:
    """The workload called `name`. Raises UnknownName."""
    if name not in WORKLOADS:
        raise UnknownName.of("workload", name, WORKLOADS)
    return WORKLOADS[name]
