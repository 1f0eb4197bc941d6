"""Is the slow agent asked once, though all are killed, and would the demo notice if it was not?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.agent import demo

ROOT = Path(demo.__file__).parents[2]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    """Run the demo as a process of its own."""
    command = [sys.executable, demo.__file__, *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.timeout(120)
def test_each_question_is_asked_once() -> None:
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every question was asked once" in done.stdout
    assert "bridges: all about the history of bridges" in done.stdout


@pytest.mark.timeout(120)
def test_a_careless_command_is_noticed() -> None:
    done = run("--careless")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "was asked 2 times" in done.stdout
