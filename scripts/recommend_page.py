"""The text of docs/recommend.md, with the table of changes from the code."""

from __future__ import annotations

import yaml

from replay.policies.knobs import Policy
from replay.recommend.changes import CHANGES, Change, Present

EXAMPLE = Present(Policy(name="as it is"), timeout_s=10.0, replicas=4, notices="timer")
"""Under which all changes have values."""

BEFORE = """\
# The smallest change that reaches a goal

The table of changes is generated from `replay/recommend/changes.py` by `make docs`.

```sh
GOAL="delivered_call_rate >= 0.99, wasted_compute_frac <= 0.1"
replay recommend trace.parquet --goal "$GOAL" --profile profile.json -o ANSWER
replay recommend trace.parquet --goal "on_time_rate >= 95%" --can gateway --profile profile.json -o ANSWER
```

A goal is a figure, a relation and a number, as a [threshold](queries.md#thresholds) is, but says what is to be
reached: any column of `replay query summary`, or QUERY.COLUMN of another query, of which every row counts. Several
goals stand with commas between them. `--can` says who can change something: `client`, `gateway`, `engine`, or several
of them.

The command prints what to change, what it was, who changes it and whether that takes code; the goals now and then;
what it brings and costs; how sure that is; what engines would do instead; and a policy to paste. `--json` prints the
same for programs. In ANSWER are

| file | what it is |
|---|---|
| `recommend.txt`, `recommend.json` | the answer |
| `recommended.yaml` | the policy: `replay run ... --policy ANSWER/recommended.yaml` |
| `plots/recommend.png` | each goal's figure by policy, with intervals, the goal, and what was [possible](possible.md) |
| the run itself, `report.html` | the present policy, the recommended one and the next best, for `report`, `sql` ... |
| `beneath/*` | the runs that it rests on: `self-replay`, `1-change`, ..., `resampled`, `sensitivity`, `capacity-*` |

It runs on Ray or in this process as `replay run` does, and what was broken off goes on with the same command.

## In which order

**1. Is the replay to be believed?** The log's own policy is replayed and held against the log. Where a delivered rate
is off by more than 0.05, and beyond the range over seeds, there is no answer: exit code 3. Look at `replay query
self_replay ANSWER/beneath/self-replay`; mostly the profile is of another machine (`replay calibrate`), the policy is
not the one that the log was recorded under (`--as-logged`), or the overload's phases are elsewhere (`--overload`).
`--anyway` goes on, and the answer says so. A trace whose log shows no policy, or whose users are synthetic, cannot be
held against anything; the answer says that too.

**2. One change.** Every change that they can make, in every value of the table below.

**3. Two changes, then three**, while none reaches the goal. Of two, all pairs are tried, those first whose values
came nearest by themselves, as far as 10 million calls go (at least 40 policies, at most 400); of three, what one more
change makes of the six nearest pairs. Policies that the traffic cannot tell apart are tried once.

**4. The last run**: the best policy of each set of changes, five at most, with all seeds (`--seeds`, 5).

A policy *reaches* a goal when it does in every replay. Of those that do, the **smallest** is the answer: fewer
changes before more; of as many, those of a setting (`config`) before those that take code; of equal ones, that
which reaches it on most of the resampled traffics below, then that with the largest margin: how far the worst replay
is beyond the number, as a share of it.

| change | who | takes | values (of timeouts: where it is 10 s) |
|---|---|---|---|
"""

AFTER = """\

"On time" is within the timeout that clients have now, also under policies that change it, unless `--slo-s` says
otherwise.

## How sure it is

**Over seeds**: the mean, and its bootstrapped 95% interval. Seeds differ in the waits of clients, and in what the log
cut short; the calls are the same.

**Over resampled traffic** (`--resamples`, 40): the smallest changes and the present policy on other traffic of the same
kind, by a block bootstrap in time. The trace is cut into blocks of *n*^(1/3) calls on average; each place gets a
block drawn from the same phase, so that an overload stays one. Sessions and the attempts of a call move as a whole.
The interval holds the middle 95% of the resampled figures; beside it stands the share of traffics in which all goals
are reached.

**Where one thing is other than it was**: load 10% and 20% up and down (sessions left out, or others like them added),
timeouts 20%, engine speed 10%. One that says MISSED is what to watch.

All of it assumes what replays assume: users who come as they did in the log, whatever the service does.

## Where no policy reaches it

The answer is then the nearest policy, by what is missing of all goals; how much any policy could have delivered on
these engines; and how many replicas reach the goal under the nearest and under the present policy, by bisection, up
to 16 times as many. Where a policy does reach it, the replicas that would do instead are said as well.
"""


def recommend_page() -> str:
    """The whole page."""
    return f"{BEFORE}{chr(10).join(map(row, CHANGES))}\n{AFTER}"


def row(change: Change) -> str:
    """One change of the table."""
    values = [yaml.safe_dump(step.knobs, default_flow_style=True, width=1000).strip() for step in change.steps(EXAMPLE)]
    return f"| {change.name}: {change.words} | {change.who} | {change.effort} | {', '.join(f'`{v}`' for v in values)} |"
