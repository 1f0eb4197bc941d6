"""Where does the time of a measurement go? py-spy samples which function holds the interpreter.

The interpreter is what all threads compete for; what SQLite does without it is not seen. A tracing
profiler would charge every call, and mixes threads since Python 3.12.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from bench.isolation import RESULTS
from bench.measurement import Absent, Bench
from bench.table import MEASUREMENTS

RATE = 500  # samples per second; only the thread that holds the interpreter gives one
FUNCTIONS = 20
SHARE_MIN = 0.01
IMPORTING = "<frozen importlib"


def profile(name: str, *, quick: bool) -> str:
    """Run a measurement under py-spy; give the costliest functions of each thread.

    Raises:
        Absent: if py-spy is not installed.
    """
    py_spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if py_spy is None:
        message = f"py-spy is not installed: {sys.executable} -m pip install py-spy"
        raise Absent(message)
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS, prefix="stores-") as directory:
        stacks = Path(directory) / "stacks"
        sampler = [py_spy, "record", "--format", "raw", "--function", "--threads", "--gil"]
        sampler += ["--rate", str(RATE), "--output", str(stacks), "--"]
        measured = [sys.executable, "-m", "bench.profiling", name, directory]
        subprocess.run(  # noqa: S603 - both commands are made here
            [*sampler, *measured, *(["quick"] if quick else [])], check=True, capture_output=True
        )
        return summarize(stacks.read_text(encoding="utf-8").splitlines())


def summarize(stacks: list[str]) -> str:
    """Add up folded stacks, ``thread;function;…;function count``, by thread and function."""
    own: dict[str, Counter[str]] = defaultdict(Counter)
    within: dict[str, Counter[str]] = defaultdict(Counter)
    for line in stacks:
        path, _, count = line.rpartition(" ")
        if IMPORTING in path:
            continue
        head, *functions = [part for part in path.split(";") if not part.startswith("process")]
        thread = head.partition("): ")[2] or "MainThread"
        if functions:
            own[thread][functions[-1]] += int(count)
            for function in set(functions):
                within[thread][function] += int(count)
    lines: list[str] = []
    every = sum(found.total() for found in own.values())
    for thread, found in sorted(own.items(), key=lambda item: -item[1].total()):
        samples = found.total()
        if samples < every * SHARE_MIN:
            continue
        lines += ["", f"{thread}: {samples / RATE:.2f} s", "  own %  with callees %"]
        lines += [
            f"  {count / samples:5.1%}  {within[thread][function] / samples:14.1%}  {function}"
            for function, count in found.most_common(FUNCTIONS)
        ]
    return "\n".join(lines) + "\n"


def _measure(name: str, directory: str, *options: str) -> None:
    measurement = next(each for each in MEASUREMENTS if each.name == name)
    measurement.function(Bench(Path(directory), quick="quick" in options))


if __name__ == "__main__":
    _measure(*sys.argv[1:])
