"""How is a measurement kept from disturbing the others? It runs in a process of its own.

The directory of the stores is made beside the results, not where temporary files go: that may be
memory, where a flush costs nothing.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from bench.measurement import Absent, Bench, Measurement

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Answer:
    """What came of one run: values by reading, or why there are none."""

    values: dict[str, float] = field(default_factory=dict)
    absent: str | None = None
    error: str | None = None


def run_alone(measurement: Measurement, *, quick: bool) -> Answer:
    """Run a measurement in a new process; kill it when its time is over."""
    RESULTS.mkdir(exist_ok=True)
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=RESULTS, prefix="stores-") as directory:
        receiver, sender = spawn.Pipe(duplex=False)
        process = spawn.Process(
            target=_answer, args=(measurement, Bench(Path(directory), quick), sender)
        )
        process.start()
        sender.close()
        try:
            if not receiver.poll(measurement.timeout_s):
                return Answer(error=f"it took longer than {measurement.timeout_s:.0f} s")
            answer: Answer = receiver.recv()
        except EOFError:
            process.join()
            return Answer(error=f"its process ended with exit code {process.exitcode}")
        finally:
            process.kill()
            process.join()
    return answer


def _answer(measurement: Measurement, bench: Bench, sender: Connection) -> None:
    try:
        answer = Answer(values=measurement.function(bench))
    except Absent as absent:
        answer = Answer(absent=str(absent))
    except BaseException:  # noqa: BLE001 - whatever ends a measurement is reported
        answer = Answer(error=traceback.format_exc())
    sender.send(answer)
