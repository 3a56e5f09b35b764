"""What came before the warm-up ended is in no figure of the calls."""

from __future__ import annotations

from pathlib import Path

from queries import run_query
from tests.queries.test_figures import call, replica, write_run


def test_survivors_are_calls_after_the_warmup_whose_user_stays(tmp_path: Path) -> None:
    calls = [
        call(0, 1.0, None, "failed"),
        call(1, 5.0, 6.5),
        call(2, 6.0, None, "cancelled", user_cancel_s=1.0),
        call(3, 7.0, 7.5),
    ]
    run = write_run(tmp_path / "run", {("p", 0): {"calls": calls, "replicas": replica(1)}}, warmup_s=2.0)
    (row,) = run_query(run, "summary").to_pylist()
    assert (row["survivor_p50_s"], row["survivor_p99_s"], row["undelivered"]) == (0.5, 1.5, 0)
