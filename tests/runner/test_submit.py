"""What goes with a job, and how its command line reads there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import replay.runner.submit as submit
from replay.cli import main
from replay.cli.cluster import written
from replay.cli.runs import run
from replay.config import read_experiment
from replay.errors import BadConfig, BadInput
from replay.runner.submit import Luggage, luggage, packed


@pytest.fixture
def taken() -> Iterator[Luggage]:
    with luggage() as bags:
        yield bags


def values(trace: str, *flags: str) -> dict[str, Any]:
    """The parameters of a run that writes to /shared/run."""
    return run.make_context("run", [trace, "-o", "/shared/run", *flags]).params


def test_files_of_this_machine_go_along_and_names_stay(taken: Luggage, log_file: str, profile_file: str) -> None:
    changed = packed(values(log_file, "--profile", profile_file, "--policy", "cancel"), taken)
    assert (taken.stage / changed["trace"]).read_bytes() == Path(log_file).read_bytes()
    assert (taken.stage / changed["profile"][0]).read_bytes() == Path(profile_file).read_bytes()
    assert changed["policies"] == ("cancel",)


def test_an_experiment_takes_its_files_along(taken: Luggage, log_file: str, profile_file: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\nbased_on: coalesce\n")
    experiment = tmp_path / "experiment.yaml"
    experiment.write_text(f"profile: {profile_file}\npolicies: [cancel, mine.yaml]\n")
    changed = packed(values(log_file, "--config", str(experiment)), taken)
    there = read_experiment(str(taken.stage / changed["config"]))
    assert Path(there["profile"][0]).read_bytes() == Path(profile_file).read_bytes()
    assert there["policies"][0] == "cancel"
    assert Path(there["policies"][1]).read_text().startswith("name: mine")


@pytest.mark.parametrize("trace", ["s3://bucket/trace.parquet", "/mnt/only/there.parquet", "synthetic:overload"])
def test_a_trace_that_is_elsewhere_is_left_there(trace: str, taken: Luggage) -> None:
    assert packed(values(trace), taken)["trace"] == trace
    assert not (taken.stage / "inputs").exists()


def test_a_trace_that_is_nowhere_is_named(taken: Luggage) -> None:
    with pytest.raises(BadInput, match=r"trase\.parquet: no such file; a path on the cluster begins with /"):
        packed(values("trase.parquet"), taken)


def test_a_trace_that_is_too_large_is_named(taken: Luggage, log_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "UPLOAD_BYTES_MOST", 100)
    with pytest.raises(BadInput, match=r"^log\.jsonl: .* put it where the cluster can read it"):
        packed(values(log_file), taken)


@pytest.mark.parametrize("output", ["run", "s3://bucket/run"])
def test_results_need_a_path_that_outlives_the_job(output: str, taken: Luggage, log_file: str) -> None:
    with pytest.raises(BadConfig, match=f"-o {output}: a job's results need an absolute path"):
        packed(values(log_file) | {"output": output}, taken)


def test_a_command_line_reads_there_as_it_did_here() -> None:
    line = [
        "trace.parquet", "-o", "/shared/run", "--policy", "cancel", "--policy", "mine.yaml", "--seeds", "5", "--json",
        "--set", "client.timeout_s=20", "--slo-s", "1.5", "--workers", "64",
    ]  # fmt: skip
    here = run.make_context("run", line)
    assert run.make_context("run", written(here, here.params)).params == here.params


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["submit", "--address", "http://head:8265", "--", "query", "summary"], "only run is worth a cluster"),
        (["submit", "--", "run", "x"], "which cluster?"),
        (["submit", "--address", "ray://head:1", "run", "synthetic:overload", "-o", "/x"], "http://head:8265"),
    ],
    ids=["another command", "no address", "another door"],
)
def test_a_wrong_command_is_one_sentence(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1
