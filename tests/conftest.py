"""What several tests share: a small engine, a small trace, a small run."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from replay.profiles.loader import save_profile
from replay.profiles.profile import EngineSettings, Profile, StepTime

# `make test` draws the same examples each time, `make test-full` others: for those who can look into what they find.
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.load_profile("same")
# A shell has what it starts in the background ignore Ctrl-C, and so would the processes that are interrupted here.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Ray takes five seconds to start: only the tests of the cluster ask for it.
os.environ["REPLAY_RUN_EXECUTOR"] = "inline"


@pytest.fixture(scope="session")
def profile() -> Profile:
    """An engine that takes 10 ms for a step and a little for each token."""
    engine = EngineSettings(
        max_model_len=4096, max_num_seqs=8, max_num_batched_tokens=256, block_size=16, num_blocks=400
    )
    step_time = StepTime(knots_tokens=(1, 256), knots_s=(0.01, 0.1), kv_token_s=1e-6)
    return Profile(name="small", engine=engine, step_time=step_time)


@pytest.fixture(scope="session")
def profile_file(profile: Profile, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    save_profile(profile, str(path))
    return str(path)


@pytest.fixture(scope="session")
def samples() -> Path:
    """Logs of other people's tools and traces, where they are kept beside this repository."""
    path = Path(__file__).parents[2] / "shared" / "samples"
    if not path.is_dir():
        pytest.skip("there are no samples beside this repository")
    return path


def log_lines() -> list[dict[str, Any]]:
    """A log of 60 calls of which some were tried twice."""
    lines = []
    for call in range(60):
        start, prompt = 0.25 * call, 100 + 37 * call % 700
        line = {"call": call, "attempt": 0, "prompt": prompt, "output": 5 + call % 9, "start": start}
        if call % 4 == 3:
            lines.append({**line, "end": start + 2.01, "status": "timeout"})
            line |= {"attempt": 1, "start": start + 2.4}
        lines.append({**line, "end": line["start"] + 0.4, "status": "ok"})
    return lines


@pytest.fixture(scope="session")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in log_lines()))
    return str(path)


@pytest.fixture(scope="session")
def run_directory(log_file: str, profile_file: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two policies and two seeds, with an overload from 5 s to 10 s."""
    import replay

    path = tmp_path_factory.mktemp("run") / "run"
    settings = {
        "profile": profile_file,
        "policies": ["cancel", "coalesce"],
        "seeds": 2,
        "overload": {"start_s": 5, "end_s": 10},
    }
    replay.run(log_file, str(path), settings)
    return path
