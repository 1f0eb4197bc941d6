"""How is the bench run? With ``python -m bench``. A bar that is missed is shown; it is no error."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench.isolation import RESULTS, Answer, run_alone
from bench.measurement import Absent, Measurement
from bench.profiling import profile
from bench.report import make_rows, print_table, to_json
from bench.table import MEASUREMENTS


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [measurement.name for measurement in MEASUREMENTS]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help=", ".join(names)
    )
    parser.add_argument("--quick", action="store_true", help="little work: does it run at all?")
    parser.add_argument("--repeat", type=_count, default=1, metavar="N", help="median of N runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the JSON goes")
    parser.add_argument(
        "--profile", action="store_true", help="say where the time goes instead, with --only"
    )
    options = parser.parse_args(arguments)
    if options.profile and not options.only:
        parser.error("--profile needs --only NAME")
    return options


def main(arguments: list[str]) -> int:
    """Measure, print a table and write JSON; return 1 if a measurement failed."""
    options = parse(arguments)
    chosen = [m for m in MEASUREMENTS if options.only is None or m.name in options.only]
    if options.profile:
        try:
            for measurement in chosen:
                sys.stdout.write(profile(measurement.name, quick=options.quick))
        except Absent as absent:
            sys.stderr.write(f"{absent}\n")
            return 1
        return 0
    measured = [(each, _repeat(each, options.repeat, quick=options.quick)) for each in chosen]
    rows = make_rows(measured, judged=not options.quick)
    print_table(rows)
    if options.quick:
        sys.stdout.write("a quick run does too little work for its figures to mean anything\n")
    at = datetime.now(UTC)
    file = options.json or RESULTS / f"{at:%Y%m%dT%H%M%S}.json"
    file.write_text(to_json(rows, at=at, quick=options.quick), encoding="utf-8")
    sys.stdout.write(f"written to {file}\n")
    return 1 if any(answer.error for _, answers in measured for answer in answers) else 0


def _repeat(measurement: Measurement, times: int, *, quick: bool) -> list[Answer]:
    answers: list[Answer] = []
    for _ in range(times):
        sys.stderr.write(f"measuring {measurement.name} …\n")
        answer = run_alone(measurement, quick=quick)
        answers.append(answer)
        if answer.error is not None:
            sys.stderr.write(f"{measurement.name}: {answer.error}\n")
        if answer.absent is not None:
            sys.stderr.write(f"{measurement.name} is absent: {answer.absent}\n")
            break
    return answers


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        message = "it is at least 1"
        raise argparse.ArgumentTypeError(message)
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
