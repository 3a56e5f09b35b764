"""docs/policies.md: every knob, the named policies, and the clients and budgets that can be had by name."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from textwrap import dedent
from typing import Any

import msgspec
import yaml

from replay.policies import knobs
from replay.policies.catalogue import CATALOGUE
from replay.policies.clients import BUDGETS, CLIENTS

RECORDS: dict[str, type[msgspec.Struct]] = {
    "client": knobs.Client,
    "budget": knobs.RetryBudget,
    "throttle": knobs.Throttle,
    "network": knobs.Network,
    "gateway": knobs.Gateway,
    "admission": knobs.Admission,
    "cancellation": knobs.Cancellation,
}
OPENING = """# Policies

Generated from `replay/policies/` by `make docs`.

A policy is a name and the knobs that it turns; what it leaves alone is the run's: `client`, `budget` and `network` of
the experiment, and the defaults below. What the traffic brings, such as how long a user waits, is in the trace; a knob
that says otherwise wins. Written out in a file, for `--policy mine.yaml` or under `policies:` in an experiment:

```yaml
name: mine
based_on: coalesce          # a policy of the catalogue, whose knobs are taken first
client: openai-python       # a client by name; {preset: openai-python, timeout_s: 30} changes it
budget: finagle             # a retry budget by name; or its knobs
admission:
  hold_beyond_steps: 2
  shed: call
```

`replay policies show mine.yaml` shows every knob of it; a key that does not exist is refused, and the nearest one is
named. Durations are seconds. Where a policy draws lots (waits, throttling, routing), each lot depends on the seed, the
call and the attempt alone, so that no policy shifts the lots of another."""


def policies_page() -> str:
    """The whole page."""
    parts = [OPENING, "## The named ones", catalogue_table(), "## Knobs"]
    for key, record in RECORDS.items():
        parts += [f"### {key}", dedent(inspect.getdoc(record) or ""), knobs_table(record)]
    parts += ["## Clients by name", "`client: NAME`; `replay clients` lists them.", clients_table()]
    parts += ["## Retry budgets by name", "`budget: NAME`, after the defaults of their sources.", budgets_table()]
    return "\n\n".join(parts) + "\n"


def catalogue_table() -> str:
    rows = [f"| `{name}` | {entry.summary} | {in_short(entry.knobs)} |" for name, entry in CATALOGUE.items()]
    return "\n".join(["| policy | | knobs |", "|---|---|---|", *rows])


def knobs_table(record: type[msgspec.Struct]) -> str:
    """A row for each knob of a record, with what its docstring says."""
    said = dict(sentences(record))
    defaults = msgspec.to_builtins(record())
    rows = [f"| `{name}` | {shown(defaults[name])} | {said.get(name, '')} |" for name in record.__struct_fields__]
    return "\n".join(["| knob | default | |", "|---|---|---|", *rows])


def sentences(record: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    """The text under each field of a record that has one."""
    body = ast.parse(dedent(inspect.getsource(record))).body[0].body  # type: ignore[attr-defined]
    for field, after in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            text = ast.literal_eval(after.value)
            yield field.target.id, " ".join(text.split()).replace("|", "\\|")


def clients_table() -> str:
    rows = []
    for name, preset in CLIENTS.items():
        budget = next((key for key, known in BUDGETS.items() if known == preset.budget), "")
        rows.append(f"| `{name}` | {preset.says} | {changed(preset.client)} | {budget} | {preset.note} |")
    return "\n".join(["| client | | knobs | budget | |", "|---|---|---|---|---|", *rows])


def budgets_table() -> str:
    rows = [f"| `{name}` | {changed(budget)} |" for name, budget in BUDGETS.items()]
    return "\n".join(["| budget | knobs |", "|---|---|", *rows])


def changed(record: msgspec.Struct) -> str:
    """The knobs of a record that are not at their defaults."""
    usual = msgspec.to_builtins(type(record)())
    return in_short({key: value for key, value in msgspec.to_builtins(record).items() if value != usual[key]})


def in_short(settings: Any) -> str:
    """Settings in a line of YAML."""
    text: str = yaml.safe_dump(settings, default_flow_style=True, sort_keys=False, width=10_000).strip()
    return f"`{text}`"


def shown(value: Any) -> str:
    return in_short(value).replace("\n...", "") if not isinstance(value, str) else f"`{value}`"
