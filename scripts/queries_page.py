"""docs/queries.md: every named query from its header, and what it says of the incident in examples/."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import replay
from queries import Query, load, names
from queries.session import Session
from replay.calibrate import calibrate
from replay.config import read_experiment
from replay.profiles.loader import save_profile
from replay.report.tables import WIDTH, render
from replay.report.thresholds import OPERATORS

EXAMPLE = Path(__file__).parent.parent / "examples" / "overload-incident"
SEEDS = 2
"""Replays of each policy: enough to show a range, few enough for a page that is made again at every check."""
ROWS = 12
"""Rows of an answer that are shown."""

INTRODUCTION = f"""\
# Queries

Generated from the headers of `queries/*.sql` by `make docs`, with what each says of the incident in
[examples/overload-incident](../examples/overload-incident), replayed under six policies with {SEEDS} seeds each.

```sh
replay query --list                              # all of them
replay query worst_calls RUN -p limit=20         # one of them, with a parameter
replay query outcomes RUN -o outcomes.parquet    # or .csv, .json, .md
replay sql RUN                                   # a prompt; or with SQL as argument, or on standard input
replay export RUN --duckdb run.db                # one file: tables, and these queries as views
cd RUN && duckdb -init views.sql                 # the same tables in a plain DuckDB shell
```

Where a column has companions `_low` and `_high`, they are its range over seeds. In a plain shell the parameters of a
query are bound with `PREPARE`.

## Thresholds

Every figure here can fail a run in a pipeline: on the command line, with `--fail-if` of `replay run` and `replay
report`, or in the experiment file. A threshold is `[POLICY:]FIGURE OP NUMBER`:

```yaml
thresholds:
  - delivered_call_rate < 99%
  - "coalesce:wasted_compute_frac > 0.1"
  - "*:delivered_by_phase.delivered_call_rate < 20%"
```

FIGURE is a column of `summary`, or QUERY.COLUMN of another query with its default parameters, of which every row is
judged. OP is one of `{" ".join(OPERATORS)}`; `99%` is 0.99. Without POLICY the log's own policy is judged, the service
as it is; where that is not known, every policy; `*:` always means every one. A row without a value breaches.

A wrong threshold is told before the run begins. A breach is listed first, is written to `RUN/thresholds.json`, and
makes the command exit with 99. Flags stand in place of the experiment file's thresholds. Neither changes a run's
results."""


def queries_page() -> str:
    """The whole page. Replays the example, which takes a few seconds."""
    os.environ["COLUMNS"] = str(WIDTH)
    with tempfile.TemporaryDirectory() as place:
        run = replay_example(Path(place))
        with Session(str(run)) as session:
            sections = [query_section(load(name), session) for name in names()]
    return "\n\n".join([INTRODUCTION, *sections]) + "\n"


def replay_example(place: Path) -> Path:
    """The incident from its log and step logs, as `make demo` replays it."""
    steps = [str(EXAMPLE / f"{name}.steps.jsonl.gz") for name in ("calibration", "cancel")]
    profile, _ = calibrate(steps[0], {}, steps[1])
    save_profile(profile, str(place / "calibration.json"))
    settings = read_experiment(str(EXAMPLE / "experiment.yaml"))
    settings |= {"profile": str(place / "calibration.json"), "seeds": SEEDS}
    replay.run(str(EXAMPLE / "cancel.attempts.jsonl"), str(place / "run"), settings)
    return place / "run"


def query_section(query: Query, session: Session) -> str:
    """One query: what it answers, its parameters, its columns, its answer for the example."""
    parts = [f"## {query.name}", query.purpose]
    if query.parameters:
        defaults = ", ".join(
            f"`{key}` = {value:g}" if isinstance(value, float) else f'`{key}` = "{value}"'
            for key, value in query.parameters.items()
        )
        parts.append(f"Parameters: {defaults}.")
    parts.append("\n".join(f"- {described(part.strip())}" for part in query.columns.split(";")))
    return "\n\n".join([*parts, answer(query, session)])


def described(part: str) -> str:
    """Some columns and their meaning, the names as code."""
    names, equals, meaning = part.partition(" = ")
    coded = ", ".join(f"`{name}`" if re.fullmatch(r"[\w*]+", name) else name for name in names.split(", "))
    return f"{coded}{equals}{meaning}"


def answer(query: Query, session: Session) -> str:
    """The first rows of what it says of the example."""
    table = session.query(query.name)
    shown = render(table.slice(0, ROWS))
    more = f"\n({ROWS} of {table.num_rows:,} rows)" if table.num_rows > ROWS else ""
    return f"```text\n{shown}{more}\n```"
