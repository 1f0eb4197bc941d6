"""How does a command answer? For a person at a terminal, for a pipe, or in JSON.

A command gives its answer once, as values; how that looks is decided here and in `views`. What is
no answer (a hint, a complaint) goes to the standard error, so a pipe carries answers only.
"""

from __future__ import annotations

import os
import sys
from typing import IO, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perdure.surfaces.cli.wording import json_text, plain, printable

STATUS_STYLES = {
    "pending": "dim",
    "running": "cyan",
    "suspended": "yellow",
    "waiting": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "magenta",
    "cancelling": "magenta",
    "terminated": "red",
    "abandoned": "dim",
    "ready": "cyan",
    "delayed": "dim",
    "leased": "yellow",
    "decided": "green",
    "expired": "dim",
}


def make_console(stream: IO[str]) -> Console:
    """Make a console on a stream: colours on a terminal unless ``NO_COLOR`` is set."""
    terminal = stream.isatty()
    quiet = not terminal or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Console(
        file=stream,
        force_terminal=terminal,
        color_system=None if quiet else "auto",
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )


def note(text: str) -> None:
    """Say something beside the answer, on the standard error."""
    print(printable(text), file=sys.stderr, flush=True)  # noqa: T201


def say(line: str) -> None:
    """Say on the standard output what a process that works is doing."""
    print(printable(line), flush=True)  # noqa: T201


class Output:
    """Where the answer of one command goes.

    Attributes:
        as_json: whether it is written as JSON, one document per line.
        terminal: whether a person reads it; never with `as_json`.
        console: prints for a person.
        width: how many columns the terminal has.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        """Look where the standard output goes."""
        self.as_json = as_json
        self.terminal = sys.stdout.isatty() and not as_json
        self.console = make_console(sys.stdout)
        self.width = self.console.width

    def document(self, value: Any) -> None:
        """Write one JSON document on a line of its own."""
        self._write(json_text(plain(value)))

    def row(self, *cells: object) -> None:
        """Write one line of tab-separated cells, ``None`` as nothing."""
        texts = ("" if cell is None else str(cell) for cell in cells)
        self._write("\t".join(printable(text) for text in texts))

    def value(self, value: Any) -> None:
        """Write a JSON value: indented and in colour for a person, else on one line."""
        if self.terminal:
            text = json_text(value)
            self.console.print_json(printable(text), indent=2)
        else:
            self._write(json_text(value))

    def text(self, *parts: str | tuple[str, str]) -> None:
        """Print one line for a person, of texts and of pairs of text and style, never cropped."""
        self.console.print(assemble(*parts), soft_wrap=True)

    def line(self, text: Text) -> None:
        """Print one line for a person, cropped to the width of the terminal."""
        self.console.print(text, no_wrap=True, overflow="ellipsis")

    def table(self, table: Table) -> None:
        """Print a table for a person."""
        self.console.print(table)

    def _write(self, text: str) -> None:
        # Flushed line by line: a reader behind a pipe follows as things happen.
        print(text, flush=True)  # noqa: T201


def assemble(*parts: str | tuple[str, str]) -> Text:
    """Make a text of plain parts and of pairs of text and style, safe to print."""
    made = Text()
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        made.append(printable(text), style)
    return made
