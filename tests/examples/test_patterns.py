"""Do the small programs that show the patterns do what they say?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples import patterns

HERE = Path(patterns.__file__).parent
ROOT = HERE.parents[1]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("trip", ["gave the car back\ngave the hotel back", "there is no seat left", "bicycle"]),
        ("thumbnails", ["30 pictures, from small-00.jpg to small-29.jpg"]),
        ("nightly", ["3 schedulers, 7 midnights, 7 reports"]),
    ],
)
def test_a_program_runs(program: str, words: list[str], tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(HERE / f"{program}.py")]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert all(word in run.stdout for word in words), run.stdout
