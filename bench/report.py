"""How are the readings shown? As a table for people, and as JSON."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import sqlite3
import statistics
import sys
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from bench.isolation import Answer
from bench.measurement import Measurement, Reading

HEADINGS = ("what", "measured", "spread", "bar", "met", "beside")
FIRST_DIGITS = 100  # figures from here on are shown without decimals


@dataclass(frozen=True)
class Row:
    """One reading of a run, ready to be shown.

    Attributes:
        reading: what was read.
        values: one for each repetition.
        beside: how many times better it is than each reading that it is compared with.
        absent: why there is nothing to read on this machine, if so.
        error: why reading it failed, if so.
        judged: whether the bar counts; not after a quick run, which does too little work.
    """

    reading: Reading
    values: tuple[float, ...]
    beside: dict[str, float]
    absent: str | None
    error: str | None
    judged: bool

    @property
    def value(self) -> float | None:
        """The median of the repetitions."""
        return statistics.median(self.values) if self.values else None

    @property
    def met(self) -> bool | None:
        """Whether the bar is reached; ``None`` without bar or value, or if it does not count."""
        if not self.judged or self.reading.bar is None or self.value is None:
            return None
        return self.reading.bar.met(self.value)


def make_rows(measured: list[tuple[Measurement, list[Answer]]], *, judged: bool) -> list[Row]:
    """Put the answers of every measurement beside each other; `judged` as in `Row`."""
    values = {
        reading.name: tuple(
            answer.values[reading.name] for answer in answers if reading.name in answer.values
        )
        for measurement, answers in measured
        for reading in measurement.readings
    }
    medians = {name: statistics.median(found) for name, found in values.items() if found}
    rows: list[Row] = []
    for measurement, answers in measured:
        absent = next((answer.absent for answer in answers if answer.absent), None)
        error = next((answer.error for answer in answers if answer.error), None)
        for reading in measurement.readings:
            beside: dict[str, float] = {}
            for other in reading.beside:
                if reading.name in medians and other in medians:
                    times = reading.times_better(medians[reading.name], medians[other])
                    if times is not None:
                        beside[other] = times
            rows.append(Row(reading, values[reading.name], beside, absent, error, judged))
    return rows


def print_table(rows: list[Row]) -> None:
    """Print a table: with colour on a terminal if rich is installed, else as plain text."""
    cells = [_cells(row) for row in rows]
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        _print_rich(cells)
        return
    widths = [max(len(line[column]) for line in [HEADINGS, *cells]) for column in range(5)]
    for line in [HEADINGS, *cells]:
        padded = [text.ljust(width) for text, width in zip(line, widths, strict=False)]
        sys.stdout.write("  ".join([*padded, line[5]]).rstrip() + "\n")


def _print_rich(cells: list[tuple[str, ...]]) -> None:
    from rich.console import Console  # noqa: PLC0415 - it may not be installed
    from rich.table import Table  # noqa: PLC0415 - likewise
    from rich.text import Text  # noqa: PLC0415 - likewise

    table = Table()
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading in HEADINGS[1:4] else "left")
    colours = {"yes": "green", "no": "red", "absent": "yellow", "error": "red"}
    for line in cells:
        table.add_row(*(Text(text, style=colours.get(text, "")) for text in line))
    Console().print(table)


def _cells(row: Row) -> tuple[str, ...]:
    reading, value = row.reading, row.value
    measured = "absent" if row.absent else "error"
    if value is not None:
        measured = f"{_figure(value)} {reading.unit}"
    spread = f"{_figure(min(row.values))}..{_figure(max(row.values))}" if row.values[1:] else ""
    bar = ""
    if reading.bar is not None:
        bar = f"{'<=' if reading.bar.at_most else '>='} {_figure(reading.bar.value)}"
    met = {True: "yes", False: "no", None: ""}[row.met]
    beside = ", ".join(f"{times:.2g} x {name}" for name, times in row.beside.items())
    return reading.title, measured, spread, bar, met, beside


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= FIRST_DIGITS else f"{value:.3g}"


def to_json(rows: list[Row], *, at: datetime, quick: bool) -> str:
    """Give a run as JSON: the machine, and every reading with its values."""
    run: dict[str, Any] = {
        "at": at.isoformat(timespec="seconds"),
        "quick": quick,
        "machine": {
            "cores": os.cpu_count(),
            "system": platform.system(),
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
        },
        "readings": [
            {
                "name": row.reading.name,
                "title": row.reading.title,
                "unit": row.reading.unit,
                "value": row.value,
                "values": row.values,
                "bar": asdict(row.reading.bar) if row.reading.bar else None,
                "met": row.met,
                "times_better_than": row.beside,
                "absent": row.absent,
                "error": row.error,
            }
            for row in rows
        ],
    }
    return json.dumps(run, indent=2) + "\n"
