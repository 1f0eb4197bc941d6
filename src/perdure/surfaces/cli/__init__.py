"""What does `perdure` do when it is called? It parses, and leaves the work to the engine.

Importing this module needs nothing but perdure itself: typer and rich come with the extra ``cli``,
and are imported when the command runs. A command never reaches past the engine into a store.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

USAGE = 2


def main() -> None:
    """Run the command that ``sys.argv`` names, and exit the process.

    The exit code is 0 when it is done, 1 when it was refused or something was not found, and 2 when
    what was typed cannot be meant.
    """
    _settle_streams()
    try:
        from perdure.surfaces.cli.app import app  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in {"typer", "rich"}:
            raise
        message = f"the command line needs {missing}, which is not installed: "
        print(f"perdure: {message}install perdure[cli]", file=sys.stderr)  # noqa: T201
        sys.exit(USAGE)
    app(prog_name="perdure")


def _settle_streams() -> None:
    """Make sure that a command can read and write, however it was started."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the caller has closed it
            nowhere = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - it stays open
            setattr(sys, name, nowhere)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the terminal cannot show must not end a command.
            stream.reconfigure(errors="backslashreplace")
