"""Ingest as a whole: from Python, in one line."""

from __future__ import annotations

import subprocess
import sys


def test_ingest_is_a_function_of_the_package_whatever_was_imported_before(log_file: str) -> None:
    program = f"""
import replay, replay.runner
for _ in range(2):
    assert replay.ingest([{log_file!r}]).calls.num_rows == 60
"""
    subprocess.run([sys.executable, "-c", program], check=True)
