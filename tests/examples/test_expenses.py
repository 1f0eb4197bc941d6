"""Does the expenses example end as it must, and would its audit notice if it did not?"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from examples.expenses import audit, demo
from perdure import Actor, Code, Entry, Provenance
from perdure.model.ids import new_eid
from perdure.model.instants import from_us

ROOT = Path(demo.__file__).parents[2]
REPORTS = ["A", "B", "C"]


@pytest.mark.timeout(120)
def test_the_demo_survives_the_kills() -> None:
    """A real worker, a real consumer and real decisions, killed in the middle."""
    command = [sys.executable, demo.__file__, "--reports", "8", "--decide-within", "8"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "killing the consumer" in run.stdout
    assert "are as they must be" in run.stdout


def entry(seq: int, type_: str, fid: str) -> Entry:
    at = from_us(seq)
    told = Provenance(Actor.system("t"), None, Code("w", "1", "step", "s"), 0, at)
    return Entry(seq, type_, fid, at, 1, 1, {}, told, new_eid())


def good() -> audit.Evidence:
    """Give what a good run leaves behind."""
    requested = [("review.requested", report) for report in REPORTS]
    settled = [("expense.settled", report) for report in REPORTS]
    return audit.Evidence(
        verdicts={"A": "approve", "B": "reject"},
        results={
            "A": {"outcome": "paid"},
            "B": {"outcome": "rejected"},
            "C": {"outcome": "expired"},
        },
        journals={report: [entry(1, "frame.completed", "root/x#0")] for report in REPORTS},
        announced=[
            *requested,
            *settled,
            ("review.decided", "A"),
            ("review.decided", "B"),
            ("review.expired", "C"),
        ],
        pending=0,
        payments=["A"],
    )


def test_a_good_run_passes() -> None:
    assert audit.audit(REPORTS, good()) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"payments": ["A", "A"]}, "A: paid, and paid 2 times"),
        ({"payments": ["A", "B"]}, "B: rejected, and paid 1 times"),
        ({"payments": []}, "A: paid, and paid 0 times"),
        ({"pending": 1}, "the inbox still shows 1"),
        ({"results": {}}, "A: decided approve, so it is paid, but was None"),
        ({"announced": []}, "0 times review.requested, not 3"),
        ({"announced": [*good().announced, ("review.decided", "A")]}, "announced 2 times"),
        (
            {"journals": {**good().journals, "A": [entry(2, "frame.completed", "f")]}},
            "A: its journal has a hole",
        ),
        (
            {"journals": {"A": [entry(n, "frame.completed", "f") for n in (1, 2)]}},
            "A: the frame f has two memos",
        ),
    ],
)
def test_the_audit_notices(change: dict[str, object], words: str) -> None:
    problems = audit.audit(REPORTS, replace(good(), **change))  # type: ignore[arg-type]
    assert words in " ".join(problems)
