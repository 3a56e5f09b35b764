"""The text of docs/synthetic.md, from the laws, workloads and options themselves."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from connectors.synthetic import WORKLOADS, Overlay, Scale, Traffic, Users, explained
from connectors.synthetic.laws import LAWS
from connectors.synthetic.users import LEAVES

INTRODUCTION = """# Synthetic traffic

Generated from `connectors/synthetic/` by `make docs`.

Traffic that nobody recorded: whole traces made from nothing, and users laid over a log that shows none. Both are
drawn from a seed, and equal options give equal traces. A trace remembers what in it is synthetic; `replay describe`
and `replay run` say so, and such a trace is never held against a log.

```sh
replay ingest synthetic:overload -o trace.parquet --option calls=20000 --option rate_per_s=12 --option seed=3
replay describe synthetic:bursty            # every command that reads a trace reads a workload too
replay ingest attempts.jsonl -o trace.parquet --synthetic user_cancel_rate=0.1 --synthetic seed=1
replay ingest azure.csv -o trace.parquet --synthetic client_timeout_s=30 --synthetic max_attempts=3
```

```python
import replay
from connectors import synthetic

calls = synthetic.calls("high_cancel_rate", calls=500, seed=7)  # an Arrow table, for replay.simulate
trace = replay.ingest(["attempts.jsonl"], synthetic={"user_cancel_rate": 0.1})
```

Public traces know no clients: nobody leaves, waits or tries again in them. `--synthetic` adds such users, and
changes neither arrivals nor lengths. The timeout stands on each call, `max_attempts` becomes a setting of the run
(source: `log`), which flags and experiment files override. Where the log shows users who leave, timeouts, retries
or which responses were streamed, adding them is refused, unless `replace=true` says that the synthetic shall take
their place."""

ARRIVALS = """## Arrivals

Arrivals follow a stationary renewal process of rate 1, run along the rate r(t): the k-th call arrives when the
integral of r reaches the k-th arrival. Gaps of that process have mean 1 and the cv `arrival_cv`:
exponential for 1, which makes it a Poisson process of rate r(t); all equal for 0; else Gamma with shape
1 / `arrival_cv`^2, or Weibull with the shape that has that cv (`arrival_family`). The first comes after U times a gap
weighed by its length, so that r(t) is the expected rate from the first second on.

r(t) = `rate_per_s`

- x `overload_factor` from `overload_start_s` on for `overload_s`, x `recovery_factor` from its end on. The phases
  before, during and after stand in the trace.
- x `burst_factor` in a burst, x `quiet_factor` between bursts. Periodic: each `burst_every_s` ends with a burst of
  `burst_s`. Random: both last exponentially, `burst_s` and `burst_every_s - burst_s` on average.

- x a factor that jumps between `states`: `1@60,4@10,0.2@30` are three, which last exponentially, 60, 10 and 30 s on
  average; any other comes next alike. With exponential gaps this is an MMPP.
- x 1 + `daily_swing` cos(2 pi (t - `daily_peak_s`) / `daily_period_s`), in 288 steps a period.

The trace ends with call number `calls`, or at `duration_s`."""

CLIENTS = """## Clients

With `clients` = n, the traffic is the sum of n clients that send apart, as that of real services is (Xiang et al.,
ServeGen, NSDI '26). The k-th has a share of the rate as k^-`client_skew`, gaps with a cv drawn from `client_cv` (of
the family `arrival_family`), and lengths that are those of the laws times a factor of its own, lognormal with mean 1
and cv `client_spread`. Its name stands in the trace as `client`.

ServeGen's own files are read by the format `servegen` ([formats.md](formats.md))."""

SESSIONS = """## Sessions

With `session_turns`, it is sessions that arrive, and each has so many turns (at least 1). What user and model said
stands at the beginning of the next prompt: turn n has a prompt of the session's prefix, all texts and outputs of the
turns before, and a new text of `prompt_tokens`. A session ends early where its prompt would grow beyond
`prompt_tokens_max`. Block hashes of 16 tokens say what prompts share; of the turn before, an engine's cache finds the
prompt, not the output, which has no hashes in a trace.

`session_loop=closed`: a turn comes `think_time_s` after the one before has ended in the replay, whatever that took
(`previous_call_id` and `think_time_s` of the trace). `open`: it comes when it would if responses began after
`first_token_s` and took `token_s` a token; that is also its place in a closed loop's trace. A trace of `calls` calls
ends within sessions."""

LAW_NOTE = """## Laws

Lengths and times follow a law, written as `lognormal:mean=1200,cv=0.8` or `lognormal:1200,0.8`. A draw x follows
from U, uniform in [0, 1), Z, standard normal, or E, standard exponential. These are drawn for each call by its
place, whatever the parameters are: another mean or another rate moves what it says and draws nothing else anew.
Lengths are rounded to the nearest token, at least 1 and at most `prompt_tokens_max` and `output_tokens_max`."""

USERS = f"""## Users

A user leaves for good, whatever the client and the engine are doing, at the earliest of

- with probability `user_cancel_rate`: `user_cancel_s` after the call's arrival ({LEAVES} where nothing is said: a
  guess, as no public trace shows it), or, with `user_cancel_share` = x, `first_token_s + x * output_tokens *
  token_s` after it, with x at most 1: while the response is written, if it is written at that pace; or, with
  `user_cancel_tokens`, when the client has so many tokens of a stream, however long those take: whoever gets his
  response in one piece stays
- at the next multiple of `disconnect_every_s`, with probability `disconnect_share`, when that is at most
  `disconnect_window_s` after the arrival
- `patience_s` after the arrival, for every user

A call that has ended by then is not cancelled."""

SCALING = """## A log on another scale

```sh
replay ingest azure.csv -o busier.parquet --scale rate=2.5 --scale seed=1
replay ingest trace.parquet -o longer.parquet --scale prompt=2 --scale output=0.5
```

`--scale` makes a log, a trace or a workload busier or calmer, and its calls longer or shorter. `rate` never stretches
time, which would make other bursts of its bursts: below 1, each session (or call without one) stays with that
probability; above 1, others like them come on top, each moved as a whole by up to `jitter_s`, under names of their own.
They share the prefixes that several sessions of the log share, and no other block. A scaled Poisson process is one;
an overload stays where it was. `prompt` and `output` are factors of lengths: blocks of hashes grow with the prompts, so
that the same share of each is shared. Only `stretch` stretches times.

What the log saw of its calls stays in the trace; the replay is not held against it."""

PREFIXES = """## Shared prefixes

With `prefixes` = n, a call begins with probability `prefix_share` with one of n prefixes of `prefix_tokens` tokens,
each as likely, and its own prompt comes on top. The prefix stands in the trace as one block hash of `prefix_tokens`
tokens, of which the engine's cache finds every full block of its own."""

WORKLOAD_NOTE = """## Workloads

The six of the request-cancellation benchmark keep its names and cancel rates: it publishes no lengths and no rates.
Those here are for one replica of `h100-sxm/llama-3.1-8b/tp1/bf16/vllm`, at which users leave while their response
is written; other engines need other rates. Options that a workload does not name have the defaults below."""


def synthetic_page() -> str:
    """The whole page."""
    parts = [
        INTRODUCTION,
        ARRIVALS,
        CLIENTS,
        SESSIONS,
        LAW_NOTE,
        laws(),
        USERS,
        SCALING,
        PREFIXES,
        WORKLOAD_NOTE,
        workloads(),
    ]
    own = [row for row in explained(Traffic) if row[0] not in Users.__struct_fields__]
    over = [row for row in explained(Overlay) if row[0] not in Users.__struct_fields__]
    parts += ["## Options of traffic", "With `--option`.", options(own)]
    parts += [
        "## Options of users",
        "With `--option` for a workload, with `--synthetic` over a log.",
        options(explained(Users)),
    ]
    parts += ["Over a log only:", options(over), "## Options of scale", "With `--scale`.", options(explained(Scale))]
    return "\n\n".join(parts) + "\n"


LISTED = {
    "quantiles": "share = value, ...",
    "discrete": "value = weight, ...",
    "mixture": "weight * law + ...",
}
"""Laws that take as many parameters as there are."""


def laws() -> str:
    """Every law: how it is written, and its formula."""
    rows = ["| law | parameters | |", "|---|---|---|"]
    for name, law in LAWS.items():
        parameters = LISTED.get(name) or ", ".join(f"`{f.name}`" for f in fields(law))  # type: ignore[arg-type]
        rows.append(f"| `{name}` | {parameters} | {law.formula} |")
    return "\n".join(rows)


def workloads() -> str:
    """Every workload: its options, those that most have in columns of their own."""
    common = ("calls", "rate_per_s", "prompt_tokens", "output_tokens", "user_cancel_rate")
    rows = [f"| workload | | {' | '.join(f'`{key}`' for key in common)} | others |", "|---" * (len(common) + 3) + "|"]
    for name, one in WORKLOADS.items():
        cells = [str(one.options.get(key, "")) for key in common]
        others = "<br>".join(f"`{key}={value}`" for key, value in one.options.items() if key not in common)
        rows.append(f"| `{name}` | {one.summary} | {' | '.join(cells)} | {others} |")
    return "\n".join(rows)


def options(rows: Any) -> str:
    """A table of options."""
    lines = ["| option | default | |", "|---|---|---|"]
    for key, default, sentence in rows:
        shown = "" if default is None else f"`{str(default).lower() if isinstance(default, bool) else default}`"
        lines.append(f"| `{key}` | {shown} | {sentence} |")
    return "\n".join(lines)
