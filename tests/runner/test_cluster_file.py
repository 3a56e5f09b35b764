"""cluster.yaml is what `ray up` takes, in both of its variants; submit.sh finds the cluster or says what to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.runner.conftest import outside

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "cluster.yaml").read_text()


def own_machines() -> dict[str, Any]:
    """The variant that the file's last comment describes."""
    comment = TEXT.partition("# Machines of your own")[2].splitlines()[1:]
    cloud = {key: value for key, value in yaml.safe_load(TEXT).items() if "node_type" not in key}
    return cloud | yaml.safe_load("\n".join(line.removeprefix("#").removeprefix(" ") for line in comment))


@pytest.mark.parametrize("config", [yaml.safe_load(TEXT), own_machines()], ids=["cloud", "own machines"])
def test_ray_takes_the_cluster_file(config: dict[str, Any]) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(config)
    validate_config(prepared)
    types = prepared["available_node_types"]
    assert prepared["head_node_type"] in types
    assert all(kind["min_workers"] <= kind["max_workers"] for kind in types.values())


def test_nodes_want_a_token_and_run_the_ray_of_this_machine() -> None:
    import ray

    config = yaml.safe_load(TEXT)
    starts = [*config["head_start_ray_commands"], *config["worker_start_ray_commands"]]
    assert all("RAY_AUTH_MODE=token" in command for command in starts if "ray start" in command)
    assert "/home/ray/.ray/auth_token" in config["file_mounts"]
    version = config["docker"]["image"].partition(":")[2].partition("-")[0]
    assert version.split(".")[:2] == ray.__version__.split(".")[:2], "ray up wants one version here and there"


def submit(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """scripts/submit.sh as somebody calls it whose environment has replay."""
    path = f"{Path(sys.executable).parent}:{outside()['PATH']}"
    return subprocess.run(
        [str(ROOT / "scripts" / "submit.sh"), *arguments],
        capture_output=True, text=True, timeout=60, check=False, env=outside() | {"PATH": path} | environment,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "code", "says"),
    [
        ({"RAY_ADDRESS": "ray://head:10001"}, 2, "a job needs the dashboard, such as http://HEAD:8265"),
        ({"REPLAY_CLUSTER": "/nowhere/cluster.yaml"}, 2, "/nowhere/cluster.yaml: no such file"),
        ({"REPLAY_CLUSTER": str(ROOT / "cluster.yaml")}, 4, "cluster.yaml is up"),
    ],
    ids=["no dashboard", "no file", "no cluster"],
)
def test_the_script_says_what_it_needs(environment: dict[str, str], code: int, says: str) -> None:
    done = submit("run", "trace.parquet", **environment)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("submit.sh: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_script_hands_everything_to_replay_submit(log_file: str) -> None:
    done = submit("run", log_file, "-o", "relative", RAY_ADDRESS="http://127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr.startswith("replay: -o relative: a job's results need an absolute path")


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_the_script_is_clean() -> None:
    subprocess.run(["shellcheck", str(ROOT / "scripts" / "submit.sh")], check=True)
